//! Clauses about the queue of waiters for a key.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Grants, Queued, Request, Vote};
use quorlock::protocol::{Claim, Drift, MOST_PLACES, WaiterId};

use super::bench::{Bench, Finding, LONG, acquisition, ensure, is};
use super::several::both;
use super::shared::reader;

/// Short enough to wait for.
const PATIENCE: Duration = Duration::from_millis(50);

const WAITERS: [WaiterId; 3] = [WaiterId::new(9), WaiterId::new(8), WaiterId::new(7)];

/// Asks for a place, as a waiter that has waited for this many seconds.
async fn place(bench: &Bench<'_>, key: &str, waiter: WaiterId, seconds: u64) -> Result<Queued, String> {
    let vote = bench.enqueue(key, waiter, Duration::from_secs(seconds), LONG).await?;
    let Vote::Queued(queued) = vote else { return Err(format!("expected a place, found {vote:?}")) };
    Ok(*queued)
}

async fn is_behind(bench: &Bench<'_>, key: &str, waiter: WaiterId, seconds: u64, others: u32) -> Finding {
    let ahead = place(bench, key, waiter, seconds).await?.ahead;
    ensure(ahead == others, format!("{ahead} are ahead, not {others}"))
}

/// Puts these two into a queue without others.
async fn are_first(bench: &Bench<'_>, key: &str, [first, second]: [WaiterId; 2]) -> Finding {
    is_behind(bench, key, first, 2, 0).await?;
    is_behind(bench, key, second, 1, 1).await
}

/// Puts `next` behind a waiter that does not ask again, and sleeps until the patience of that one is over.
async fn outlives_a_silent_waiter(bench: &Bench<'_>, key: &str, silent: WaiterId, next: WaiterId) -> Finding {
    // On a busy machine the patience may be over before `next` asks.
    for patience in [PATIENCE, PATIENCE * 8, PATIENCE * 64] {
        let began = bench.clock.now();
        bench.enqueue(key, silent, LONG, patience).await?;
        let behind = is_behind(bench, key, next, 1, 1).await;
        if behind.is_ok() || bench.clock.now().since(began) < patience {
            // Servers count whole milliseconds, which the margin allows for.
            bench.clock.sleep_until(bench.clock.now() + patience + 2 * Drift::MARGIN).await;
            behind?;
            // A store of places has the place until the node has deleted it.
            let deletion = bench.patience();
            while bench.node.capabilities().grants == Grants::FirstCome
                && let Err(finding) = is_behind(bench, key, next, 1, 0).await
            {
                deletion.or(&finding).await?;
            }
            return Ok(());
        }
        bench.leave_queue(key, next).await?;
    }
    Err("no waiter stayed long enough to be waited for".to_owned())
}

/// Expects that it is this waiter's turn. If the lock is given to any client that asks, the node has removed it from its queue.
async fn has_turn(bench: &Bench<'_>, key: &str, waiter: WaiterId) -> Finding {
    if bench.node.capabilities().grants == Grants::FirstCome {
        return is(&bench.enqueue(key, waiter, LONG, LONG).await?, &Vote::Free);
    }
    let vote = bench.leave_queue(key, waiter).await?;
    ensure(vote != Vote::Granted, format!("{waiter} is still in the queue"))
}

pub(super) async fn waiters_are_served_in_order_of_arrival(bench: &Bench<'_>) -> Finding {
    let (key, [first, second, third]) = (bench.key(), WAITERS);
    let holder = bench.hold(&key).await?;
    for (waiter, seconds, before) in [(third, 10, 0), (first, 30, 0), (second, 20, 1), (third, 10, 2)] {
        is_behind(bench, &key, waiter, seconds, before).await?;
    }
    is(&bench.release(&holder).await?, &Vote::Notified)?;
    let next = bench.claim(&key);
    is(&bench.acquire(&next, LONG).await?, &Vote::Granted)?;
    is_behind(bench, &key, third, 10, 1).await?;
    is(&bench.release(&next).await?, &Vote::Notified)?;
    is_behind(bench, &key, third, 10, 0).await?;
    has_turn(bench, &key, first).await
}

