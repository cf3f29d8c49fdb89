//! Waits for the lock, interruptibly, and shows who holds it.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::{LossReason, RenewError, Wait, lock::Waiting};

use crate::failure::Failure;
use crate::logging::HeldBack;
use crate::marks::Marks;
use crate::report::{Report, progress};
use crate::runtime::{now, sleep};
use crate::signals::Signals;
use crate::wanted::{Acquired, Refusal, Wanted};

/// Acquires what is `wanted`, within `wait`, with more than half of the `ttl` left. Takes back meanwhile what holders on this
/// host left that have died.
///
/// A terminating signal ends the wait immediately with [`Failure::Interrupted`] and `what` was interrupted.
/// The attempt cleans up after itself; closing the coordinator waits for that.
pub(crate) async fn acquire(
    (wanted, ttl, wait): (&Wanted, Duration, Wait),
    (place, marks): (&Place, &Marks),
    signals: &mut Signals,
    report: Report,
    what: &'static str,
) -> Result<Result<Acquired, Refusal>, Failure> {
    let acquired = async {
        tokio::select! {
            biased;
            acquired = acquire_for(wanted, ttl, wait) => acquired,
            never = marks.take_back() => match never {},
        }
    };
    interruptibly(acquired, (wanted, place), signals, report, what).await
}

/// Waits for what is to be `done` about the lock that is `shown`, with the place in its queue.
///
/// A terminating signal ends the wait immediately with [`Failure::Interrupted`] and `what` was interrupted.
pub(crate) async fn interruptibly<T, E>(
    done: impl Future<Output = Result<T, E>>,
    (shown, place): (&Wanted, &Place),
    signals: &mut Signals,
    report: Report,
    what: &'static str,
) -> Result<Result<T, E>, Failure> {
    let _log = HeldBack::begin();
    let done = tokio::select! {
        biased;
        signal = signals.next_end() => return Err(Failure::Interrupted { what, signal }),
        done = done => done,
        never = report_wait(shown, place, report) => match never {},
        never = print_held_back_later() => match never {},
    };
    if done.is_ok() {
        HeldBack::print();
    }
    Ok(done)
}

/// A lease that the holder before has offered may have a third of its TTL left, less than the time that the command needs
/// to end. Nothing is begun before it is renewed; if that fails, the rest of the wait goes on.
async fn acquire_for(wanted: &Wanted, ttl: Duration, wait: Wait) -> Result<Acquired, Refusal> {
    let since = now();
    let mut left = wait;
    loop {
        let acquired = wanted.acquire(left).await?;
        if acquired.remaining() > ttl / 2 {
            return Ok(acquired);
        }
        let Err(error) = acquired.renew().await else { return Ok(acquired) };
        if matches!(&error, RenewError::Lost(lost) if lost.reason == LossReason::MaxHold) {
            // The next one would be over as soon.
            return Err(Refusal::NotRenewed(error));
        }
        left = match wait {
            Wait::UpTo(longest) => Wait::UpTo(longest.saturating_sub(now().since(since))),
            Wait::Never | Wait::Forever | _ => wait,
        };
        if matches!(left, Wait::Never | Wait::UpTo(Duration::ZERO)) {
            return Err(Refusal::NotRenewed(error));
        }
    }
}

/// The place of this process in the queue, as a node reports it. Asked for only if it is shown, since it costs a
/// request now and then.
#[derive(Clone, Default)]
pub(crate) struct Place {
    /// 1 for the first in the queue; 0 while unknown.
    number: Option<Arc<AtomicU64>>,
}

impl Place {
    /// Returns a place that is tracked if `report` shows progress.
    pub(crate) fn shown_by(report: Report) -> Place {
        Place { number: report.may_show_progress().then(Arc::default) }
    }

    /// Whether it is shown.
    pub(crate) fn is_shown(&self) -> bool {
        self.number.is_some()
    }

    /// Records the place.
    pub(crate) fn note(&self, waiting: &Waiting) {
        if let Some(number) = &self.number {
            number.store(waiting.processes.map_or(0, |before| u64::from(before) + 1), Ordering::Relaxed);
        }
    }
}

/// Follows the word `waiting`; empty while the place is unknown.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number.as_ref().map_or(0, |number| number.load(Ordering::Relaxed)) {
            0 => Ok(()),
            1 => f.write_str(" (first in the queue)"),
            2 => f.write_str(" (behind 1 other process)"),
            number @ ..MOST => write!(f, " (behind {} other processes)", number - 1),
            _ => write!(f, " (behind {} or more other processes)", MOST - 1),
        }
    }
}

