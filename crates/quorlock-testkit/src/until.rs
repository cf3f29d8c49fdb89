//! Waits for a condition in a test.

use std::panic::Location;

use quorlock_servers::{eventually, patience};

/// Waits until `condition` is true, like [`eventually`], and fails the test if that takes too long.
///
/// # Panics
///
/// After [`patience()`]. The message names `what` did not happen and the line of the caller.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mut looks = 0;
/// quorlock_testkit::until("the third look", async || {
///     looks += 1;
///     looks == 3
/// })
/// .await;
/// # }
/// ```
#[track_caller]
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub fn until(what: &str, condition: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    // Known only here: the future's own caller is the runtime.
    let caller = Location::caller();
    async move {
        if let Err(error) = eventually(what, patience(), condition).await {
            panic!("{error}, at {caller}");
        }
    }
}
