//! The loops of a worker's tasks.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use quorlock::{
    Wait,
    runtime::{Clock as _, SystemClock},
};
use quorlock_servers::SeededRng;

use super::Worker;
use super::hold::Attempt;

/// An operation of a contending task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Short,
    Long,
    OnlyIfFree,
    Cancelled,
    Nested,
    Dropped,
    Trusting,
    Reading,
    Downgraded,
    Several,
    Permit,
    Differing,
    Leading,
}

/// The timeout for the own, uncontended lock.
const OWN_PATIENCE: Duration = Duration::from_secs(2);

/// Performs random operations on contended locks.
pub(super) async fn contend(worker: Arc<Worker>, rng: SeededRng) -> io::Result<()> {
    let load = &worker.orders.load;
    let acts = [
        (load.short, Act::Short),
        (load.long, Act::Long),
        (load.only_if_free, Act::OnlyIfFree),
        (load.cancelled, Act::Cancelled),
        (load.nested, Act::Nested),
        (load.dropped, Act::Dropped),
        (load.trusting, Act::Trusting),
        (load.reading, Act::Reading),
        (load.downgraded, Act::Downgraded),
        (load.several, Act::Several),
        (load.permits, Act::Permit),
        (load.differing, Act::Differing),
        (load.leading, Act::Leading),
    ];
    while !worker.is_stopping()
        && let Some(act) = rng.weighted(&acts)
    {
        perform(&worker, &rng, act).await?;
        pause(&rng, 1, 10).await;
    }
    Ok(())
}

/// Acquires and releases the own lock, to measure the latency of an uncontended lock.
pub(super) async fn probe(worker: Arc<Worker>, rng: SeededRng) -> io::Result<()> {
    while !worker.is_stopping() {
        if let Some(holding) = Attempt::at_own(&worker).acquire(Wait::UpTo(OWN_PATIENCE)).await {
            worker.counts.freshen(holding.invoked());
            holding.release().await;
        }
        pause(&rng, 0, 2).await;
    }
    Ok(())
}

async fn perform(worker: &Arc<Worker>, rng: &SeededRng, act: Act) -> io::Result<()> {
    let locks = worker.orders.locks.len();
    let number = rng.below(locks);
    let ttl = worker.orders.ttl;
    let semaphore = rng.below(worker.orders.semaphores.len());
    let attempt = match act {
        Act::Permit => Attempt::at_permit(worker, semaphore, 0),
        Act::Differing => Attempt::at_permit(worker, semaphore, 1),
        Act::Leading => Attempt::at_lead(worker, rng.below(worker.orders.elections.len())),
        Act::Short
        | Act::Long
        | Act::OnlyIfFree
        | Act::Cancelled
        | Act::Nested
        | Act::Dropped
        | Act::Trusting
        | Act::Reading
        | Act::Several
        | Act::Downgraded => Attempt::at(worker, number),
    };
    let wait = Wait::UpTo(ttl * 2);
    let acquired = match act {
        Act::OnlyIfFree => attempt.acquire(Wait::Never).await,
        Act::Cancelled => attempt.acquire_for(rng.between(Duration::ZERO, ttl / 20)).await,
        Act::Reading => attempt.sharing().acquire(wait).await,
        Act::Several => {
            // In any order, and overlapping with the locks of other tasks.
            let others = (0..=rng.below(2)).map(|_| rng.below(locks)).collect::<Vec<_>>();
            attempt.and(&others).acquire(wait).await
        }
        Act::Permit | Act::Leading if rng.below(10) == 0 => {
            attempt.acquire_for(rng.between(Duration::ZERO, ttl / 20)).await
        }
        Act::Short
        | Act::Long
        | Act::Nested
        | Act::Dropped
        | Act::Trusting
        | Act::Downgraded
        | Act::Permit
        | Act::Differing
        | Act::Leading => attempt.acquire(wait).await,
    };
    let Some(mut holding) = acquired else { return Ok(()) };
    match act {
        Act::Short | Act::OnlyIfFree | Act::Cancelled | Act::Several => {
            holding.work(rng.between(Duration::from_millis(1), Duration::from_millis(15))).await?;
            holding.release().await;
        }
        Act::Long => {
            holding.work(rng.between(ttl, ttl * 2)).await?;
            holding.release().await;
        }
        Act::Trusting => {
            holding.work_trusting(rng.between(ttl / 2, ttl)).await?;
            holding.release().await;
        }
        Act::Dropped => {
            holding.work(Duration::from_millis(2)).await?;
            holding.forget();
        }
        // Occasionally long enough to be renewed.
        Act::Permit | Act::Differing | Act::Leading => {
            let longest = if rng.below(20) == 0 { ttl * 2 } else { ttl / 20 };
            holding.work(rng.between(Duration::from_millis(1), longest)).await?;
            if rng.below(20) == 0 { holding.forget() } else { holding.release().await }
        }
        Act::Reading => {
            holding.read(rng.between(Duration::from_millis(1), ttl / 4)).await;
            holding.release().await;
        }
        Act::Downgraded => {
            holding.work(rng.between(Duration::from_millis(1), Duration::from_millis(15))).await?;
            if holding.downgrade().await {
                holding.read(rng.between(Duration::from_millis(1), ttl)).await;
                holding.release().await;
            }
        }
        // Always in ascending order, which prevents deadlocks.
        Act::Nested => {
            let inner = number + 1 + rng.below(locks.saturating_sub(number + 1));
            // Both waits together take longer than the director waits for the end.
            if inner < locks
                && !worker.is_stopping()
                && let Some(mut inner) = Attempt::at(worker, inner).acquire(Wait::UpTo(ttl)).await
            {
                inner.work(Duration::from_millis(5)).await?;
                inner.release().await;
            }
            holding.work(Duration::from_millis(1)).await?;
            holding.release().await;
        }
    }
    Ok(())
}

pub(super) async fn pause(rng: &SeededRng, least: u64, most: u64) {
    let clock = SystemClock::default();
    let pause = rng.between(Duration::from_millis(least), Duration::from_millis(most));
    clock.sleep_until(clock.now() + pause).await;
}
