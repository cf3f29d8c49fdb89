//! Clauses about shared locks, and about writers that wait for the readers.

use std::array::from_fn;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Expiry, Holding, Request, Vote};
use quorlock::protocol::{Claim, FencingToken, SHARED_MARKER, Token, WaiterId};

use super::bench::{Bench, Finding, LONG, acquisition, ensure, held_by, is, number};
use super::fence::Past;

pub(super) async fn readers_share_a_lock_and_keep_every_writer_out(bench: &Bench<'_>) -> Finding {
    let (key, [ann, ben]) = readers(bench);
    is(&bench.acquire(&ann, LONG).await?, &Vote::Granted)?;
    is(&bench.acquire(&ben, LONG).await?, &Vote::Granted)?;
    shared_by(bench, &key, &[&ann, &ben]).await?;
    let writer = bench.claim(&key);
    held_by(&bench.acquire(&writer, LONG).await?, &marker(), LONG)?;
    held_by(&bench.acquire_plainly(&writer).await?, &marker(), LONG)?;
    Ok(())
}

pub(super) async fn readers_without_fencing_share_a_lock_too(bench: &Bench<'_>) -> Finding {
    let (key, [ann, ben]) = readers(bench);
    is(&bench.acquire_plainly(&ann).await?, &Vote::Granted)?;
    is(&bench.acquire_plainly(&ben).await?, &Vote::Granted)?;
    bench.has_no_counter(&key).await
}

pub(super) async fn a_writer_keeps_readers_out_and_is_named(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    let (writer, ann) = (bench.claim(&key), reader(bench, &key));
    bench.acquire(&writer, LONG).await?;
    held_by(&bench.acquire(&ann, LONG).await?, writer.token(), LONG)?;
    held_by(&bench.renew(&ann, LONG).await?, writer.token(), LONG)?;
    is(&bench.release(&ann).await?, &Vote::Free)?;
    bench.held(&writer, LONG).await?;
    is(&bench.release(&writer).await?, &Vote::ReleasedContended)
}

pub(super) async fn every_reader_has_its_own_expiry(bench: &Bench<'_>) -> Finding {
    let (key, [long, short]) = readers(bench);
    bench.acquire(&long, LONG).await?;
    bench.acquire(&short, bench.short).await?;
    ends_whole(bench, &key).await?;
    bench.until_granted(&acquisition(&reader(bench, &key), bench.short, bench.fence_hint())).await?;
    bench.clock.sleep_until(bench.clock.now() + bench.short * 2).await;
    shared_by(bench, &key, &[&long]).await
}

pub(super) async fn the_expiry_follows_the_remaining_readers(bench: &Bench<'_>) -> Finding {
    let (key, [long, short]) = readers(bench);
    bench.acquire(&long, LONG).await?;
    bench.acquire(&short, LONG / 4).await?;
    is(&bench.release(&long).await?, &Vote::Granted)?;
    ends_in(bench, &key, LONG / 8, LONG / 4).await?;
    is(&bench.release(&long).await?, &Vote::Free)?;
    is(&bench.release(&short).await?, &Vote::Granted)?;
    bench.free(&key).await
}

pub(super) async fn expired_readers_exclude_no_client(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    bench.acquire(&reader(bench, &key), bench.short).await?;
    bench.until_granted(&acquisition(&bench.claim(&key), LONG, bench.fence_hint())).await
}

pub(super) async fn the_own_share_is_granted_again_and_not_prolonged(bench: &Bench<'_>) -> Finding {
    let (key, [ann]) = readers(bench);
    bench.acquire(&ann, LONG / 4).await?;
    is(&bench.acquire(&ann, LONG).await?, &Vote::Granted)?;
    ends_in(bench, &key, LONG / 8, LONG / 4).await
}

