//! Waiting for a condition instead of sleeping.

use std::io;
use std::time::Duration;

use quorlock::runtime::{Clock, SystemClock};

/// How often a condition is looked at: seldom enough to leave a loaded machine its processor.
const EVERY: Duration = Duration::from_millis(2);

/// Waits until `condition` is true, and looks at it at least once.
///
/// `deadline` is real time, also where the runtime's time is paused, because what tests wait for
/// here mostly happens in another process. A paused runtime moves its time on between two looks.
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

/// As [`eventually`], for a condition that has something to tell once it is met.
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
                format!("waited {waited} in vain for {what}"),
            ));
        }
        pause().await;
    }
}

/// The time between two looks.
pub(crate) async fn pause() {
    let clock = SystemClock::default();
    clock.sleep_until(clock.now() + EVERY).await;
}

/// Gives `work` so much real time and no more.
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
                // A paused runtime ends its waits early; only the clock decides.
                if clock.now() >= end {
                    let limit = humantime::format_duration(limit);
                    return Err(io::Error::new(io::ErrorKind::TimedOut, format!("waited {limit} in vain for {what}")));
                }
            }
        }
    }
}
