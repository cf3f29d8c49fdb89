//! Clauses about the line of those who wait for a key.

use std::time::Duration;

use quorlock::protocol::{Drift, Ticket};
use quorlock::{Request, Vote};

use super::bench::{Bench, Finding, LONG, ensure, held_by, is};

/// Worth waiting until it is over.
const PATIENCE: Duration = Duration::from_millis(50);

/// Three places in a line, the first first.
fn places() -> [Ticket; 3] {
    // Of equal times, the smaller name comes first.
    [Ticket::new(1_000_000, 7), Ticket::new(2_000_000, 3), Ticket::new(2_000_000, 4)]
}

pub(super) async fn those_who_wait_come_in_the_order_of_their_tickets(bench: &Bench<'_>) -> Finding {
    let key = bench.key();
    let [holder, one, two, three] = [(); 4].map(|()| bench.claim(&key));
    let [first, second, third] = places();
    bench.acquire(&holder, LONG).await?;
    for (claim, ticket) in [(&three, third), (&one, first), (&two, second)] {
        held_by(&bench.acquire_in_turn(claim, ticket, LONG).await?, holder.token(), LONG)?;
    }
    bench.release(&holder).await?;
    is(&bench.acquire_in_turn(&three, third, LONG).await?, &Vote::Behind)?;
    is(&bench.acquire_in_turn(&two, second, LONG).await?, &Vote::Behind)?;
    is(&bench.acquire_in_turn(&one, first, LONG).await?, &Vote::Granted)?;
    bench.held(&one, LONG).await?;
    bench.release(&one).await?;
    is(&bench.acquire_in_turn(&three, third, LONG).await?, &Vote::Behind)?;
    is(&bench.acquire_in_turn(&two, second, LONG).await?, &Vote::Granted)?;
    bench.release(&two).await?;
    is(&bench.acquire_in_turn(&three, third, LONG).await?, &Vote::Granted)
}

pub(super) async fn who_stops_asking_is_passed_over_after_their_patience(bench: &Bench<'_>) -> Finding {
    let (key, [first_place, second_place, _]) = (bench.key(), places());
    let (holder, gone, next) = (bench.claim(&key), bench.claim(&key), bench.claim(&key));
    bench.acquire(&holder, LONG).await?;
    let asked = bench.clock.now();
    bench.acquire_in_turn(&gone, first_place, PATIENCE).await?;
    bench.release(&holder).await?;
    let (ttl, ticket, patience, fence_hint) = (LONG, second_place, LONG, Some(bench.fence_hint()));
    bench.until_granted(&Request::AcquireInTurn { claim: next, ttl, ticket, patience, fence_hint }).await?;
    let waited = bench.clock.now().since(asked);
    // Servers count whole milliseconds, which is what the margin is for.
    let kept = waited + Drift::MARGIN >= PATIENCE;
    ensure(kept, format!("one with a patience of {PATIENCE:?} was passed over after {waited:?}"))
}

pub(super) async fn a_free_lock_waits_a_second_for_who_has_stopped_asking(bench: &Bench<'_>) -> Finding {
    let (key, [first_place, second_place, _]) = (bench.key(), places());
    let (holder, gone, next) = (bench.claim(&key), bench.claim(&key), bench.claim(&key));
    bench.acquire(&holder, LONG).await?;
    bench.acquire_in_turn(&gone, first_place, LONG).await?;
    bench.clock.sleep_until(bench.clock.now() + PATIENCE).await;
    bench.release(&holder).await?;
    let free = bench.clock.now();
    let (ttl, ticket, patience, fence_hint) = (LONG, second_place, LONG, Some(bench.fence_hint()));
    bench.until_granted(&Request::AcquireInTurn { claim: next, ttl, ticket, patience, fence_hint }).await?;
    let waited = bench.clock.now().since(free);
    let second = Duration::from_secs(1);
    ensure(
        waited + Drift::MARGIN >= second && waited < LONG / 2,
        format!("somebody who had stopped asking was passed over after {waited:?}, not after {second:?}"),
    )
}

