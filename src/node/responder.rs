//! Delivers a node's response to the round that sent the request.

use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::{Node, NodeError, Response, SharedRequest};
use crate::runtime::clock::Clock;
use quorlock_protocol::Moment;

/// Receives the response of a node to one request.
///
/// If it is dropped without a response, the round is told that the node gave none.
#[derive(Debug)]
pub struct Responder {
    to: Option<Arc<dyn Collect>>,
    index: usize,
}

/// Collects the responses of several nodes to one request.
pub(crate) trait Collect: fmt::Debug + Send + Sync {
    /// Records the response of the node at `index`.
    fn answer(&self, index: usize, answer: Result<Response, NodeError>);

    /// Like [`answer`](Collect::answer), with the moment at which the response was received.
    fn answer_that_came(&self, index: usize, answer: Result<Response, NodeError>, _: ReceivedAt<'_>) {
        self.answer(index, answer);
    }

    /// Returns whether a request that may create a key is still worth sending.
    fn wanted(&self) -> bool;
}

impl Responder {
    pub(crate) fn new(to: Arc<dyn Collect>, index: usize) -> Responder {
        Responder { to: Some(to), index }
    }

    /// Sends the response, from any thread, even before [`ask`](super::Node::ask) has returned. This wakes
    /// the waiting task and may send another request to this node before it returns, so do not hold a lock
    /// meanwhile.
    pub fn send(mut self, answer: Result<Response, NodeError>) {
        if let Some(to) = self.to.take() {
            to.answer(self.index, answer);
        }
    }

    /// Like [`send`](Responder::send), for one of several responses that were received together, with one
    /// reading of the clock for all.
    pub(crate) fn send_what_came(mut self, answer: Result<Response, NodeError>, came: ReceivedAt<'_>) {
        if let Some(to) = self.to.take() {
            to.answer_that_came(self.index, answer, came);
        }
    }

    /// Returns a responder that changes the response before it passes it on: for a node that wraps another
    /// node. It forwards [`wanted`](Responder::wanted).
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

    /// Returns whether the request is still worth sending. A node that had to delay a request until it is
    /// connected checks this before it sends a request that [`may_create`](super::Request::may_create) a key,
    /// and answers [`NodeError::NotAsked`] if it is no longer wanted.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.to.as_ref().is_some_and(|to| to.wanted())
    }
}

/// The moment at which a response was received.
#[derive(Clone, Copy)]
pub(crate) struct ReceivedAt<'a> {
    pub(crate) at: Moment,
    pub(crate) clock: &'a dyn Clock,
}

impl ReceivedAt<'_> {
    /// Returns the moment, if it was read from this `clock`: moments of different clocks cannot be compared,
    /// and a node may use another clock than the round.
    pub(crate) fn on(self, clock: &dyn Clock) -> Option<Moment> {
        ptr::addr_eq(self.clock, clock).then_some(self.at)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            to.answer(
                self.index,
                Err(NodeError::Disconnected { reason: "the node dropped the request".into() }),
            );
        }
    }
}

type Change = Box<dyn FnOnce(Result<Response, NodeError>) -> Result<Response, NodeError> + Send>;

/// A responder and the change to apply to its response.
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

/// Sends one request to one node and waits for the response, without a timeout.
///
/// For tests of nodes and for tools. Locks ask all nodes in parallel and do not wait for the slowest.
///
/// # Errors
///
/// The error of the node.
///
/// # Cancel safety
///
/// Dropping the future does not withdraw the request: the node may still carry it out.
pub async fn ask(node: &dyn Node, request: impl Into<SharedRequest>) -> Result<Response, NodeError> {
    let (sender, receiver) = oneshot::channel();
    let single = Arc::new(Single { sender: Mutex::new(Some(sender)) });
    node.ask(request.into(), Responder::new(single, 0));
    receiver
        .await
        .unwrap_or_else(|_| Err(NodeError::Disconnected { reason: "the node dropped the request".into() }))
}

#[derive(Debug)]
struct Single {
    sender: Mutex<Option<oneshot::Sender<Result<Response, NodeError>>>>,
}

impl Collect for Single {
    fn answer(&self, _index: usize, answer: Result<Response, NodeError>) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // Fails if the caller has dropped its future.
            drop(sender.send(answer));
        }
    }

    fn wanted(&self) -> bool {
        true
    }
}
