//! The waiters in a queue.

use std::num::NonZeroU64;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::WaitQueues;
use crate::engine::hold::Hold;
use crate::engine::options::AcquireRequest;
use crate::error::AcquireError;
use quorlock_protocol::machine::LocalWaiter;

/// A caller that waits.
pub(crate) struct Waiter {
    pub(super) arrival: NonZeroU64,
    pub(crate) acquisition: Arc<AcquireRequest>,
    pub(crate) sender: HoldSender,
    /// The runtime on which it waits.
    pub(crate) runtime: Handle,
}

impl Waiter {
    /// Creates a waiter that is in no queue.
    pub(crate) fn alone(acquisition: Arc<AcquireRequest>, runtime: Handle) -> (Waiter, HoldReceiver) {
        let (sender, delivery) = oneshot::channel();
        (Waiter { arrival: NonZeroU64::MIN, acquisition, sender, runtime }, delivery)
    }
}

impl LocalWaiter for Waiter {
    fn arrival(&self) -> NonZeroU64 {
        self.arrival
    }

    fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }
}

/// Delivers the lock, or the error.
pub(crate) type HoldSender = oneshot::Sender<Result<Hold, Box<AcquireError>>>;

/// The receiving side. Dropped by a waiter that stops waiting.
pub(crate) type HoldReceiver = oneshot::Receiver<Result<Hold, Box<AcquireError>>>;

/// The result of joining a queue.
pub(crate) enum Joined {
    /// The queue is new. The caller, which is not in it, must serve it, beginning with itself.
    First,
    /// The queue is being served.
    Behind(Place, HoldReceiver),
    /// This process holds the key, or other callers in it came first, and the caller does not wait.
    Taken,
}

/// A place in a queue, given up when dropped.
pub(crate) struct Place {
    pub(super) queues: Arc<WaitQueues>,
    pub(super) key: Arc<str>,
    pub(super) arrival: NonZeroU64,
}

impl Drop for Place {
    fn drop(&mut self) {
        // Usually the waiter has already been taken out to be served.
        let left = self.queues.with(&self.key, |queue| queue.callers.leave(self.arrival));
        // Dropped after the lock is released: it owns data of the caller.
        drop(left);
    }
}