pub(super) async fn undoing_an_attempt_is_no_waiters_turn(bench: &Bench<'_>) -> Finding {
    let (key, [first, ..]) = (bench.key(), WAITERS);
    let attempt = bench.hold(&key).await?;
    is_behind(bench, &key, first, 30, 0).await?;
    is(&bench.cancel(&attempt, LONG).await?, &Vote::Granted)?;
    // It still has its place.
    is(&bench.leave_queue(&key, first).await?, &Vote::Granted)
}

pub(super) async fn the_first_two_waiters_learn_the_holder(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    let holder = bench.hold(&key).await?;
    for (waiter, seconds) in WAITERS.into_iter().zip([30, 20]) {
        let holding = place(bench, &key, waiter, seconds).await?.holding;
        let token = holding.map(|holding| holding.token);
        ensure(token.as_ref() == Some(holder.token()), format!("it is held by {token:?}"))?;
    }
    Ok(())
}

pub(super) async fn waiters_are_listed(bench: &Bench<'_>) -> Finding {
    let (key, [first, second, gone]) = (bench.key(), WAITERS);
    ensure(bench.listed(&key).await?.is_empty(), "a new key has waiters")?;
    let holder = bench.hold(&key).await?;
    let asked = bench.clock.now();
    bench.enqueue(&key, gone, Duration::from_secs(90), PATIENCE).await?;
    let in_order = bench.node.capabilities().grants == Grants::FirstCome;
    let enter = if in_order { [(first, 30), (second, 10)] } else { [(second, 10), (first, 30)] };
    for (waiter, seconds) in enter {
        place(bench, &key, waiter, seconds).await?;
    }
    // On a busy machine its patience may be over before, and a queue of it alone with it.
    let joined = bench.clock.now().since(asked) + Drift::MARGIN < PATIENCE;
    bench.clock.sleep_until(bench.clock.now() + PATIENCE + 2 * Drift::MARGIN).await;
    for _ in 0..100 {
        // A place is taken away by the process of its waiter, which may be busy.
        if !in_order || bench.listed(&key).await?.iter().all(|waiter| waiter.id != gone) {
            break;
        }
        bench.clock.sleep_until(bench.clock.now() + PATIENCE).await;
    }
    for _ in 0..2 {
        let listed = bench.listed(&key).await?;
        ensure(listed.iter().map(|waiter| waiter.id).eq([first, second]), format!("{listed:?}"))?;
        let [for_30, for_10] = [0, 1].map(|at| listed.get(at).map_or(0, |waiter| waiter.waited.as_secs()));
        let named = listed.iter().all(|waiter| waiter.context == "anna:1");
        // Who came first is served first, however long another one says that it has waited.
        let waited = in_order || ((30..90).contains(&for_30) && (10..30).contains(&for_10));
        ensure(named && waited, format!("{listed:?}"))?;
    }
    // Each waiter keeps its place, even the dead one, unless it is served for its place alone.
    let (ahead, dead) = (place(bench, &key, second, 10).await?.ahead, u32::from(!in_order));
    ensure(ahead == 1 + dead || ahead == 1 && !joined, format!("{ahead} are ahead, not {}", 1 + dead))?;
    is(&bench.release(&holder).await?, &Vote::Notified)?;
    has_turn(bench, &key, first).await
}

pub(super) async fn a_place_grants_nothing(bench: &Bench<'_>) -> Finding {
    let (key, [first, second, _]) = (bench.key(), WAITERS);
    let turn = |waiter| bench.enqueue(&key, waiter, Duration::ZERO, LONG);
    is(&turn(first).await?, &Vote::Free)?;
    bench.free(&key).await?;
    // It is the first one's turn, and the others must wait.
    is(&turn(second).await?, &Queued::new(0, None).into())?;
    bench.free(&key).await
}

