//! Clauses about fencing tokens, the numbers that each node draws (docs/fencing.md).

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Expiry, Request, Vote};
use quorlock::protocol::{Claim, FenceHint, FencingToken, Token};

use super::bench::{Bench, Finding, LONG, acquisition, ensure, held_by, is, number};
use crate::value::Value;

/// Numbers as they were drawn a minute ago.
#[derive(Clone, Copy)]
pub(super) struct Past(u64);

impl Past {
    pub(super) fn of(bench: &Bench<'_>) -> Past {
        let past = bench.clock.wall().saturating_sub(Duration::from_secs(60));
        Past(quorlock::protocol::micros(past))
    }

    /// A hint that makes the counter decide: one more than it, if there is one.
    pub(super) fn counting(self) -> FenceHint {
        self.beyond(0)
    }

    /// As [`Past::counting`], for a client that has seen this number.
    fn beyond(self, seen: u64) -> FenceHint {
        FenceHint::at(Duration::ZERO, Some(self.at(seen)), LONG)
    }

    pub(super) fn at(self, number: u64) -> FencingToken {
        super::bench::number(self.0 + number)
    }
}

pub(super) async fn each_holder_draws_a_larger_number(bench: &Bench<'_>) -> Finding {
    let past = Past::of(bench);
    let key = bench.key();
    let mut last = FencingToken::ZERO;
    for fence_hint in [bench.fence_hint(), past.counting(), bench.fence_hint(), past.counting()] {
        let claim = bench.claim(&key);
        let drawn = bench.drawn(acquisition(&claim, LONG, fence_hint)).await?;
        ensure(drawn > last, format!("{drawn} was drawn after {last}"))?;
        bench.release(&claim).await?;
        last = drawn;
    }
    counts(bench, &key, last).await
}

pub(super) async fn a_number_is_one_more_than_the_larger_of_counter_and_hint(bench: &Bench<'_>) -> Finding {
    let past = Past::of(bench);
    let key = bench.key();
    for (fence_hint, expected) in
        [(past.beyond(41), 42), (past.beyond(7), 43), (past.beyond(43), 44), (past.beyond(99), 100)]
    {
        let claim = bench.claim(&key);
        draws(bench, acquisition(&claim, LONG, fence_hint), past.at(expected)).await?;
        bench.release(&claim).await?;
    }
    Ok(())
}

pub(super) async fn the_time_of_the_node_takes_the_place_of_a_hint_beyond_the_lead(
    bench: &Bench<'_>,
) -> Finding {
    // Far more than the difference between the clocks of node and bench.
    const LEAD: Duration = Duration::from_secs(3600);
    let micros = |wall: Duration| u64::try_from(wall.as_micros()).map_or(FencingToken::MAX, number);
    let before = bench.clock.wall();
    for seen in [None, Some(FencingToken::ZERO)] {
        let fence_hint = FenceHint::at(before + 2 * LEAD, seen, LEAD);
        let drawn = bench.drawn(acquisition(&bench.claim(&bench.key()), LONG, fence_hint)).await?;
        let (least, most) = (micros(before.saturating_sub(LEAD / 2)), micros(before + LEAD / 2));
        ensure(least < drawn && drawn < most, format!("{drawn} is not between {least} and {most}"))?;
    }
    Ok(())
}

pub(super) async fn a_refused_acquisition_reports_the_counter_and_draws_nothing(
    bench: &Bench<'_>,
) -> Finding {
    let past = Past::of(bench);
    let key = bench.key();
    let (holder, refused) = (bench.claim(&key), bench.claim(&key));
    draws(bench, acquisition(&holder, LONG, past.beyond(41)), past.at(42)).await?;
    for request in [
        acquisition(&refused, LONG, past.beyond(99)),
        transfer(&refused, &bench.claim(&key), Some(past.beyond(99))),
    ]
    .into_iter()
    .filter(|request| bench.can(request))
    {
        let (vote, fencing_token) = bench.vote_and_token(request).await?;
        held_by(&vote, holder.token(), LONG)?;
        ensure(fencing_token == Some(past.at(42)), format!("refused at 42, it reports {fencing_token:?}"))?;
    }
    bench.release(&holder).await?;
    draws(bench, acquisition(&refused, LONG, past.counting()), past.at(43)).await
}

