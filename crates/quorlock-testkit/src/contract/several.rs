//! Clauses about claims of several locks: a request applies to all of them or to none.

use std::sync::Arc;

use quorlock::node::{Expiry, Grants, Request, Vote};
use quorlock::protocol::{Claim, FenceHint, FencingToken};

use super::bench::{Bench, Finding, LONG, acquisition, ensure, held_by, is, number};
use super::fence::Past;
use super::shared::{marker, reader};

pub(super) async fn several_free_locks_are_granted_together(bench: &Bench<'_>) -> Finding {
    let both = both(bench);
    is(&bench.acquire(&both, LONG).await?, &Vote::Granted)?;
    all_held(bench, &both).await
}

pub(super) async fn several_locks_without_fencing_store_only_their_keys(bench: &Bench<'_>) -> Finding {
    let both = both(bench);
    is(&bench.acquire_plainly(&both).await?, &Vote::Granted)?;
    let [one, other] = each(&both);
    bench.has_no_counter(one.key()).await?;
    bench.has_no_counter(other.key()).await?;
    held_at(&bench.acquire_plainly(&again(bench, &both)).await?, &both, one.key())
}

/// For any of them, and for any kind of holder.
pub(super) async fn of_several_locks_one_that_is_held_keeps_all_and_is_named(bench: &Bench<'_>) -> Finding {
    for place in 0..2 {
        let both = both(bench);
        let [taken, free] = turned(each(&both), place).map(|claim| claim.key().to_owned());
        let holder = bench.claim(&taken);
        bench.acquire(&holder, LONG).await?;
        held_at(&bench.acquire(&both, LONG).await?, &holder, &taken)?;
        held_at(&bench.acquire_plainly(&both).await?, &holder, &taken)?;
        bench.free(&free).await?;
        bench.has_no_counter(&free).await?;
        is(&bench.release(&holder).await?, &contended(bench))?;
        is(&bench.acquire(&both, LONG).await?, &Vote::Granted)?;
    }
    Ok(())
}

pub(super) async fn several_locks_exclude_clients_that_want_one_of_them(bench: &Bench<'_>) -> Finding {
    let both = both(bench);
    bench.acquire(&both, LONG).await?;
    for key in both.keys() {
        held_by(&bench.acquire(&bench.claim(key), LONG).await?, both.token(), LONG)?;
        held_by(&bench.acquire_plainly(&bench.claim(key)).await?, both.token(), LONG)?;
        held_by(&bench.acquire(&reader(bench, key), LONG).await?, both.token(), LONG)?;
        held_by(&bench.renew(&bench.claim(key), LONG).await?, both.token(), LONG)?;
    }
    let [_, other] = each(&both);
    let overlapping =
        Arc::new(Claim::clone(&bench.claim(&bench.key_beside())).and(Arc::new([other.key().into()])));
    held_at(&bench.acquire(&overlapping, LONG).await?, &both, other.key())?;
    bench.free(overlapping.key()).await
}

pub(super) async fn readers_of_one_keep_several_locks(bench: &Bench<'_>) -> Finding {
    let both = both(bench);
    let [one, other] = each(&both);
    let ann = reader(bench, other.key());
    bench.acquire(&ann, LONG).await?;
    let vote = bench.acquire(&both, LONG).await?;
    held_by(&vote, &marker(), LONG)?;
    names(&vote, other.key())?;
    bench.free(one.key()).await?;
    is(&bench.release(&ann).await?, &Vote::ReleasedContended)?;
    is(&bench.acquire(&both, LONG).await?, &Vote::Granted)
}

pub(super) async fn several_own_locks_are_granted_again_and_not_prolonged(bench: &Bench<'_>) -> Finding {
    let both = both(bench);
    let drawn = bench.drawn(acquisition(&both, LONG / 4, bench.fence_hint())).await?;
    let again = bench.drawn(acquisition(&both, LONG, bench.fence_hint())).await?;
    ensure(again > drawn, format!("{again} was drawn after {drawn}"))?;
    for claim in each(&both) {
        bench.held(&claim, LONG / 4).await?;
    }
    Ok(())
}

