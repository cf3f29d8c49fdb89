//! A node that is a Redis or Valkey server.
//!
//! The only place that names the client crate. A handle checks the node's `state` and puts
//! questions into a queue. One task per node does the rest: the `supervisor` dials again and again,
//! the `handshake` tells who answers and whether it may vote, and a `link` carries questions over
//! one connection, as `wire` and `swift` have them, until that ends, and `hints` the other way. A `line` is the
//! bytes of a connection: each `request` is written to it, `bounds` finds the end of each message of
//! the server and keeps it small, and `parts` reads it. `server_error` reads what a server says that refuses, and `failure` says what that means. `examine` is the check-up, over a
//! line of its own; `info` reads what a server says of itself, and `gate` what it cannot say:
//! since when it is a master. `copies` has votes wait for replicas, and `sentinel` finds the
//! master of a service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::mpsc::{self, UnboundedSender};

pub use address::{Address, AddressError, ClusterAddress, Endpoint};
pub use cluster::ClusterNode;
pub use dial::{Dial, Stream, SystemDial};
pub use sentinel::SentinelErrors;
pub use server_error::{MissingRight, ServerError, ServerErrorKind};
#[cfg(feature = "tls")]
pub use tls::Tls;

pub(crate) use self::connect_limit::ConnectLimit;
use self::hints::Listeners;
use self::home::Home;
pub(crate) use self::settings::{Membership, Notices, Settings};
use self::state::{Ask, Stage, State};
use self::supervisor::Desk;
use super::{Asked, Listener, Node, NodeError, Reply, Watcher};
use crate::examination::Facts;

mod address;
mod bounds;
mod cluster;
mod connect_limit;
mod contained;
mod copies;
mod dial;
mod examine;
mod failure;
mod gate;
mod handshake;
mod hints;
mod home;
mod info;
mod line;
mod link;
mod met;
mod parts;
mod process;
mod request;
pub mod scripts;
mod sentinel;
mod server_error;
mod settings;
mod start;
mod state;
mod supervisor;
mod swift;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod wire;

/// A [`Node`] that is a Redis or Valkey server, reached over one supervised connection.
///
/// [`Builder::nodes`](crate::Builder::nodes) makes these from URLs. Make one yourself to wrap it in
/// a node of your own, or to test it.
///
/// Contacts nobody until the first question, or until somebody waits for [`Node::ready`]. Its task
/// lives on the runtime that is current then, and ends when the node is dropped: after what was
/// asked by then was answered, or a second later. When that runtime ends, the next question has another
/// task connect again from its own; so does [`Node::ready`] when the runtime is not driven. A task that
/// panics begins anew.
pub struct RedisNode {
    name: Arc<str>,
    queue: UnboundedSender<Ask>,
    state: Arc<State>,
    listeners: Arc<Listeners>,
    desk: Arc<Desk>,
    home: Arc<Home>,
    /// For connections of a check-up.
    address: Address,
    settings: Settings,
}

impl RedisNode {
    /// The node at `address`, with the system's clock, randomness and network.
    #[must_use]
    pub fn new(address: Address) -> RedisNode {
        RedisNode::with(address, Settings::default())
    }

    /// The node at `address`.
    pub(crate) fn with(address: Address, settings: Settings) -> RedisNode {
        let (queue, questions) = mpsc::unbounded_channel();
        let state = Arc::new(State::new());
        let name: Arc<str> = address.name().into();
        let listeners = Arc::new(Listeners::default());
        let desk = Desk::new(
            Arc::clone(&name),
            address.clone(),
            settings.clone(),
            questions,
            Arc::clone(&state),
            Arc::clone(&listeners),
        );
        let (clock, work) = (Arc::clone(&settings.clock), Box::new(Arc::clone(&desk)));
        let home = Home::new(Arc::clone(&name), clock, work);
        RedisNode { name, queue, state, listeners, desk, home, address, settings }
    }
}

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, question: Asked, reply: Reply) {
        let place = match self.home.begin().and_then(|()| self.state.admit(&question)) {
            Ok(place) => place,
            Err(error) => {
                // As it has stood since its task was last driven.
                drop(self.home.knock());
                return reply.send(Err(error));
            }
        };
        if let Err(unsent) = self.queue.send(Ask { question, reply, place, stage: Stage::Fresh }) {
            let reason = "the node was dropped";
            unsent.0.answer(Err(NodeError::Unreachable { reason: reason.into() }));
        }
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        let begun = self.home.knock();
        let (desk, state) = (Arc::clone(&self.desk), Arc::clone(&self.state));
        Box::pin(async move {
            begun?;
            desk.contacted().await;
            state.connected()
        })
    }

    fn round_trip(&self) -> Option<Duration> {
        self.state.round_trip()
    }

    fn takes_several(&self) -> bool {
        true
    }

    /// Hints come over the connection that carries the votes (`CLIENT TRACKING` over RESP3). It is
    /// asked for them if somebody listens by the time it is made: who listens later, and is the
    /// first, hears from the next connection on. Changes made through this node are not told.
    fn listen(&self, listener: Arc<dyn Listener>) {
        self.listeners.add(listener);
    }

    fn facts(&self) -> Option<Arc<Facts>> {
        self.state.facts()
    }

    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        let (address, settings) = (self.address.clone(), self.settings.clone());
        Box::pin(async move { Some(examine::examine(address, settings, key).await) })
    }

    fn observe(&self, observer: Arc<dyn Watcher>) {
        self.state.observe(observer);
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode").field("name", &self.name).finish_non_exhaustive()
    }
}
