//! Delivers a node's response to the round that sent the request.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Node, NodeError, Response, SharedRequest};
use crate::runtime::{Mutex, clock::Clock};
use quorlock_protocol::Moment;

/// Receives the response of a node to one request.
///
/// If it is dropped without a response, the round gets an error that says so.
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
    fn answer_received(&self, index: usize, answer: Result<Response, NodeError>, _: ReceivedAt<'_>) {
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
    pub(crate) fn send_received(mut self, answer: Result<Response, NodeError>, came: ReceivedAt<'_>) {
        if let Some(to) = self.to.take() {
            to.answer_received(self.index, answer, came);
        }
    }

    /// Returns a responder that calls `receive` with the response: for a node that asks other nodes, and for
    /// tools. It is called once, on any thread, and must not block.
    #[must_use]
    pub fn from_fn(receive: impl FnOnce(Result<Response, NodeError>) + Send + 'static) -> Responder {
        Responder::new(Arc::new(Function { call: Mutex::new(Some(Box::new(receive))), to: None }), 0)
    }

    /// Returns a responder that changes the response before it passes it on: for a node that wraps another
    /// node. It forwards [`wanted`](Responder::wanted).
    ///
    /// # Examples
    ///
    /// ```
    /// use quorlock::node::{Node, Responder, SharedRequest};
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
        let to = self.to.clone();
        let call = Box::new(move |answer| self.send(change(answer)));
        Responder::new(Arc::new(Function { call: Mutex::new(Some(call)), to }), 0)
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

type Receive = dyn FnOnce(Result<Response, NodeError>) + Send;

/// Calls a function with the response.
struct Function {
    call: Mutex<Option<Box<Receive>>>,
    /// Answers whether the response is still wanted; without it, it is.
    to: Option<Arc<dyn Collect>>,
}

impl Collect for Function {
    fn answer(&self, _index: usize, answer: Result<Response, NodeError>) {
        let call = self.call.lock().take();
        if let Some(call) = call {
            call(answer);
        }
    }

    fn wanted(&self) -> bool {
        self.to.as_ref().is_none_or(|to| to.wanted())
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").finish_non_exhaustive()
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
    // Fails if the caller has dropped its future.
    node.ask(request.into(), Responder::from_fn(|answer| drop(sender.send(answer))));
    receiver
        .await
        .unwrap_or_else(|_| Err(NodeError::Disconnected { reason: "the node dropped the request".into() }))
}