pub(super) async fn who_asks_once_joins_no_line(bench: &Bench<'_>) -> Finding {
    let (key, [first_place, second_place, third_place]) = (bench.key(), places());
    let [holder, once, next, last] = [(); 4].map(|()| bench.claim(&key));
    bench.acquire(&holder, LONG).await?;
    held_by(&bench.acquire_in_turn(&once, first_place, Duration::ZERO).await?, holder.token(), LONG)?;
    is(&bench.leave_line(&key, first_place).await?, &Vote::Free)?;
    bench.acquire_in_turn(&next, second_place, LONG).await?;
    // The line that others stand in stays as it is, wherever in it the place would be.
    held_by(&bench.acquire_in_turn(&once, first_place, Duration::ZERO).await?, holder.token(), LONG)?;
    held_by(&bench.acquire_in_turn(&once, third_place, Duration::ZERO).await?, holder.token(), LONG)?;
    bench.release(&holder).await?;
    is(&bench.acquire_in_turn(&last, third_place, Duration::ZERO).await?, &Vote::Behind)?;
    is(&bench.acquire_in_turn(&next, second_place, LONG).await?, &Vote::Granted)?;
    bench.release(&next).await?;
    is(&bench.acquire_in_turn(&last, third_place, Duration::ZERO).await?, &Vote::Granted)
}

pub(super) async fn leaving_the_line_lets_the_next_one_in(bench: &Bench<'_>) -> Finding {
    let (key, [first_place, second_place, _]) = (bench.key(), places());
    let (holder, first, next) = (bench.claim(&key), bench.claim(&key), bench.claim(&key));
    bench.acquire(&holder, LONG).await?;
    bench.acquire_in_turn(&first, first_place, LONG).await?;
    bench.release(&holder).await?;
    is(&bench.acquire_in_turn(&next, second_place, LONG).await?, &Vote::Behind)?;
    is(&bench.leave_line(&key, first_place).await?, &Vote::Granted)?;
    is(&bench.leave_line(&key, first_place).await?, &Vote::Free)?;
    is(&bench.acquire_in_turn(&next, second_place, LONG).await?, &Vote::Granted)?;
    // Who was let in waits no longer.
    is(&bench.leave_line(&key, second_place).await?, &Vote::Free)?;
    bench.held(&next, LONG).await.map(drop)
}

pub(super) async fn a_held_key_excludes_even_the_first_in_the_line(bench: &Bench<'_>) -> Finding {
    let (key, [place, ..]) = (bench.key(), places());
    let (holder, first) = (bench.claim(&key), bench.claim(&key));
    bench.acquire(&holder, LONG).await?;
    for _ in 0..2 {
        held_by(&bench.acquire_in_turn(&first, place, LONG).await?, holder.token(), LONG)?;
    }
    bench.held(&holder, LONG).await.map(drop)
}

pub(super) async fn the_own_token_is_granted_again_in_turn(bench: &Bench<'_>) -> Finding {
    let (key, [first_place, second_place, _]) = (bench.key(), places());
    let (first, other) = (bench.claim(&key), bench.claim(&key));
    is(&bench.acquire_in_turn(&first, second_place, LONG).await?, &Vote::Granted)?;
    held_by(&bench.acquire_in_turn(&other, first_place, LONG).await?, first.token(), LONG)?;
    is(&bench.acquire_in_turn(&first, second_place, LONG).await?, &Vote::Granted)?;
    bench.held(&first, LONG).await.map(drop)
}

pub(super) async fn a_plain_acquisition_ignores_the_line(bench: &Bench<'_>) -> Finding {
    let (key, [place, ..]) = (bench.key(), places());
    let (holder, first, hasty) = (bench.claim(&key), bench.claim(&key), bench.claim(&key));
    bench.acquire(&holder, LONG).await?;
    bench.acquire_in_turn(&first, place, LONG).await?;
    bench.release(&holder).await?;
    is(&bench.acquire(&hasty, LONG).await?, &Vote::Granted)?;
    held_by(&bench.acquire_in_turn(&first, place, LONG).await?, hasty.token(), LONG).map(drop)
}