pub(super) async fn several_locks_expire(bench: &Bench<'_>) -> Finding {
    let both = both(bench);
    bench.acquire(&both, bench.short).await?;
    bench.until_granted(&acquisition(&again(bench, &both), LONG, bench.fence_hint())).await
}

pub(super) async fn a_renewal_of_several_prolongs_each_and_never_shortens(bench: &Bench<'_>) -> Finding {
    let both = both(bench);
    bench.acquire(&both, LONG / 10).await?;
    is(&bench.renew(&both, LONG).await?, &Vote::Granted)?;
    all_held(bench, &both).await?;
    is(&bench.renew(&both, bench.short).await?, &Vote::Granted)?;
    all_held(bench, &both).await
}

/// The vote is not a confirmation: another client may have held that lock in between.
pub(super) async fn a_renewal_restores_the_one_of_several_that_is_gone_and_says_so(
    bench: &Bench<'_>,
) -> Finding {
    for place in 0..2 {
        let both = both(bench);
        bench.acquire(&both, LONG / 10).await?;
        let [gone, _] = turned(each(&both), place).map(|claim| claim.key().to_owned());
        bench.remove(&gone).await?;
        let renewal = Request::Renew { claim: Arc::clone(&both), ttl: LONG, fencing_token: Some(number(7)) };
        is(&bench.vote(renewal).await?, &Vote::Restored)?;
        all_held(bench, &both).await?;
        is(&bench.renew(&both, LONG).await?, &Vote::Granted)?;
    }
    Ok(())
}

pub(super) async fn a_renewal_changes_none_of_several_if_another_client_holds_one(
    bench: &Bench<'_>,
) -> Finding {
    for taken in 0..2 {
        let both = both(bench);
        let [lost, kept] = turned(each(&both), taken);
        bench.acquire(&both, LONG / 10).await?;
        bench.remove(lost.key()).await?;
        let other = bench.claim(lost.key());
        bench.acquire(&other, LONG).await?;
        held_at(&bench.renew(&both, LONG).await?, &other, lost.key())?;
        bench.held(&kept, LONG / 10).await?;
        // A missing key is not stored again either.
        bench.remove(kept.key()).await?;
        held_at(&bench.renew(&both, LONG).await?, &other, lost.key())?;
        bench.free(kept.key()).await?;
    }
    Ok(())
}

pub(super) async fn a_release_frees_those_of_several_that_are_ours(bench: &Bench<'_>) -> Finding {
    let both = both(bench);
    let [one, other] = each(&both);
    bench.acquire(&both, LONG).await?;
    is(&bench.release(&both).await?, &Vote::Granted)?;
    bench.free(one.key()).await?;
    bench.free(other.key()).await?;
    is(&bench.release(&both).await?, &Vote::Free)?;
    let stranger = bench.claim(one.key());
    bench.acquire(&both, LONG).await?;
    bench.remove(one.key()).await?;
    bench.acquire(&stranger, LONG).await?;
    is(&bench.release(&both).await?, &Vote::Granted)?;
    bench.held(&stranger, LONG).await?;
    bench.free(other.key()).await
}

pub(super) async fn a_release_of_several_reports_refused_clients_once(bench: &Bench<'_>) -> Finding {
    let both = both(bench);
    bench.acquire(&both, LONG).await?;
    bench.acquire(&again(bench, &both), LONG).await?;
    is(&bench.release(&both).await?, &contended(bench))?;
    bench.acquire(&both, LONG).await?;
    is(&bench.release(&both).await?, &Vote::Granted)
}

pub(super) async fn late_requests_of_several_that_were_cancelled_do_nothing(bench: &Bench<'_>) -> Finding {
    let both = both(bench);
    bench.acquire(&both, LONG).await?;
    is(&bench.cancel(&both, LONG).await?, &Vote::Granted)?;
    is(&bench.acquire(&both, LONG).await?, &Vote::Free)?;
    is(&bench.renew(&both, LONG).await?, &Vote::Free)?;
    for claim in each(&both) {
        bench.free(claim.key()).await?;
    }
    Ok(())
}