pub(super) async fn a_silent_waiter_is_skipped_after_its_patience(bench: &Bench<'_>) -> Finding {
    let (key, [gone, next, _]) = (bench.key(), WAITERS);
    let holder = bench.hold(&key).await?;
    outlives_a_silent_waiter(bench, &key, gone, next).await?;
    is(&bench.release(&holder).await?, &Vote::Notified)?;
    has_turn(bench, &key, next).await
}

pub(super) async fn a_turn_that_is_not_taken_goes_to_the_next(bench: &Bench<'_>) -> Finding {
    let (key, [gone, next, _]) = (bench.key(), WAITERS);
    let holder = bench.hold(&key).await?;
    let longer = Duration::from_secs(2);
    bench.vote(Request::enqueue(key.as_str().into(), gone, longer, LONG, PATIENCE)).await?;
    is_behind(bench, &key, next, 1, 1).await?;
    let free = bench.clock.now();
    is(&bench.release(&holder).await?, &Vote::Notified)?;
    bench.until(&ask(&key, next, PATIENCE), &Vote::Free).await?;
    let waited = bench.clock.now().since(free);
    let left = waited + Drift::MARGIN >= PATIENCE;
    ensure(left, format!("the lock was reserved for the first one for {waited:?}, not for {PATIENCE:?}"))
}

/// Otherwise one that comes back would wait for the rest of a turn that it has used.
pub(super) async fn a_release_without_waiters_ends_the_turn(bench: &Bench<'_>) -> Finding {
    let (key, [first, second, _]) = (bench.key(), WAITERS);
    is(&bench.vote(ask(&key, first, LONG)).await?, &Vote::Free)?;
    let holder = bench.hold(&key).await?;
    let released = bench.release(&holder).await?;
    ensure(released != Vote::Notified, "there is no waiter, but one was notified")?;
    is(&bench.vote(ask(&key, second, LONG)).await?, &Vote::Free)
}

/// A caller of several locks asks again in its turn: rule W-9.
pub(super) async fn the_first_may_keep_its_turn(bench: &Bench<'_>) -> Finding {
    let (key, [first, next, _]) = (bench.key(), WAITERS);
    let holder = bench.hold(&key).await?;
    are_first(bench, &key, [first, next]).await?;
    is(&bench.release(&holder).await?, &Vote::Notified)?;
    let elapsed = Duration::from_secs(2);
    let again = || bench.vote(Request::enqueue(key.as_str().into(), first, elapsed, LONG, PATIENCE));
    let mut kept = bench.clock.now();
    for _ in 0..6 {
        let (asked, turn_began) = (bench.clock.now(), kept);
        // Some nodes take it out of the queue for its turn.
        if again().await? == Vote::Free {
            again().await?;
        }
        kept = asked;
        if bench.vote(ask(&key, next, PATIENCE)).await? == Vote::Free {
            // Where the machine or its disk stood still, the turn ended before it was asked for again.
            let stalled = bench.clock.now().since(turn_began) + Drift::MARGIN >= PATIENCE;
            return ensure(stalled, "another waiter was let in before the first");
        }
        bench.clock.sleep_until(bench.clock.now() + PATIENCE / 2).await;
    }
    Ok(())
}

fn ask(key: &str, waiter: WaiterId, turn: Duration) -> Request {
    Request::enqueue(key.into(), waiter, Duration::ZERO, LONG, turn)
}

pub(super) async fn the_last_reader_notifies_the_first_waiter(bench: &Bench<'_>) -> Finding {
    let (key, [first, second, _]) = (bench.key(), WAITERS);
    let (one, other) = (reader(bench, &key), reader(bench, &key));
    bench.acquire(&one, LONG).await?;
    bench.acquire(&other, LONG).await?;
    are_first(bench, &key, [first, second]).await?;
    is(&bench.release(&one).await?, &Vote::Granted)?;
    is_behind(bench, &key, first, 2, 0).await?;
    is(&bench.release(&other).await?, &Vote::Notified)?;
    has_turn(bench, &key, first).await
}

