//! Waiting for the lock: it can be interrupted, and says who is in the way.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::lock::Waiting;

use crate::failure::Failure;
use crate::logging::HeldBack;
use crate::report::{Report, progress};
use crate::runtime::sleep;
use crate::signals::Signals;
use crate::wanted::{Acquired, Refusal, Wanted};
use crate::width;

/// Acquires what is `wanted`, for a `ttl` of which most is left.
///
/// A signal that asks to end ends the wait at once: [`Failure::Interrupted`], with `what` was
/// interrupted. The attempt cleans up after itself; whoever closes the coordinator waits for that.
pub(crate) async fn acquire(
    (wanted, ttl): (&Wanted, Duration),
    place: &Place,
    signals: &mut Signals,
    report: Report,
    what: &'static str,
) -> Result<Result<Acquired, Refusal>, Failure> {
    let _log = HeldBack::begin();
    let acquired = tokio::select! {
        biased;
        signal = signals.next_end() => return Err(Failure::Interrupted { what, signal }),
        acquired = acquire_for(wanted, ttl) => acquired,
        never = tell(wanted, place, report) => match never {},
        never = tell_later() => match never {},
    };
    if acquired.is_ok() {
        HeldBack::tell();
    }
    Ok(acquired)
}

/// A lease that the holder before has offered lives for about a second, until it is renewed. Nothing is begun before
/// that.
async fn acquire_for(wanted: &Wanted, ttl: Duration) -> Result<Acquired, Refusal> {
    loop {
        let acquired = wanted.acquire().await?;
        if acquired.remaining() > ttl / 2 || acquired.renew().await.is_ok() {
            return Ok(acquired);
        }
    }
}

/// The place of this process in the queue of those that wait, as a node tells it. It costs a request now and then,
/// and so is asked for where it is shown.
#[derive(Clone, Default)]
pub(crate) struct Place {
    /// How many come before, and one more; 0 while that is not known.
    number: Option<Arc<AtomicU64>>,
}

impl Place {
    /// As a line of the `report` is to show it.
    pub(crate) fn shown_by(report: Report) -> Place {
        Place { number: report.may_show_progress().then(Arc::default) }
    }

    /// Whether it is shown at all.
    pub(crate) fn is_shown(&self) -> bool {
        self.number.is_some()
    }

    /// Notes what is shown while waiting.
    pub(crate) fn note(&self, waiting: &Waiting) {
        if let Some(number) = &self.number {
            number.store(waiting.processes.map_or(0, |before| u64::from(before) + 1), Ordering::Relaxed);
        }
    }
}

/// What follows the word `waiting`: nothing where the place is not known.
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

/// A node counts no more processes than eight before one.
const MOST: u64 = 9;

/// Whoever waits for long is told why meanwhile.
async fn tell_later() -> Infallible {
    sleep(AGAIN_AFTER).await;
    HeldBack::tell();
    std::future::pending().await
}

/// Most locks are free, and then nothing is worth saying.
const FIRST_AFTER: Duration = Duration::from_millis(500);
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Keeps a line on the terminal up to date.
async fn tell(wanted: &Wanted, place: &Place, report: Report) -> Infallible {
    if !report.may_show_progress() {
        return std::future::pending().await;
    }
    sleep(FIRST_AFTER).await;
    let _line = Line;
    loop {
        let text = format!("waiting{place}: {}", wanted.in_the_way().await);
        // A longer line would wrap, and could not be taken back.
        let width = width::of(io::stderr()).unwrap_or(80).saturating_sub(1);
        let cut: String = text.chars().take(width).collect();
        progress(&cut);
        sleep(AGAIN_AFTER).await;
    }
}

/// A line on the terminal, gone when this is dropped.
struct Line;

impl Drop for Line {
    fn drop(&mut self) {
        progress("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_by_how_many_come_before() {
        let told = |number| Place { number: Some(Arc::new(AtomicU64::new(number))) }.to_string();
        assert_eq!(told(0), "");
        assert_eq!(told(1), " (first in the queue)");
        assert_eq!(told(2), " (behind 1 other process)");
        assert_eq!(told(8), " (behind 7 other processes)");
        assert_eq!(told(9), " (behind 8 or more other processes)");
        assert_eq!(Place::default().to_string(), "", "it is not shown");
    }
}