/// A node counts at most eight processes in front of one.
const MOST: u64 = 9;

/// Prints the events held back once the wait has lasted for a while.
async fn print_held_back_later() -> Infallible {
    sleep(AGAIN_AFTER).await;
    HeldBack::print();
    std::future::pending().await
}

/// The delay before the progress line: most locks are free.
const FIRST_AFTER: Duration = Duration::from_millis(500);
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Updates the progress line on the terminal.
async fn report_wait(wanted: &Wanted, place: &Place, report: Report) -> Infallible {
    if !report.may_show_progress() {
        return std::future::pending().await;
    }
    sleep(FIRST_AFTER).await;
    let _line = Line;
    loop {
        progress(&format!("waiting{place}: {}", wanted.in_the_way().await));
        sleep(AGAIN_AFTER).await;
    }
}

/// The progress line, cleared on drop.
struct Line;

impl Drop for Line {
    fn drop(&mut self) {
        progress("");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use quorlock::Coordinator;
    use quorlock::node::{NodeError, Request};
    use quorlock_testkit::{MemoryNode, WrappedNode};

    use super::*;

    /// Refuses renewals, until it was asked for the lock so often that the wait must have been forgotten.
    fn without_renewals(name: &str) -> WrappedNode {
        const MOST: usize = 500;
        let asked = AtomicUsize::new(0);
        WrappedNode::new(MemoryNode::new(name)).on_request(move |request, responder, inner| {
            let count = usize::from(matches!(&*request, Request::Acquire { .. }));
            let asked = asked.fetch_add(count, Ordering::Relaxed);
            if matches!(&*request, Request::Renew { .. }) && asked < MOST {
                responder.send(Err(NodeError::Disconnected { reason: "it was reset".into() }));
            } else {
                inner.ask(request, responder);
            }
        })
    }

    #[tokio::test]
    async fn a_renewal_that_fails_does_not_begin_the_wait_anew() {
        let nodes = ["a", "b", "c"].map(without_renewals);
        let coordinator = Coordinator::builder().custom_nodes(nodes).build().unwrap();
        let wanted = Wanted::Lock(coordinator.lock("job").fencing(quorlock::Fencing::On));
        // Longer than any lease: each has too little left, as an offered one.
        let ttl = Duration::from_secs(3600);
        let refused = acquire_for(&wanted, ttl, Wait::Never).await.err().expect("no renewal succeeds");
        assert!(matches!(refused, Refusal::NotRenewed(_)), "{refused}");
        let outcome = acquire_for(&wanted, ttl, Wait::UpTo(Duration::from_millis(50))).await;
        assert!(outcome.is_err(), "it went on until renewals succeeded");
    }

    #[tokio::test]
    async fn a_lease_that_is_over_before_it_begins_is_not_asked_for_again_and_again() {
        let asked = Arc::<AtomicUsize>::default();
        let counted = asked.clone();
        let node = WrappedNode::new(MemoryNode::new("a")).on_request(move |request, responder, inner| {
            counted.fetch_add(usize::from(matches!(&*request, Request::Acquire { .. })), Ordering::Relaxed);
            inner.ask(request, responder);
        });
        let coordinator = Coordinator::builder().custom_nodes([node]).build().unwrap();
        let lock = coordinator.lock("job").max_hold(Duration::from_nanos(1));
        let wanted = Wanted::Lock(lock.fencing(quorlock::Fencing::On));
        let wait = Wait::UpTo(Duration::from_millis(50));
        let refused =
            acquire_for(&wanted, Duration::from_secs(30), wait).await.err().expect("it is over").to_string();
        assert!(refused.contains("max_hold"), "{refused}");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_place_shows_how_many_are_in_front() {
        let line_for = |number| Place { number: Some(Arc::new(AtomicU64::new(number))) }.to_string();
        assert_eq!(line_for(0), "");
        assert_eq!(line_for(1), " (first in the queue)");
        assert_eq!(line_for(2), " (behind 1 other process)");
        assert_eq!(line_for(8), " (behind 7 other processes)");
        assert_eq!(line_for(9), " (behind 8 or more other processes)");
        assert_eq!(Place::default().to_string(), "", "it is not shown");
    }
}