pub(super) async fn a_renewal_of_a_share_prolongs_it_and_never_shortens(bench: &Bench<'_>) -> Finding {
    let (key, [ann]) = readers(bench);
    bench.acquire(&ann, LONG / 4).await?;
    is(&bench.renew(&ann, LONG).await?, &Vote::Granted)?;
    ends_whole(bench, &key).await?;
    is(&bench.renew(&ann, bench.short).await?, &Vote::Granted)?;
    ends_whole(bench, &key).await?;
    // Also the share itself: the remaining one must outlive the shorter renewal.
    let ben = reader(bench, &key);
    bench.acquire(&ben, LONG / 4).await?;
    is(&bench.release(&ben).await?, &Vote::Granted)?;
    ends_whole(bench, &key).await
}

pub(super) async fn a_renewal_restores_a_missing_share_and_says_so(bench: &Bench<'_>) -> Finding {
    let (key, [ann, ben]) = readers(bench);
    is(&bench.renew(&ann, LONG).await?, &Vote::Restored)?;
    is(&bench.renew(&ben, LONG).await?, &Vote::Restored)?;
    is(&bench.renew(&ann, LONG).await?, &Vote::Granted)?;
    shared_by(bench, &key, &[&ann, &ben]).await
}

/// A writer may have held it in between.
pub(super) async fn a_share_is_lost_with_the_marker(bench: &Bench<'_>) -> Finding {
    let (key, [ann, ben]) = readers(bench);
    bench.acquire(&ann, LONG).await?;
    bench.remove(&key).await?;
    is(&bench.acquire(&ben, LONG).await?, &Vote::Granted)?;
    shared_by(bench, &key, &[&ben]).await?;
    is(&bench.renew(&ann, LONG).await?, &Vote::Restored)
}

pub(super) async fn the_renewal_of_a_share_makes_a_reader_of_a_writer(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    let writer = bench.hold(&key).await?;
    let shared = Arc::new(Claim::clone(&writer).shared());
    is(&bench.renew(&shared, LONG / 4).await?, &Vote::Granted)?;
    ends_whole(bench, &key).await?;
    let ann = reader(bench, &key);
    is(&bench.acquire(&ann, LONG / 4).await?, &Vote::Granted)?;
    shared_by(bench, &key, &[&writer, &ann]).await?;
    held_by(&bench.renew(&writer, LONG).await?, &marker(), LONG)?;
    is(&bench.release(&ann).await?, &Vote::Granted)?;
    ends_whole(bench, &key).await?;
    is(&bench.release(&shared).await?, &Vote::Granted)?;
    bench.free(&key).await
}

pub(super) async fn the_release_of_a_share_frees_what_is_still_held_alone(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    let writer = bench.hold(&key).await?;
    is(&bench.release(&Arc::new(Claim::clone(&writer).shared())).await?, &Vote::Granted)?;
    bench.free(&key).await
}

pub(super) async fn late_requests_of_a_cancelled_share_do_nothing(bench: &Bench<'_>) -> Finding {
    let (key, [ann, ben]) = readers(bench);
    bench.acquire(&ann, LONG).await?;
    is(&bench.cancel(&ann, LONG).await?, &Vote::Granted)?;
    is(&bench.acquire(&ann, LONG).await?, &Vote::Free)?;
    is(&bench.renew(&ann, LONG).await?, &Vote::Free)?;
    bench.free(&key).await?;
    is(&bench.acquire(&ben, LONG).await?, &Vote::Granted)?;
    is(&bench.renew(&ann, LONG).await?, &Vote::Free)?;
    shared_by(bench, &key, &[&ben]).await
}

pub(super) async fn an_intent_keeps_new_readers_out_and_lets_the_others_renew(bench: &Bench<'_>) -> Finding {
    let (key, [ann, ben]) = readers(bench);
    let waiter = WaiterId::new(1);
    bench.acquire(&ann, LONG).await?;
    is(&intend(bench, &key, waiter, LONG).await?, &Vote::Granted)?;
    is(&bench.acquire(&ben, LONG).await?, &Vote::NotYourTurn)?;
    is(&bench.renew(&ann, LONG).await?, &Vote::Granted)?;
    is(&bench.acquire(&ann, LONG).await?, &Vote::Granted)?;
    is(&bench.release(&ann).await?, &Vote::Granted)?;
    is(&bench.acquire(&ben, LONG).await?, &Vote::NotYourTurn)?;
    let writer = bench.claim(&key);
    is(&bench.acquire(&writer, LONG).await?, &Vote::Granted)?;
    is(&desist(bench, &key, waiter).await?, &Vote::Granted)?;
    is(&desist(bench, &key, waiter).await?, &Vote::Free)?;
    bench.release(&writer).await?;
    is(&bench.acquire(&ben, LONG).await?, &Vote::Granted)
}