pub(super) async fn a_refused_acquisition_never_lowers_the_counter(bench: &Bench<'_>) -> Finding {
    let past = Past::of(bench);
    let key = bench.key();
    let (holder, refused) = (bench.claim(&key), bench.claim(&key));
    let drawn = bench.drawn(acquisition(&holder, LONG, bench.fence_hint())).await?;
    let alone = FenceHint::at(bench.clock.wall().saturating_sub(LONG), None, LONG);
    for fence_hint in [past.counting(), alone, bench.fence_hint()] {
        let (vote, _) = bench.vote_and_token(acquisition(&refused, LONG, fence_hint)).await?;
        held_by(&vote, holder.token(), LONG)?;
        let found = bench.counter(&key).await?;
        ensure(found >= Some(drawn), format!("refused at {drawn}, it has left {found:?}"))?;
    }
    bench.release(&holder).await?;
    let next = bench.drawn(acquisition(&refused, LONG, past.counting())).await?;
    ensure(next > drawn, format!("{next} was drawn after {drawn}"))
}

/// Numbers of one node are never the same, whatever became of the key.
pub(super) async fn asking_again_with_the_own_token_draws_a_larger_number(bench: &Bench<'_>) -> Finding {
    let past = Past::of(bench);
    let [claim, gone] = bench.claims();
    draws(bench, acquisition(&claim, LONG, past.beyond(41)), past.at(42)).await?;
    draws(bench, acquisition(&claim, LONG, past.beyond(7)), past.at(43)).await?;
    let again = transfer(&gone, &claim, Some(past.beyond(99)));
    if bench.can(&again) {
        draws(bench, again, past.at(100)).await?;
    }
    Ok(())
}

pub(super) async fn a_transfer_draws_a_larger_number(bench: &Bench<'_>) -> Finding {
    let past = Past::of(bench);
    let [holder, next, last] = bench.claims();
    draws(bench, acquisition(&holder, LONG, past.beyond(41)), past.at(42)).await?;
    draws(bench, transfer(&holder, &next, Some(past.counting())), past.at(43)).await?;
    bench.release(&next).await?;
    draws(bench, transfer(&next, &last, Some(past.beyond(99))), past.at(100)).await
}

pub(super) async fn a_write_back_raises_the_counter_for_the_holder(bench: &Bench<'_>) -> Finding {
    let past = Past::of(bench);
    let key = bench.key();
    let (holder, next) = (bench.claim(&key), bench.claim(&key));
    draws(bench, acquisition(&holder, LONG, past.beyond(41)), past.at(42)).await?;
    draws(bench, write_back(&holder, past.at(99)), past.at(99)).await?;
    counts(bench, &key, past.at(99)).await?;
    bench.release(&holder).await?;
    draws(bench, acquisition(&next, LONG, past.counting()), past.at(100)).await
}

pub(super) async fn a_write_back_where_the_counter_is_not_below_is_refused(bench: &Bench<'_>) -> Finding {
    let past = Past::of(bench);
    let claim = bench.claim(&bench.key());
    draws(bench, acquisition(&claim, LONG, past.beyond(41)), past.at(42)).await?;
    for number in [41, 42] {
        let refused = bench.vote_and_token(write_back(&claim, past.at(number))).await?;
        ensure(
            refused == (Vote::FenceAhead, Some(past.at(42))),
            format!("{number} at 42 finds {refused:?}"),
        )?;
    }
    counts(bench, claim.key(), past.at(42)).await
}

