//! Waits for a condition instead of sleeping.

use std::io;
use std::time::Duration;

use quorlock::runtime::{Clock, SystemClock};

/// How often a condition is checked: seldom enough not to load a busy machine.
const EVERY: Duration = Duration::from_millis(2);

/// How long a test waits for what is certain to happen on an idle machine within seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns how long a test should wait for what other processes do, such as a server that starts: a minute, and two on a
/// loaded machine.
///
/// Only a test that fails waits that long, so every test has the same patience. The time is multiplied by the
/// variable `QUORLOCK_TEST_PATIENCE`, 1 if it is not set.
#[must_use]
pub fn patience() -> Duration {
    limit(PATIENCE, load().min(2.0))
}

/// Returns a time limit that suits this machine and its load: it is also multiplied by the number of runnable tasks for
/// each core, at least 1.
#[must_use]
pub fn scaled(idle: Duration) -> Duration {
    limit(idle, load())
}

fn limit(idle: Duration, load: f64) -> Duration {
    idle.mul_f64(wanted().max(0.01) * load.max(1.0))
}

fn wanted() -> f64 {
    std::env::var("QUORLOCK_TEST_PATIENCE").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1.0)
}

/// The average number of runnable tasks for each core, in the last minute. 0 where the system does not say.
fn load() -> f64 {
    let average = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let runnable = average.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    runnable.unwrap_or(0.0) / u32::try_from(cores).map_or(1.0, f64::from)
}

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
/// quorlock_servers::eventually("the third look", Duration::from_secs(10), async || {
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

/// Runs `work` with a timeout in real time, [`scaled`].
///
/// # Errors
///
/// Those of `work`, or [`io::ErrorKind::TimedOut`], naming `what` did not happen.
pub async fn within<T>(
    what: &str,
    limit: Duration,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let limit = scaled(limit);
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
