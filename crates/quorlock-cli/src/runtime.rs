//! The async runtime, and the clock.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::runtime::{Clock as _, SystemClock};

use crate::failure::Failure;

/// The files without which no command runs under a lock of three nodes, and the async runtime panics.
const LEAST_FILES: usize = 16;

/// Runs `work` on the main thread: a child dies with the *thread* that started it, and this one lives as long as the
/// program.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let file = |_| io::stderr().as_fd().try_clone_to_owned();
    let files: io::Result<Vec<_>> = (0..LEAST_FILES).map(file).collect();
    drop(files.map_err(Failure::to("open the files that it needs"))?);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::to("start the async runtime"))?
        .block_on(work)
}

/// Returns the current time, of the clock that also runs while the machine is suspended.
pub(crate) fn now() -> Moment {
    SystemClock::default().now()
}

/// Sleeps until `moment` or slightly later; see [`quorlock::runtime::Clock::sleep_until`].
pub(crate) async fn sleep_until(moment: Moment) {
    SystemClock::default().sleep_until(moment).await;
}

/// Sleeps for `duration`.
pub(crate) async fn sleep(duration: Duration) {
    sleep_until(now() + duration).await;
}