/// Otherwise one that began before might take a smaller number, and hold the lock after it (rule F-4).
pub(super) async fn a_write_back_by_a_stranger_or_after_the_release_changes_nothing(
    bench: &Bench<'_>,
) -> Finding {
    let past = Past::of(bench);
    let key = bench.key();
    let (holder, stranger) = (bench.claim(&key), bench.claim(&key));
    draws(bench, acquisition(&holder, LONG, past.beyond(41)), past.at(42)).await?;
    held_by(&bench.write_back(&stranger, past.at(99)).await?, holder.token(), LONG)?;
    counts(bench, &key, past.at(42)).await?;
    bench.release(&holder).await?;
    is(&bench.write_back(&holder, past.at(99)).await?, &Vote::Free)?;
    counts(bench, &key, past.at(42)).await
}

pub(super) async fn a_restored_key_raises_the_counter_to_the_number_of_its_lease(
    bench: &Bench<'_>,
) -> Finding {
    let past = Past::of(bench);
    let key = bench.key();
    let (claim, next) = (numbered(bench, &key, FencingToken::ZERO), bench.claim(&key));
    is(&bench.vote(renewal(&claim, Some(past.at(42)))).await?, &Vote::Restored)?;
    counts(bench, &key, past.at(42)).await?;
    bench.release(&claim).await?;
    draws(bench, acquisition(&next, LONG, past.counting()), past.at(43)).await?;
    bench.release(&next).await?;
    is(&bench.vote(renewal(&claim, Some(past.at(42)))).await?, &Vote::Restored)?;
    bench.release(&claim).await?;
    draws(bench, acquisition(&next, LONG, past.counting()), past.at(44)).await
}

pub(super) async fn an_inspection_reports_the_number_of_a_restored_holder(bench: &Bench<'_>) -> Finding {
    if !bench.shares_counters() {
        bench.skip();
        return Ok(());
    }
    let past = Past::of(bench);
    let key = bench.key();
    let (claim, next) = (numbered(bench, &key, FencingToken::ZERO), bench.claim(&key));
    draws(bench, acquisition(&next, LONG, past.beyond(42)), past.at(43)).await?;
    bench.release(&next).await?;
    is(&bench.vote(renewal(&claim, Some(past.at(42)))).await?, &Vote::Restored)?;
    counts(bench, &key, past.at(42)).await
}

pub(super) async fn an_inspection_reports_what_was_drawn_for_the_holder(bench: &Bench<'_>) -> Finding {
    let past = Past::of(bench);
    for (current, fence_hint) in
        [(0, bench.fence_hint()), (0, past.beyond(41)), (past.at(99).get(), past.beyond(41))]
    {
        let key = bench.key();
        if current > 0 {
            plant_counter(bench, &key, current).await?;
        }
        let claim = numbered(bench, &key, fence_hint.usual());
        let drawn = bench.drawn(acquisition(&claim, LONG, fence_hint)).await?;
        let (refused, later) = (bench.claim(&key), FenceHint::at(bench.clock.wall() + LONG / 2, None, LONG));
        held_by(&bench.vote(acquisition(&refused, LONG, later)).await?, claim.token(), LONG)?;
        counts(bench, &key, drawn).await?;
        draws(bench, write_back(&claim, FencingToken::MAX), FencingToken::MAX).await?;
        counts(bench, &key, FencingToken::MAX).await?;
    }
    Ok(())
}

pub(super) async fn a_renewal_that_finds_its_key_leaves_the_counter(bench: &Bench<'_>) -> Finding {
    let past = Past::of(bench);
    let claim = bench.claim(&bench.key());
    draws(bench, acquisition(&claim, LONG, past.beyond(41)), past.at(42)).await?;
    is(&bench.vote(renewal(&claim, Some(past.at(99)))).await?, &Vote::Granted)?;
    counts(bench, claim.key(), past.at(42)).await
}