/// The cancellation is of one lock, as by a client that revokes it from its holder and knows of no others.
pub(super) async fn what_was_cancelled_at_one_of_several_is_not_restored(bench: &Bench<'_>) -> Finding {
    for place in 0..2 {
        let both = both(bench);
        let [one, _] = turned(each(&both), place).map(Arc::new);
        bench.acquire(&both, LONG).await?;
        is(&bench.cancel(&one, LONG).await?, &Vote::Granted)?;
        is(&bench.renew(&both, LONG).await?, &Vote::Free)?;
        is(&bench.acquire(&both, LONG).await?, &Vote::Free)?;
        bench.free(one.key()).await?;
    }
    Ok(())
}

pub(super) async fn a_removal_notifies_clients_that_were_refused_several(bench: &Bench<'_>) -> Finding {
    for place in 0..2 {
        let both = both(bench);
        let [holder, _] = turned(each(&both), place).map(|one| bench.claim(one.key()));
        bench.ear.expect(holder.key());
        bench.acquire(&holder, LONG).await?;
        if !bench.ear.hears() {
            return Ok(());
        }
        held_at(&bench.acquire(&both, LONG).await?, &holder, holder.key())?;
        bench.remove(holder.key()).await?;
        bench.until_notified(holder.key()).await?;
    }
    Ok(())
}

/// Each counter then has that number.
pub(super) async fn several_locks_draw_one_number_above_that_of_each(bench: &Bench<'_>) -> Finding {
    for ahead in 0..2 {
        let both = both(bench);
        let [holder, _] = turned(each(&both), ahead).map(|one| bench.claim(one.key()));
        let far = FenceHint::at(bench.clock.wall() + LONG / 2, None, LONG);
        let before = bench.drawn(acquisition(&holder, LONG, far)).await?;
        bench.release(&holder).await?;
        let drawn = bench.drawn(acquisition(&both, LONG, bench.fence_hint())).await?;
        is_equal(drawn, number(before.get() + 1))?;
        counters(bench, &both, drawn).await?;
        is(&bench.release(&both).await?, &Vote::Granted)?;
        for key in both.keys() {
            let next = bench.drawn(acquisition(&bench.claim(key), LONG, bench.fence_hint())).await?;
            ensure(next > drawn, format!("{next} follows {drawn}"))?;
        }
    }
    Ok(())
}

pub(super) async fn a_write_back_of_several_raises_every_counter(bench: &Bench<'_>) -> Finding {
    let both = both(bench);
    let drawn = bench.drawn(acquisition(&both, LONG, bench.fence_hint())).await?;
    let larger = number(drawn.get() + 5);
    is(&bench.write_back(&both, larger).await?, &Vote::Granted)?;
    counters(bench, &both, larger).await?;
    is(&bench.write_back(&both, drawn).await?, &Vote::FenceAhead)?;
    counters(bench, &both, larger).await
}

pub(super) async fn a_write_back_counts_for_none_of_several_where_one_is_lost(bench: &Bench<'_>) -> Finding {
    for lost in 0..2 {
        let both = both(bench);
        let [lost, _] = turned(each(&both), lost).map(|claim| claim.key().to_owned());
        let drawn = bench.drawn(acquisition(&both, LONG, bench.fence_hint())).await?;
        bench.remove(&lost).await?;
        let larger = number(drawn.get() + 5);
        is(&bench.write_back(&both, larger).await?, &Vote::Free)?;
        counters(bench, &both, drawn).await?;
        let other = bench.claim(&lost);
        bench.acquire_plainly(&other).await?;
        held_at(&bench.write_back(&both, larger).await?, &other, &lost)?;
        counters(bench, &both, drawn).await?;
    }
    Ok(())
}

pub(super) async fn several_restored_locks_raise_every_counter(bench: &Bench<'_>) -> Finding {
    let (both, past) = (both(bench), Past::of(bench));
    let renewal = Request::Renew { claim: Arc::clone(&both), ttl: LONG, fencing_token: Some(past.at(42)) };
    is(&bench.vote(renewal).await?, &Vote::Restored)?;
    counters(bench, &both, past.at(42)).await?;
    is(&bench.release(&both).await?, &Vote::Granted)?;
    // Not only as a note of what was drawn for this one.
    for key in both.keys() {
        let next = bench.drawn(acquisition(&bench.claim(key), LONG, past.counting())).await?;
        is_equal(next, past.at(43))?;
    }
    Ok(())
}

