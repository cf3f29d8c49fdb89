//! The thread in the background, and waiting for it.

use std::fmt;
use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::task::coop::poll_proceed;

use crate::error::{ConfigError, InAsyncContext};
use crate::reason::Reason;
use crate::runtime::clock::Clock;

/// A handle to the one background thread of the program, for those who wait on threads of their own.
#[derive(Clone)]
pub(super) struct Background {
    thread: Handle,
    clock: Arc<dyn Clock>,
}

impl Background {
    /// For what `coordinator` makes. Starts the thread with the first call.
    pub(super) fn beside(coordinator: &crate::Coordinator) -> Result<Background, ConfigError> {
        static THREAD: OnceLock<Result<Handle, Reason>> = OnceLock::new();
        match THREAD.get_or_init(|| start().map_err(Reason::from)) {
            Ok(thread) => {
                Ok(Background { thread: thread.clone(), clock: coordinator.shared.nodes.clock.clone() })
            }
            Err(source) => Err(ConfigError::NoBackground { source: source.clone() }),
        }
    }

    /// Does `work` on this thread, and leaves to the one in the background what it starts: connections,
    /// timers, and whatever outlives it.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`] where waiting would stall an executor: then nothing is done.
    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, InAsyncContext> {
        Ok(self.may_wait()?.block_on(work))
    }

    /// As [`run`](Background::run), but for `longest` at most: `None` if it is not done by then.
    pub(super) fn run_within<T>(
        &self,
        longest: Duration,
        work: impl Future<Output = T>,
    ) -> Result<Option<T>, InAsyncContext> {
        self.run(async {
            tokio::select! {
                biased;
                output = work => Some(output),
                () = self.clock.sleep_until(self.clock.now() + longest) => None,
            }
        })
    }

    /// Calls `listener` with the output of `work`, where it may block.
    pub(super) fn call_after<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        listener: impl FnOnce(T) + Send + 'static,
    ) {
        let thread = self.thread.clone();
        self.thread.spawn(async move {
            let output = work.await;
            thread.spawn_blocking(move || listener(output));
        });
    }

    /// # Errors
    ///
    /// [`InAsyncContext`] where waiting would stall an executor.
    pub(super) fn may_wait(&self) -> Result<&Handle, InAsyncContext> {
        if Handle::try_current().is_ok() && has_a_budget() { Err(InAsyncContext) } else { Ok(&self.thread) }
    }
}

/// The runtime runs on its one thread until the process ends.
fn start() -> std::io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().thread_name("quorlock listener").build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name("quorlock".to_owned()).spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}

/// Whether this is within a task or `block_on`.
///
/// A thread of `spawn_blocking` knows its runtime as a task does, but may wait. What tells them
/// apart is the budget that makes tasks yield, which such threads do without. It is spent to see
/// whether it has an end, and then given back.
fn has_a_budget() -> bool {
    let mut context = Context::from_waker(Waker::noop());
    let mut spent = Vec::new();
    let ends = (0..=LARGEST_BUDGET).any(|_| match poll_proceed(&mut context) {
        Poll::Ready(unit) => {
            spent.push(unit);
            false
        }
        Poll::Pending => true,
    });
    // Each sets the budget back to what it was before it, so the first must be the last.
    while spent.pop().is_some() {}
    ends
}

/// Tokio counts budgets in a byte.
const LARGEST_BUDGET: u16 = u8::MAX as u16;

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Background")
    }
}