pub(super) async fn a_counter_never_expires(bench: &Bench<'_>) -> Finding {
    let past = Past::of(bench);
    let key = bench.key();
    let (claim, next, last) = (bench.claim(&key), bench.claim(&key), bench.claim(&key));
    let shared = Arc::new(Claim::clone(&last).shared());
    let release = |claim: &Arc<Claim>| Request::Release { claim: Arc::clone(claim) };
    for request in [
        acquisition(&claim, LONG, past.counting()),
        write_back(&claim, past.at(200)),
        transfer(&claim, &next, Some(past.counting())),
        // One of the two has an effect.
        release(&claim),
        release(&next),
        renewal(&last, Some(past.at(250))),
        renewal(&shared, Some(past.at(260))),
        write_back(&shared, past.at(300)),
        release(&shared),
        acquisition(&shared, LONG, bench.fence_hint()),
    ]
    .into_iter()
    .filter(|request| bench.can(request))
    {
        let shown = format!("{request:?}");
        bench.vote(request).await?;
        let expiry = bench.expiry(&bench.counter_key(&key)).await?;
        ensure(expiry == Some(Expiry::Never), format!("after {shown} the counter expires in {expiry:?}"))?;
    }
    Ok(())
}

pub(super) async fn locks_of_a_slot_share_a_counter_below_their_prefix(bench: &Bench<'_>) -> Finding {
    let past = Past::of(bench);
    let named = |name: &str| format!("{}{{tag}}{name}", bench.key());
    let ([one, other], beyond) = (["one", "other"].map(named), bench.key());
    let draw = async |key: &str, prefix_len: usize, hint: FenceHint, expected: u64| {
        let claim = Arc::new(Claim::clone(&bench.claim(key)).below(prefix_len));
        draws(bench, acquisition(&claim, LONG, hint), past.at(expected)).await?;
        bench.release(&claim).await.map(drop)
    };
    if !bench.shares_counters() {
        bench.skip();
        return Ok(());
    }
    let prefix_len = bench.prefix_len(&one);
    draw(&one, prefix_len, past.beyond(41), 42).await?;
    draw(&other, prefix_len, past.counting(), 43).await?;
    draw(&one, prefix_len, past.counting(), 44).await?;
    draw(&one, prefix_len + 1, past.beyond(7), 8).await?;
    draw(&beyond, prefix_len, past.beyond(7), 8).await
}

pub(super) async fn an_inspection_leaves_the_counter(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    bench.counter(&key).await?;
    bench.has_no_counter(&key).await?;
    let claim = bench.hold(&key).await?;
    bench.release(&claim).await?;
    let current = bench.counter(&key).await?;
    ensure(current.is_some(), "no counter is reported")?;
    ensure(bench.counter(&key).await? == current, "the counter has moved")
}

pub(super) async fn numbers_are_exact_until_the_last(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    let max = FencingToken::MAX.get();
    plant_counter(bench, &key, max - 2).await?;
    for expected in [max - 1, max] {
        let claim = bench.claim(&key);
        draws(bench, acquisition(&claim, LONG, bench.fence_hint()), number(expected)).await?;
        counts(bench, &key, number(expected)).await?;
        bench.release(&claim).await?;
    }
    draws_nothing(bench, &key).await
}

pub(super) async fn a_counter_that_is_no_number_fails_and_leaves_no_key(bench: &Bench<'_>) -> Finding {
    let numbers = [FencingToken::MAX.get(), 1 << 53, u64::MAX].map(Value::from);
    let others = [Value::from("42"), Value::List(vec![b"item".to_vec()])];
    for planted in numbers.into_iter().chain(others) {
        let (key, shown) = (bench.key(), format!("with {planted:?} as the counter"));
        let checked = async {
            plant_counter(bench, &key, planted).await?;
            draws_nothing(bench, &key).await?;
            let found = bench.counter(&key).await?;
            ensure(found.is_none_or(|found| found == FencingToken::MAX), format!("it is read as {found:?}"))
        };
        checked.await.map_err(|finding| format!("{shown}: {finding}"))?;
    }
    Ok(())
}