pub(super) async fn an_intent_expires_and_another_one_stays(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    let (short, long) = (WaiterId::new(1), WaiterId::new(2));
    intend(bench, &key, short, bench.short).await?;
    bench.until_granted(&acquisition(&reader(bench, &key), LONG, bench.fence_hint())).await?;
    intend(bench, &key, short, LONG).await?;
    intend(bench, &key, long, LONG).await?;
    is(&desist(bench, &key, short).await?, &Vote::Granted)?;
    is(&bench.acquire(&reader(bench, &key), LONG).await?, &Vote::NotYourTurn)
}

pub(super) async fn a_removal_notifies_a_refused_reader(bench: &Bench<'_>) -> Finding {
    if !bench.ear.hears() {
        return Ok(());
    }
    let key = bench.key();
    bench.acquire(&reader(bench, &key), LONG).await?;
    intend(bench, &key, WaiterId::new(1), LONG).await?;
    is(&bench.acquire(&reader(bench, &key), LONG).await?, &Vote::NotYourTurn)?;
    bench.ear.expect(&key);
    bench.remove(&key).await?;
    bench.until_notified(&key).await
}

pub(super) async fn a_removal_notifies_a_writer_that_was_refused_by_readers(bench: &Bench<'_>) -> Finding {
    if !bench.ear.hears() {
        return Ok(());
    }
    let key = bench.key();
    bench.acquire(&reader(bench, &key), LONG).await?;
    held_by(&bench.acquire(&bench.claim(&key), LONG).await?, &marker(), LONG)?;
    bench.ear.expect(&key);
    bench.remove(&key).await?;
    bench.until_notified(&key).await
}

pub(super) async fn every_reader_draws_a_larger_number(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    let mut last = FencingToken::ZERO;
    let readers = [reader(bench, &key), reader(bench, &key)];
    // Also one that has its share already.
    for claim in readers.iter().chain(&readers) {
        let drawn = bench.drawn(acquisition(claim, LONG, bench.contended_draw())).await?;
        ensure(drawn > last, format!("{drawn} was drawn after {last}"))?;
        last = drawn;
    }
    counts(bench, &key, last).await
}

pub(super) async fn a_writer_that_becomes_a_reader_leaves_a_larger_number(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    let (writer, ann) = (bench.claim(&key), reader(bench, &key));
    let drawn = bench.drawn(acquisition(&writer, LONG, bench.fence_hint())).await?;
    let shared = Arc::new(Claim::clone(&writer).shared());
    is(
        &bench.vote(Request::Renew { claim: shared, ttl: LONG, fencing_token: Some(drawn) }).await?,
        &Vote::Granted,
    )?;
    let read = bench.drawn(acquisition(&ann, LONG, bench.fence_hint())).await?;
    ensure(read > drawn, format!("a reader has {read} after the writer's {drawn}"))
}

pub(super) async fn a_write_back_counts_for_every_reader(bench: &Bench<'_>) -> Finding {
    let (key, [ann, stranger]) = readers(bench);
    let drawn = bench.drawn(acquisition(&ann, LONG, bench.fence_hint())).await?;
    let above = number(drawn.get() + 5);
    is(&bench.write_back(&stranger, above).await?, &Vote::Free)?;
    is(&bench.write_back(&ann, above).await?, &Vote::Granted)?;
    is(&bench.write_back(&ann, drawn).await?, &Vote::FenceAhead)?;
    counts(bench, &key, above).await?;
    bench.release(&ann).await?;
    is(&bench.write_back(&ann, above).await?, &Vote::Free)
}

