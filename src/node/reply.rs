//! The way back of an answer.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Answer, Asked, Node, NodeError};
use crate::protocol::Moment;
use crate::runtime::clock::Clock;

/// Where a node's answer goes.
///
/// Dropped without an answer, it reports that the node gave none.
#[derive(Debug)]
pub struct Reply {
    to: Option<Arc<dyn Collect>>,
    index: usize,
}

/// Collects the answers to one question put to several nodes.
pub(crate) trait Collect: fmt::Debug + Send + Sync {
    /// The node at `index` has answered.
    fn answer(&self, index: usize, answer: Result<Answer, NodeError>);

    /// The same, from a node that has looked at its clock since.
    fn answer_that_came(&self, index: usize, answer: Result<Answer, NodeError>, _: Came<'_>) {
        self.answer(index, answer);
    }

    /// Whether a question that may create a key is still worth sending.
    fn wanted(&self) -> bool;
}

impl Reply {
    pub(crate) fn new(to: Arc<dyn Collect>, index: usize) -> Reply {
        Reply { to: Some(to), index }
    }

    /// Gives the answer.
    pub fn send(mut self, answer: Result<Answer, NodeError>) {
        if let Some(to) = self.to.take() {
            to.answer(self.index, answer);
        }
    }

    /// The same, for one of several answers that came together: one look at the clock is enough for all.
    pub(crate) fn send_what_came(mut self, answer: Result<Answer, NodeError>, came: Came<'_>) {
        if let Some(to) = self.to.take() {
            to.answer_that_came(self.index, answer, came);
        }
    }

    /// Whether the question is still worth sending. A node that had to keep a question back, for
    /// want of a connection, asks here before it sends one that [`may_create`](crate::Question::may_create)
    /// a key, and answers [`NodeError::NotAsked`] instead when nobody wants it any more.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.to.as_ref().is_some_and(|to| to.wanted())
    }
}

/// When an answer came.
#[derive(Clone, Copy)]
pub(crate) struct Came<'a> {
    pub(crate) at: Moment,
    pub(crate) clock: &'a dyn Clock,
}

impl Came<'_> {
    /// The moment, if it is one of this `clock`: a node may have another one than who asks it, and moments
    /// of two clocks cannot be compared.
    pub(crate) fn on(self, clock: &dyn Clock) -> Option<Moment> {
        ptr::addr_eq(self.clock, clock).then_some(self.at)
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            to.answer(self.index, Err(NodeError::Disconnected { reason: "the node dropped it".into() }));
        }
    }
}

/// Asks one node one question and waits for the answer, for as long as it takes.
///
/// For tests of nodes and for tools. Locks ask all nodes at once and do not wait for the slowest.
///
/// # Errors
///
/// What the node says.
///
/// # Cancel safety
///
/// Dropping the future does not take the question back: the node may still carry it out.
pub async fn ask(node: &dyn Node, question: impl Into<Asked>) -> Result<Answer, NodeError> {
    let (sender, receiver) = oneshot::channel();
    let single = Arc::new(Single { sender: std::sync::Mutex::new(Some(sender)) });
    node.ask(question.into(), Reply::new(single, 0));
    receiver.await.unwrap_or_else(|_| Err(NodeError::Disconnected { reason: "the node dropped it".into() }))
}

#[derive(Debug)]
struct Single {
    sender: std::sync::Mutex<Option<oneshot::Sender<Result<Answer, NodeError>>>>,
}

impl Collect for Single {
    fn answer(&self, _index: usize, answer: Result<Answer, NodeError>) {
        let sender = self.sender.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // Nobody waits any more: the asker has gone.
            drop(sender.send(answer));
        }
    }

    fn wanted(&self) -> bool {
        true
    }
}