pub(super) async fn without_fencing_only_the_key_is_stored(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    let (first, second) = (bench.claim(&key), bench.claim(&key));
    let (vote, fencing_token) = bench.vote_and_token(plain(&first)).await?;
    is(&vote, &Vote::Granted)?;
    ensure(fencing_token.is_none(), format!("without fencing it reports {fencing_token:?}"))?;
    let replaces = transfer(&first, &second, None);
    if bench.can(&replaces) {
        is(&bench.vote(replaces).await?, &Vote::Granted)?;
    } else {
        bench.release(&first).await?;
        is(&bench.acquire_plainly(&second).await?, &Vote::Granted)?;
    }
    is(&bench.vote(renewal(&second, None)).await?, &Vote::Granted)?;
    bench.release(&second).await?;
    is(&bench.vote(renewal(&second, None)).await?, &Vote::Restored)?;
    bench.release(&second).await?;
    bench.has_no_counter(&key).await
}

pub(super) async fn a_refused_plain_acquisition_reports_the_holder_and_leaves_no_mark(
    bench: &Bench<'_>,
) -> Finding {
    let [holder, refused] = bench.claims();
    is(&bench.acquire_plainly(&holder).await?, &Vote::Granted)?;
    let left = held_by(&bench.acquire_plainly(&refused).await?, holder.token(), LONG)?;
    bench.is_whole(left)?;
    is(&bench.release(&holder).await?, &Vote::Granted)
}

/// Returns a new attempt, with the number that it expects in its token, as all with fencing.
fn numbered(bench: &Bench<'_>, key: &str, number: FencingToken) -> Arc<Claim> {
    let random = u128::from_str_radix(bench.claim("other").token().short().as_str(), 16).unwrap_or_default();
    bench.claim_with(key, Token::numbered(random, number, "holder"))
}

async fn draws(bench: &Bench<'_>, request: Request, expected: FencingToken) -> Finding {
    let drawn = bench.drawn(request).await?;
    ensure(drawn == expected, format!("expected the number {expected}, found {drawn}"))
}

async fn counts(bench: &Bench<'_>, key: &str, expected: FencingToken) -> Finding {
    let found = bench.counter(key).await?;
    ensure(found == Some(expected), format!("expected the counter at {expected}, found {found:?}"))
}

/// A request for a number fails, and gets no key either.
async fn draws_nothing(bench: &Bench<'_>, key: &str) -> Finding {
    let (claim, gone, fence_hint) = (bench.claim(key), bench.claim(key), bench.fence_hint());
    for request in [
        acquisition(&claim, LONG, fence_hint),
        transfer(&gone, &claim, Some(fence_hint)),
        renewal(&claim, Some(number(42))),
    ]
    .into_iter()
    .filter(|request| bench.can(request))
    {
        bench.fails(request).await?;
        bench.free(key).await?;
    }
    Ok(())
}

async fn plant_counter(bench: &Bench<'_>, key: &str, value: impl Into<Value>) -> Finding {
    bench.plant(&bench.counter_key(key), value, Expiry::Never).await
}

fn plain(claim: &Arc<Claim>) -> Request {
    Request::Acquire { claim: Arc::clone(claim), ttl: LONG, fence_hint: None }
}

fn transfer(from: &Arc<Claim>, to: &Arc<Claim>, fence_hint: Option<FenceHint>) -> Request {
    Request::Transfer { from: Arc::clone(from), to: Arc::clone(to), ttl: LONG, fence_hint }
}

fn renewal(claim: &Arc<Claim>, fencing_token: Option<FencingToken>) -> Request {
    Request::Renew { claim: Arc::clone(claim), ttl: LONG, fencing_token }
}

fn write_back(claim: &Arc<Claim>, fencing_token: FencingToken) -> Request {
    Request::WriteBack { claim: Arc::clone(claim), fencing_token }
}
