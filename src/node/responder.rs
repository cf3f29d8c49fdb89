//! The way back of an answer.

use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

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

    /// Gives the answer, from any thread, also before [`ask`](crate::node::Node::ask) has returned. It wakes the
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

    /// Returns a responder that calls `receive` with the answer: for a node that asks other nodes, and for tools. It
    /// is called once, on any thread, and must not block.
    #[must_use]
    pub fn from_fn(receive: impl FnOnce(Result<Response, NodeError>) + Send + 'static) -> Responder {
        Responder::new(Arc::new(Function { call: Mutex::new(Some(Box::new(receive))), to: None }), 0)
    }

    /// Returns a responder that passes the answer on to this one, changed: for a node that asks another node and
    /// changes its answer. Whether the answer is still [wanted](Responder::wanted) is passed on too.
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

    /// Whether the request is still worth sending. A node that had to keep a request back, for
    /// want of a connection, asks here before it sends one that [`may_create`](crate::node::Request::may_create)
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

type Receive = dyn FnOnce(Result<Response, NodeError>) + Send;

/// Calls a function with the answer.
struct Function {
    call: Mutex<Option<Box<Receive>>>,
    /// Knows whether the answer is still wanted; without it, it is.
    to: Option<Arc<dyn Collect>>,
}

impl Collect for Function {
    fn answer(&self, _index: usize, answer: Result<Response, NodeError>) {
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner).take();
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
    // An error of the channel: the caller has gone.
    node.ask(request.into(), Responder::from_fn(|answer| drop(sender.send(answer))));
    receiver.await.unwrap_or_else(|_| Err(NodeError::Disconnected { reason: "the node dropped it".into() }))
}
