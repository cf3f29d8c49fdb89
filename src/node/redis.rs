//! A node that is a Redis or Valkey server.
//!
//! The only place that names the client crate. One task per node connects, sends and receives;
//! a handle only puts questions into its queue.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedSender};

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
        let task = Supervisor::new(Arc::clone(&name), address, settings, questions, Arc::clone(&state));
        RedisNode {
            name,
            queue,
            state,
            started: AtomicBool::new(false),
            parked: Mutex::new(Some(Box::new(task))),
        }
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
        match self.start() {
            Ok(()) => Box::pin(self.state.contact()),
            Err(_) => Box::pin(std::future::ready(())),
        }
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode").field("name", &self.name).finish_non_exhaustive()
    }
}