pub(super) async fn a_release_of_several_notifies_the_first_waiter_of_each(bench: &Bench<'_>) -> Finding {
    let (both, [first, second, _]) = (both(bench), WAITERS);
    bench.acquire(&both, LONG).await?;
    for key in both.keys() {
        are_first(bench, key, [first, second]).await?;
    }
    is(&bench.release(&both).await?, &Vote::Notified)?;
    for key in both.keys() {
        has_turn(bench, key, first).await?;
    }
    Ok(())
}

pub(super) async fn leaving_a_turn_notifies_the_next_waiter(bench: &Bench<'_>) -> Finding {
    let (key, [first, second, _]) = (bench.key(), WAITERS);
    let holder = bench.hold(&key).await?;
    are_first(bench, &key, [first, second]).await?;
    is(&bench.release(&holder).await?, &Vote::Notified)?;
    is(&bench.leave_queue(&key, first).await?, &Vote::Notified)?;
    has_turn(bench, &key, second).await
}

pub(super) async fn a_waiter_that_left_is_not_notified(bench: &Bench<'_>) -> Finding {
    let (key, [first, second, _]) = (bench.key(), WAITERS);
    let holder = bench.hold(&key).await?;
    are_first(bench, &key, [first, second]).await?;
    is(&bench.leave_queue(&key, first).await?, &Vote::Granted)?;
    is(&bench.leave_queue(&key, first).await?, &Vote::Free)?;
    is_behind(bench, &key, second, 1, 0).await?;
    is(&bench.release(&holder).await?, &Vote::Notified)?;
    has_turn(bench, &key, second).await
}

pub(super) async fn a_plain_acquisition_ignores_the_queue(bench: &Bench<'_>) -> Finding {
    let (key, [first, ..]) = (bench.key(), WAITERS);
    let (holder, hasty) = (bench.claim(&key), bench.claim(&key));
    bench.acquire(&holder, LONG).await?;
    is_behind(bench, &key, first, 2, 0).await?;
    bench.release(&holder).await?;
    is(&bench.acquire(&hasty, LONG).await?, &Vote::Granted)?;
    is_behind(bench, &key, first, 2, 0).await
}

pub(super) async fn positions_far_from_the_front_are_not_distinguished(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    bench.acquire(&bench.claim(&key), LONG).await?;
    for place in 0..MOST_PLACES + 3 {
        let waiter = WaiterId::new(u64::from(place));
        is_behind(bench, &key, waiter, 60 - u64::from(place), place.min(MOST_PLACES)).await?;
    }
    Ok(())
}

/// Whatever they say of the time for which they have waited.
pub(super) async fn waiters_are_served_in_order_of_entry(bench: &Bench<'_>) -> Finding {
    let (key, [first, second, third]) = (bench.key(), WAITERS);
    let holder = bench.hold(&key).await?;
    for (waiter, seconds, before) in [(first, 10, 0), (second, 30, 1), (third, 20, 2), (first, 10, 0)] {
        is_behind(bench, &key, waiter, seconds, before).await?;
    }
    is(&bench.release(&holder).await?, &Vote::Notified)?;
    for (waiter, next) in [(first, second), (second, third)] {
        has_turn(bench, &key, waiter).await?;
        let claim = in_place_of(bench, &key, waiter);
        is(&bench.acquire(&claim, LONG).await?, &Vote::Granted)?;
        is_behind(bench, &key, next, 0, 0).await?;
        is(&bench.release(&claim).await?, &Vote::Notified)?;
    }
    has_turn(bench, &key, third).await
}

