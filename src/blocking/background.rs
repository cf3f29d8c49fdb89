//! The thread in the background, and waiting for it.

use std::fmt;
use std::future::pending;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::task::coop::poll_proceed;

use crate::error::{AcquireError, ConfigError, InAsyncContext};

/// A handle to the one background thread of the program.
#[derive(Clone)]
pub(super) struct Background {
    handle: Handle,
}

impl Background {
    /// Starts the thread with the first call.
    pub(super) fn shared() -> Result<Background, ConfigError> {
        static SHARED: OnceLock<Result<Handle, Arc<str>>> = OnceLock::new();
        match SHARED.get_or_init(|| start().map_err(|error| error.to_string().into())) {
            Ok(handle) => Ok(Background { handle: handle.clone() }),
            Err(reason) => Err(ConfigError::NoBackground { reason: reason.clone() }),
        }
    }

    /// Runs `work` in the background, and waits for its output. `None` if there is none: it has
    /// panicked.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`] where waiting would stall an executor: then nothing is run.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<Option<T>, InAsyncContext> {
        self.may_wait()?;
        let (sender, output) = sync_channel(1);
        // There is somebody who waits for it.
        self.handle.spawn(async move { drop(sender.send(work.await)) });
        Ok(output.recv().ok())
    }

    /// As [`run`](Background::run), for what asks the nodes for a lock.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        question: impl Future<Output = Result<T, AcquireError>> + Send + 'static,
    ) -> Result<T, AcquireError> {
        self.run(question)?.unwrap_or(Err(AcquireError::Closed))
    }

    /// Calls `listener` with the output of `work`, where it may block.
    pub(super) fn call_after<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        listener: impl FnOnce(T) + Send + 'static,
    ) {
        let handle = self.handle.clone();
        self.handle.spawn(async move {
            let output = work.await;
            handle.spawn_blocking(move || listener(output));
        });
    }

    /// # Errors
    ///
    /// [`InAsyncContext`] where waiting would stall an executor.
    #[expect(clippy::unused_self, reason = "there is no waiting without a thread to wait for")]
    pub(super) fn may_wait(&self) -> Result<(), InAsyncContext> {
        if Handle::try_current().is_ok() && has_a_budget() { Err(InAsyncContext) } else { Ok(()) }
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