pub(super) async fn a_key_of_the_wrong_type_fails_several_and_leaves_none(bench: &Bench<'_>) -> Finding {
    for wrong in 0..2 {
        let both = both(bench);
        let [list, other] = turned(each(&both), wrong).map(|claim| claim.key().to_owned());
        bench.plant(&list, crate::value::Value::List(vec![b"data".to_vec()]), Expiry::In(LONG)).await?;
        bench.fails(acquisition(&both, LONG, bench.fence_hint())).await?;
        bench.free(&other).await?;
        bench.has_no_counter(&other).await?;
    }
    Ok(())
}

pub(super) async fn a_counter_that_is_no_number_fails_several_and_leaves_no_key(
    bench: &Bench<'_>,
) -> Finding {
    for wrong in 0..2 {
        let both = both(bench);
        let [bad, other] = turned(each(&both), wrong);
        bench.plant(&bench.counter_key(bad.key()), "many", Expiry::Never).await?;
        bench.fails(acquisition(&both, LONG, bench.fence_hint())).await?;
        bench.free(other.key()).await?;
        bench.has_no_counter(other.key()).await?;
    }
    Ok(())
}

pub(super) async fn sixty_four_locks_are_held_and_released(bench: &Bench<'_>) -> Finding {
    let keys: Vec<Arc<str>> = (1..64).map(|_| bench.key_beside().into()).collect();
    let all = Arc::new(Claim::clone(&bench.claim(&bench.key_beside())).and(keys.into()));
    is(&bench.acquire(&all, LONG).await?, &Vote::Granted)?;
    let last = all.keys().last().ok_or("no keys")?.clone();
    held_at(&bench.acquire(&again(bench, &all), LONG).await?, &all, all.key())?;
    bench.held(&Claim::new(last.clone(), all.token().clone()), LONG).await?;
    is(&bench.release(&all).await?, &contended(bench))?;
    bench.free(&last).await
}

/// The answer to a release after a client was refused that has no place in a queue. Where only places count, such a client
/// leaves no mark.
fn contended(bench: &Bench<'_>) -> Vote {
    let first_come = bench.node.capabilities().grants == Grants::FirstCome;
    if first_come { Vote::Granted } else { Vote::ReleasedContended }
}

/// Returns a new attempt to get two unused locks.
pub(super) fn both(bench: &Bench<'_>) -> Arc<Claim> {
    Arc::new(Claim::clone(&bench.claim(&bench.key_beside())).and(Arc::new([bench.key_beside().into()])))
}

/// Returns another attempt to get the same locks.
fn again(bench: &Bench<'_>, claim: &Claim) -> Arc<Claim> {
    let others: Vec<_> = claim.keys().skip(1).cloned().collect();
    Arc::new(Claim::clone(&bench.claim(claim.key())).and(others.into()))
}

fn each(both: &Claim) -> [Claim; 2] {
    let mut each = both.each();
    [(); 2].map(|()| each.next().unwrap_or_else(|| both.clone()))
}

/// Returns the locks with the one at `place` first.
fn turned([one, other]: [Claim; 2], place: usize) -> [Claim; 2] {
    if place == 0 { [one, other] } else { [other, one] }
}

async fn all_held(bench: &Bench<'_>, claim: &Claim) -> Finding {
    for one in claim.each() {
        bench.is_whole(bench.held(&one, LONG).await?)?;
    }
    Ok(())
}

/// Expects the vote to name the key that is held, and its holder.
fn held_at(vote: &Vote, holder: &Claim, key: &str) -> Finding {
    held_by(vote, holder.token(), LONG)?;
    names(vote, key)
}

fn names(vote: &Vote, key: &str) -> Finding {
    let named = matches!(vote, Vote::Held(holding) if holding.key.as_deref() == Some(key));
    ensure(named, format!("{key} is in the way, found {vote:?}"))
}

async fn counters(bench: &Bench<'_>, claim: &Claim, all: FencingToken) -> Finding {
    for key in claim.keys() {
        let current = bench.counter(key).await?;
        ensure(current == Some(all), format!("the counter of {key} is {current:?}, not {all}"))?;
    }
    Ok(())
}

fn is_equal(found: FencingToken, wanted: FencingToken) -> Finding {
    ensure(found == wanted, format!("expected the number {wanted}, found {found}"))
}
