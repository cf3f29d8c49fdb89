//! Work that continues when its caller stops waiting.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt as _};
use tokio::runtime::Handle;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::tasks::Tasks;

/// Runs in the caller's future; if that is dropped half-way, in a task.
pub(crate) struct FinishInBackground<T: 'static> {
    work: Option<BoxFuture<'static, T>>,
    runtime: Handle,
    tasks: Tasks,
    #[expect(dead_code, reason = "counts as a task until it is dropped")]
    token: TaskTrackerToken,
}

impl<T> FinishInBackground<T> {
    /// Counts as one of `tasks` from here on. If a task is needed, it is spawned on `runtime`.
    pub(crate) fn new(work: BoxFuture<'static, T>, tasks: &Tasks, runtime: Handle) -> FinishInBackground<T> {
        let token = tasks.tracker.token();
        FinishInBackground { work: Some(work), runtime, tasks: tasks.clone(), token }
    }
}

impl<T> Future for FinishInBackground<T> {
    type Output = T;

    /// Once it has panicked, it is pending for ever: a future that panicked must not be polled again.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let done = work.as_mut().poll(context);
        if done.is_pending() {
            self.work = Some(work);
        }
        done
    }
}

impl<T> Drop for FinishInBackground<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.tasks.spawn(work.map(drop), &self.runtime);
        }
    }
}

impl<T> fmt::Debug for FinishInBackground<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FinishInBackground").field("done", &self.work.is_none()).finish_non_exhaustive()
    }
}