/// Whether the lock was free or shared, and whether or not the counter includes a later writer.
pub(super) async fn a_restored_share_raises_the_counter_to_its_number(bench: &Bench<'_>) -> Finding {
    let past = Past::of(bench);
    for (current, after) in [(None, 41), (Some(7), 41), (Some(50), 50)] {
        for others in [false, true] {
            let key = bench.key();
            if others {
                is(&bench.acquire_plainly(&reader(bench, &key)).await?, &Vote::Granted)?;
            }
            if let Some(current) = current {
                bench.plant(&bench.counter_key(&key), past.at(current).get(), Expiry::Never).await?;
            }
            is(&bench.vote(renewal(&reader(bench, &key), past.at(41))).await?, &Vote::Restored)?;
            counts(bench, &key, past.at(after)).await?;
        }
    }
    Ok(())
}

fn renewal(claim: &Arc<Claim>, number: FencingToken) -> Request {
    Request::Renew { claim: Arc::clone(claim), ttl: LONG, fencing_token: Some(number) }
}

pub(super) fn reader(bench: &Bench<'_>, key: &str) -> Arc<Claim> {
    Arc::new(Claim::clone(&bench.claim(key)).shared())
}

/// Returns an unused key, and readers of it.
fn readers<const N: usize>(bench: &Bench<'_>) -> (String, [Arc<Claim>; N]) {
    let key = bench.key();
    let readers = from_fn(|_| reader(bench, &key));
    (key, readers)
}

pub(super) fn marker() -> Token {
    Token::found(SHARED_MARKER.as_bytes())
}

async fn intend(bench: &Bench<'_>, key: &str, waiter: WaiterId, patience: Duration) -> Result<Vote, String> {
    bench.vote(Request::AnnounceWriter { key: key.into(), waiter, patience }).await
}

async fn desist(bench: &Bench<'_>, key: &str, waiter: WaiterId) -> Result<Vote, String> {
    bench.vote(Request::WithdrawWriter { key: key.into(), waiter }).await
}

async fn counts(bench: &Bench<'_>, key: &str, wanted: FencingToken) -> Finding {
    let found = bench.counter(key).await?;
    ensure(found == Some(wanted), format!("the counter is {found:?} instead of {wanted}"))
}

/// Expects the lock to be shared by exactly these claims.
async fn shared_by(bench: &Bench<'_>, key: &str, wanted: &[&Arc<Claim>]) -> Finding {
    let mut found = holding(bench, key).await?.readers;
    let mut wanted: Vec<Token> = wanted.iter().map(|claim| claim.token().clone()).collect();
    found.sort_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
    wanted.sort_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
    ensure(found == wanted, format!("shared by {found:?} instead of {wanted:?}"))
}

/// Expects the marker to expire between `least` and `most` from now.
async fn ends_in(bench: &Bench<'_>, key: &str, least: Duration, most: Duration) -> Finding {
    let left = left(bench, key).await?;
    ensure(left >= least && left <= most, format!("{left:?} remain, not {least:?} to {most:?}"))
}

/// Expects that nothing but what has passed is missing of the marker's [`LONG`].
async fn ends_whole(bench: &Bench<'_>, key: &str) -> Finding {
    let left = left(bench, key).await?;
    bench.is_whole(left)?;
    ensure(left <= LONG, format!("{left:?} of {LONG:?} remain"))
}

/// Returns in what time the marker expires.
async fn left(bench: &Bench<'_>, key: &str) -> Result<Duration, String> {
    match holding(bench, key).await?.expiry {
        Expiry::In(left) => Ok(left),
        Expiry::Never => Err("it never expires".to_owned()),
    }
}

/// Returns the holding of the key, which readers hold.
async fn holding(bench: &Bench<'_>, key: &str) -> Result<Holding, String> {
    let vote = bench.inspect(key).await?;
    if let Vote::Held(holding) = vote
        && holding.token == marker()
    {
        return Ok(*holding);
    }
    Err("expected it to be held by readers".to_owned())
}
