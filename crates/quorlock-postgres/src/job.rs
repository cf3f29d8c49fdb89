//! What a connection has to do, and how much of it is unanswered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quorlock::node::{NodeError, Responder, SharedRequest};
use tokio::sync::oneshot;

/// A command to a connection.
pub(crate) enum Job {
    Ask {
        request: SharedRequest,
        responder: Responder,
        /// Set if the request has several keys that belong to several connections.
        spanning: Option<Spanning>,
        /// [`Listeners::order_lost`](crate::listeners::Listeners::order_lost) when it was asked.
        order_lost: u64,
        unanswered: Unanswered,
    },
    /// Another connection sends a request with keys of this one: send nothing until it is answered.
    Pass(Barrier),
    /// Send nothing until the other connections have answered all earlier requests.
    After(Vec<oneshot::Receiver<()>>),
    /// Report when the connection is up, or why it is not.
    Connect(oneshot::Sender<Result<(), NodeError>>),
}

/// The other connections to which keys of a request belong.
pub(crate) struct Spanning {
    /// Each resolves when that connection has answered all earlier requests.
    pub(crate) arrivals: Vec<oneshot::Receiver<()>>,
    /// Dropping these lets the other connections continue.
    pub(crate) leave: Vec<oneshot::Sender<()>>,
}

/// Blocks a connection during a request of several keys on another connection.
pub(crate) struct Barrier {
    pub(crate) arrived: oneshot::Sender<()>,
    pub(crate) left: oneshot::Receiver<()>,
}

/// The number of unanswered requests on a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load(Arc<AtomicUsize>);

/// Counts one request as unanswered until it is dropped.
#[derive(Debug)]
pub(crate) struct Unanswered(Load);

impl Load {
    pub(crate) fn add(&self) -> Unanswered {
        self.0.fetch_add(1, Ordering::Relaxed);
        Unanswered(self.clone())
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
