//! A node that is a Redis or Valkey server.
//!
//! The only place that names the client crate. A handle checks the node's `state` and puts
//! questions into a queue. One task per node does the rest: the `supervisor` dials again and again,
//! the `handshake` tells who answers and whether it may vote, and a `link` carries questions over
//! one connection, as `wire` encodes them, until that ends. `failure` says what errors mean.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;

pub use address::{Address, AddressError, Endpoint};
pub use dial::{Dial, Stream, SystemDial};

use self::state::{Ask, State};
use self::supervisor::Supervisor;
use super::{Node, NodeError, Question, Reply};
use crate::clock::Clock;
use crate::entropy::Entropy;

mod address;
mod dial;
mod failure;
mod handshake;
mod link;
pub mod scripts;
mod state;
mod supervisor;
#[cfg(test)]
mod tests;
mod wire;

/// What a Redis node works with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) dial: Arc<dyn Dial>,
    /// How long one attempt may take from dialling to the answer to `INFO`.
    pub(crate) connect_limit: Duration,
    /// What the connection is called in the server's list of clients. Without spaces.
    pub(crate) client_name: String,
}

/// A lock server that is reached over one supervised connection.
///
/// Contacts nobody until the first question, or until somebody waits for [`Node::ready`]. Its task
/// lives on the runtime that is current then, and ends when the node is dropped: after what was
/// asked by then was answered, or a second later.
pub(crate) struct RedisNode {
    name: Arc<str>,
    queue: UnboundedSender<Ask>,
    state: Arc<State>,
    started: AtomicBool,
    /// Whether the first attempt to connect is over.
    contact: watch::Receiver<bool>,
    /// The task before it is started.
    parked: Mutex<Option<Box<Supervisor>>>,
}

impl RedisNode {
    /// The node at `address`.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the coordinator, which makes nodes, is not written yet")
    )]
    pub(crate) fn new(address: Address, settings: Settings) -> RedisNode {
        let (queue, questions) = mpsc::unbounded_channel();
        let state = Arc::new(State::new());
        let name: Arc<str> = address.to_string().into();
        let (task, contact) =
            Supervisor::new(Arc::clone(&name), address, settings, questions, Arc::clone(&state));
        let parked = Mutex::new(Some(Box::new(task)));
        RedisNode { name, queue, state, started: AtomicBool::new(false), contact, parked }
    }

    /// Starts the task, the first time.
    fn start(&self) -> Result<(), NodeError> {
        if self.started.load(Ordering::Acquire) {
            return Ok(());
        }
        let runtime = Handle::try_current().map_err(|_| {
            let reason = "there is no Tokio runtime here to connect from; call from within one";
            NodeError::Unreachable { reason: reason.into() }
        })?;
        if let Some(task) = self.parked.lock().unwrap_or_else(PoisonError::into_inner).take() {
            runtime.spawn(task.run());
        }
        self.started.store(true, Ordering::Release);
        Ok(())
    }
}

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, question: Question, reply: Reply) {
        let place = match self.start().and_then(|()| self.state.admit(&question)) {
            Ok(place) => place,
            Err(error) => return reply.send(Err(error)),
        };
        if let Err(unsent) = self.queue.send(Ask { question, reply, place }) {
            let reason = "the Tokio runtime that it was connected from has ended";
            unsent.0.answer(Err(NodeError::Unreachable { reason: reason.into() }));
        }
    }

    fn ready(&self) -> BoxFuture<'static, ()> {
        let started = self.start();
        let mut contact = self.contact.clone();
        Box::pin(async move {
            if started.is_ok() {
                // An error means that the task has ended: there is nothing to wait for.
                drop(contact.wait_for(|over| *over).await);
            }
        })
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode").field("name", &self.name).finish_non_exhaustive()
    }
}
