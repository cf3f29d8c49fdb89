//! Waits for a condition instead of sleeping.

use std::io;
use std::time::Duration;

use quorlock::runtime::{Clock, SystemClock};

/// How often a condition is checked: seldom enough not to load a busy machine.
const EVERY: Duration = Duration::from_millis(2);

/// Waits until `condition` is true, and checks it at least once.
///
/// `deadline` is real time, even if the runtime's time is paused, because most conditions in tests depend on
/// another process. A paused runtime advances its time between two checks.
///
/// # Errors
///
/// [`io::ErrorKind::TimedOut`], naming `what` did not happen.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let mut looks = 0;
/// quorlock_testkit::eventually("the third look", Duration::from_secs(10), async || {
///     looks += 1;
///     looks == 3
/// })
/// .await
/// # }
/// ```
pub async fn eventually(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> bool,
) -> io::Result<()> {
    find_eventually(what, deadline, async || condition().await.then_some(())).await
}

/// Like [`eventually`], for a condition that yields a value.
///
/// # Errors
///
/// [`io::ErrorKind::TimedOut`], naming `what` did not happen.
pub async fn find_eventually<T>(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> io::Result<T> {
    let clock = SystemClock::default();
    let end = clock.now() + deadline;
    loop {
        if let Some(found) = condition().await {
            return Ok(found);
        }
        if clock.now() >= end {
            let waited = humantime::format_duration(deadline);
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("timed out after {waited} waiting for {what}"),
            ));
        }
        pause().await;
    }
}

/// Pauses between two checks.
pub(crate) async fn pause() {
    let clock = SystemClock::default();
    clock.sleep_until(clock.now() + EVERY).await;
}

/// Runs `work` with a timeout in real time.
pub(crate) async fn within<T>(
    what: &str,
    limit: Duration,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let clock = SystemClock::default();
    let end = clock.now() + limit;
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = clock.sleep_until(end) => {
                // A paused runtime ends its waits early; only the clock counts.
                if clock.now() >= end {
                    let limit = humantime::format_duration(limit);
                    return Err(io::Error::new(io::ErrorKind::TimedOut, format!("timed out after {limit} waiting for {what}")));
                }
            }
        }
    }
}
