//! The way back of an answer.

use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::{Node, NodeError, Response, SharedRequest};
use crate::runtime::clock::Clock;
use quorlock_protocol::Moment;

/// Where a node's answer goes.
///
/// Dropped without an answer, it reports that the node gave none.
#[derive(Debug)]
pub struct Responder {
    to: Option<Arc<dyn Collect>>,
    index: usize,
}

/// Collects the answers to one request put to several nodes.
pub(crate) trait Collect: fmt::Debug + Send + Sync {
    /// The node at `index` has answered.
    fn answer(&self, index: usize, answer: Result<Response, NodeError>);

    /// The same, from a node that has looked at its clock since.
    fn answer_that_came(&self, index: usize, answer: Result<Response, NodeError>, _: ReceivedAt<'_>) {
        self.answer(index, answer);
    }

    /// Whether a request that may create a key is still worth sending.
    fn wanted(&self) -> bool;
}

impl Responder {
    pub(crate) fn new(to: Arc<dyn Collect>, index: usize) -> Responder {
        Responder { to: Some(to), index }
    }

    /// Gives the answer, from any thread, also before [`ask`](crate::Node::ask) has returned. It wakes the
    /// waiter and may ask this node again before it returns, so hold no lock of yours meanwhile.
    pub fn send(mut self, answer: Result<Response, NodeError>) {
        if let Some(to) = self.to.take() {
            to.answer(self.index, answer);
        }
    }

    /// The same, for one of several answers that came together: one look at the clock is enough for all.
    pub(crate) fn send_what_came(mut self, answer: Result<Response, NodeError>, came: ReceivedAt<'_>) {
        if let Some(to) = self.to.take() {
            to.answer_that_came(self.index, answer, came);
        }
    }

    /// One that passes the answer on to this one, changed: for a node that asks another node and makes
    /// something else of what it says. Whether it is still [wanted](Responder::wanted) is known there too.
    ///
    /// # Examples
    ///
    /// ```
    /// use quorlock::{Node, Responder, SharedRequest};
    ///
    /// fn without_numbers(node: &dyn Node, request: SharedRequest, responder: Responder) {
    ///     let responder = responder.map(|answer| answer.map(|answer| answer.with_fencing_token(None)));
    ///     node.ask(request, responder);
    /// }
    /// ```
    #[must_use]
    pub fn map(
        self,
        change: impl FnOnce(Result<Response, NodeError>) -> Result<Response, NodeError> + Send + 'static,
    ) -> Responder {
        Responder::new(Arc::new(Mapped(Mutex::new(Some((self, Box::new(change)))))), 0)
    }

    /// Whether the request is still worth sending. A node that had to keep a request back, for
    /// want of a connection, asks here before it sends one that [`may_create`](crate::Request::may_create)
    /// a key, and answers [`NodeError::NotAsked`] instead when nobody wants it any more.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.to.as_ref().is_some_and(|to| to.wanted())
    }
}

/// When an answer came.
#[derive(Clone, Copy)]
pub(crate) struct ReceivedAt<'a> {
    pub(crate) at: Moment,
    pub(crate) clock: &'a dyn Clock,
}

impl ReceivedAt<'_> {
    /// The moment, if it is one of this `clock`: a node may have another one than who asks it, and moments
    /// of two clocks cannot be compared.
    pub(crate) fn on(self, clock: &dyn Clock) -> Option<Moment> {
        ptr::addr_eq(self.clock, clock).then_some(self.at)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            to.answer(self.index, Err(NodeError::Disconnected { reason: "the node dropped it".into() }));
        }
    }
}

type Change = Box<dyn FnOnce(Result<Response, NodeError>) -> Result<Response, NodeError> + Send>;

/// Where a changed answer goes, and how it is changed.
struct Mapped(Mutex<Option<(Responder, Change)>>);

impl Mapped {
    fn inner(&self) -> MutexGuard<'_, Option<(Responder, Change)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collect for Mapped {
    fn answer(&self, _index: usize, answer: Result<Response, NodeError>) {
        let inner = self.inner().take();
        if let Some((responder, change)) = inner {
            responder.send(change(answer));
        }
    }

    fn wanted(&self) -> bool {
        self.inner().as_ref().is_some_and(|(responder, _)| responder.wanted())
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped").finish_non_exhaustive()
    }
}

/// Asks one node one request and waits for the answer, for as long as it takes.
///
/// For tests of nodes and for tools. Locks ask all nodes at once and do not wait for the slowest.
///
/// # Errors
///
/// What the node says.
///
/// # Cancel safety
///
/// Dropping the future does not take the request back: the node may still carry it out.
pub async fn ask(node: &dyn Node, request: impl Into<SharedRequest>) -> Result<Response, NodeError> {
    let (sender, receiver) = oneshot::channel();
    let single = Arc::new(Single { sender: Mutex::new(Some(sender)) });
    node.ask(request.into(), Responder::new(single, 0));
    receiver.await.unwrap_or_else(|_| Err(NodeError::Disconnected { reason: "the node dropped it".into() }))
}

#[derive(Debug)]
struct Single {
    sender: Mutex<Option<oneshot::Sender<Result<Response, NodeError>>>>,
}

impl Collect for Single {
    fn answer(&self, _index: usize, answer: Result<Response, NodeError>) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // Nobody waits any more: the asker has gone.
            drop(sender.send(answer));
        }
    }

    fn wanted(&self) -> bool {
        true
    }
}
