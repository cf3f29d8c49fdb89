//! Waiting for the lock: it can be interrupted, and says who is in the way.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use quorlock::AcquireError;

use crate::failure::Failure;
use crate::logging::HeldBack;
use crate::report::{Report, progress};
use crate::runtime::sleep;
use crate::signals::Signals;
use crate::wanted::{Acquired, Wanted};
use crate::width;

/// Acquires what is `wanted`, for a `ttl` of which most is left.
///
/// A signal that asks to end ends the wait at once: [`Failure::Interrupted`], with `what` was
/// interrupted. The attempt cleans up after itself; whoever closes the coordinator waits for that.
pub(crate) async fn acquire(
    (wanted, ttl): (&Wanted, Duration),
    signals: &mut Signals,
    report: Report,
    what: &'static str,
) -> Result<Result<Acquired, AcquireError>, Failure> {
    let _log = HeldBack::begin();
    let acquired = tokio::select! {
        biased;
        signal = signals.next_end() => return Err(Failure::Interrupted { what, signal }),
        acquired = acquire_for(wanted, ttl) => acquired,
        never = tell(wanted, report) => match never {},
        never = tell_later() => match never {},
    };
    if acquired.is_ok() {
        HeldBack::tell();
    }
    Ok(acquired)
}

/// A lease that the holder before has offered lives for about a second, until it is renewed. Nothing is begun before
/// that.
async fn acquire_for(wanted: &Wanted, ttl: Duration) -> Result<Acquired, AcquireError> {
    loop {
        let acquired = wanted.acquire().await?;
        let lease = &acquired.lease;
        if lease.remaining() > ttl / 2 || lease.renew().await.is_ok() {
            return Ok(acquired);
        }
    }
}

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
async fn tell(wanted: &Wanted, report: Report) -> Infallible {
    if !report.may_show_progress() {
        return std::future::pending().await;
    }
    sleep(FIRST_AFTER).await;
    let _line = Line;
    loop {
        let text = format!("waiting: {}", wanted.in_the_way().await);
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