pub(super) async fn a_silent_waiter_loses_its_place(bench: &Bench<'_>) -> Finding {
    let (key, [silent, next, _]) = (bench.key(), WAITERS);
    bench.hold(&key).await?;
    outlives_a_silent_waiter(bench, &key, silent, next).await?;
    is_behind(bench, &key, silent, 60, 1).await?;
    is_behind(bench, &key, next, 1, 0).await
}

pub(super) async fn a_plain_acquisition_does_not_pass_the_queue(bench: &Bench<'_>) -> Finding {
    let (key, [first, ..]) = (bench.key(), WAITERS);
    let (holder, hasty) = (bench.claim(&key), bench.claim(&key));
    bench.acquire(&holder, LONG).await?;
    is_behind(bench, &key, first, 2, 0).await?;
    bench.release(&holder).await?;
    for hint in [bench.fence_hint(), bench.contended_draw()] {
        is(&bench.vote(acquisition(&hasty, LONG, hint)).await?, &Vote::NotYourTurn)?;
    }
    bench.free(&key).await?;
    has_turn(bench, &key, first).await?;
    is(&bench.leave_queue(&key, first).await?, &Vote::Granted)?;
    is(&bench.acquire(&hasty, LONG).await?, &Vote::Granted)
}

pub(super) async fn a_place_is_taken_by_its_own_attempt(bench: &Bench<'_>) -> Finding {
    let (key, [first, second, _]) = (bench.key(), WAITERS);
    let (holder, one, other) =
        (bench.claim(&key), in_place_of(bench, &key, first), in_place_of(bench, &key, second));
    bench.acquire(&holder, LONG).await?;
    are_first(bench, &key, [first, second]).await?;
    bench.release(&holder).await?;
    is(&bench.acquire(&other, LONG).await?, &Vote::NotYourTurn)?;
    is(&bench.acquire(&one, LONG).await?, &Vote::Granted)?;
    bench.held(&one, LONG).await?;
    // Its place is that of the holder now: it does not end with the queue, nor without it.
    is(&bench.leave_queue(&key, first).await?, &Vote::Free)?;
    bench.held(&one, LONG).await?;
    is(&bench.cancel(&one, LONG).await?, &Vote::Granted)?;
    has_turn(bench, &key, second).await
}

pub(super) async fn no_key_is_restored_before_a_waiter(bench: &Bench<'_>) -> Finding {
    let (key, [first, ..]) = (bench.key(), WAITERS);
    let holder = bench.hold(&key).await?;
    is_behind(bench, &key, first, 2, 0).await?;
    bench.remove(&key).await?;
    is(&bench.renew(&holder, LONG).await?, &Vote::NotYourTurn)?;
    has_turn(bench, &key, first).await
}

pub(super) async fn several_places_are_taken_together(bench: &Bench<'_>) -> Finding {
    let (both, [first, second, _]) = (both(bench), WAITERS);
    let keys: Vec<Arc<str>> = both.keys().cloned().collect();
    let holder = bench.claim(both.key());
    bench.acquire(&holder, LONG).await?;
    for key in &keys {
        bench.enqueue(key, first, LONG, LONG).await?;
        bench.enqueue(key, second, LONG, LONG).await?;
    }
    bench.release(&holder).await?;
    let [one, other] = [first, second].map(|waiter| Arc::new(Claim::clone(&both).in_place_of(waiter)));
    is(&bench.acquire(&other, LONG).await?, &Vote::NotYourTurn)?;
    is(&bench.acquire(&one, LONG).await?, &Vote::Granted)?;
    is(&bench.release(&one).await?, &Vote::Notified)?;
    for key in &keys {
        has_turn(bench, key, second).await?;
    }
    Ok(())
}

/// Returns a new attempt to get `key` that may take the place of this waiter.
pub(super) fn in_place_of(bench: &Bench<'_>, key: &str, waiter: WaiterId) -> Arc<Claim> {
    Arc::new(Claim::clone(&bench.claim(key)).in_place_of(waiter))
}
