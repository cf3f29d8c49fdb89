//! A node that is a Redis or Valkey server.
//!
//! The only place that names the client crate. A handle asks `admission` whether a request may be put, and
//! puts it into a queue. One task per node does the rest: the `supervisor` dials again and again,
//! the `handshake` tells who answers and whether it may vote, and a `session` carries requests over
//! one connection, as `command` has them, until that ends, and `push` the other way. A `connection` is the
//! bytes: in `resp` each request is written, the end of each message of the server found, which keeps it
//! small, and its content read. `error` says what errors mean. `inspect` is the check-up, over a connection
//! of its own; `info` reads what a server says of itself, and `promotion` what it cannot say: since when it
//! is a master. `replicas` has votes wait for replicas, and `sentinel` finds the master of a service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::mpsc::{self, UnboundedSender};

pub use crate::address::{Address, ClusterAddress, Endpoint};
pub use cluster::ClusterNode;
pub use sentinel::SentinelErrors;
pub use server_error::{MissingRight, ServerError, ServerErrorKind};

use self::admission::{Ask, Stage, State};
use self::handshake::may_offer;
use self::home::Home;
pub(crate) use self::kind::RedisKind;
use self::push::Listeners;
use self::settings::Settings;
use self::supervisor::NodeInner;
use crate::node::facts::Facts;
use crate::node::{
    Capabilities, Capability, HintListener, Node, NodeError, Request, Responder, SharedRequest,
    StatusListener,
};

mod admission;
mod cluster;
mod command;
mod connect_timeout;
mod connection;
mod contained;
mod error;
mod handshake;
mod home;
mod info;
mod inspect;
mod kind;
mod login;
mod met;
mod observers;
mod process;
mod promotion;
mod push;
mod replicas;
mod resp;
#[doc(hidden)]
pub mod scripts;
mod sentinel;
mod server_error;
mod session;
mod settings;
mod start;
mod supervisor;
#[cfg(test)]
mod tests;

/// A [`Node`] that is a Redis or Valkey server, reached over one supervised connection.
///
/// [`Builder::nodes`](crate::Builder::nodes) makes these from URLs. Make one yourself to wrap it in
/// a node of your own, or to test it.
///
/// Contacts nobody until the first request, or until somebody waits for [`Node::ready`]. Its task
/// lives on the runtime that is current then, and ends when the node is dropped: after what was
/// asked by then was answered, or a second later. When that runtime ends, the next request has another
/// task connect again from its own; so does [`Node::ready`] when the runtime is not driven. A task that
/// panics begins anew.
pub struct RedisNode {
    name: Arc<str>,
    queue: UnboundedSender<Ask>,
    state: Arc<State>,
    listeners: Arc<Listeners>,
    inner: Arc<NodeInner>,
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
        let (queue, requests) = mpsc::unbounded_channel();
        let state = Arc::new(State::new());
        let name: Arc<str> = address.name().into();
        let listeners = Arc::new(Listeners::default());
        let inner = NodeInner::new(
            Arc::clone(&name),
            address.clone(),
            settings.clone(),
            requests,
            Arc::clone(&state),
            Arc::clone(&listeners),
        );
        let (clock, work) = (Arc::clone(&settings.clock), Box::new(Arc::clone(&inner)));
        let home = Home::new(Arc::clone(&name), clock, work);
        RedisNode { name, queue, state, listeners, inner, home, address, settings }
    }
}

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: SharedRequest, reply: Responder) {
        if matches!(*request, Request::Offer { .. })
            && let Err(error) = self.capabilities().check(&request)
        {
            return reply.send(Err(error));
        }
        let place = match self.home.begin().and_then(|()| self.state.admit(&request)) {
            Ok(place) => place,
            Err(error) => {
                // As it has stood since its task was last driven.
                drop(self.home.wake());
                return reply.send(Err(error));
            }
        };
        if let Err(unsent) = self.queue.send(Ask { request, reply, place, stage: Stage::Fresh }) {
            let reason = "the node was dropped";
            unsent.0.answer(Err(NodeError::Unreachable { reason: reason.into() }));
        }
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        let begun = self.home.wake();
        let (inner, state) = (Arc::clone(&self.inner), Arc::clone(&self.state));
        Box::pin(async move {
            begun?;
            inner.contacted().await;
            state.connected()
        })
    }

    fn round_trip(&self) -> Option<Duration> {
        self.state.round_trip()
    }

    /// No offers where a vote depends on when it was asked for, or on who has it beside this server.
    fn capabilities(&self) -> Capabilities {
        let all = Capabilities::all();
        if may_offer(&self.address, &self.settings) { all } else { all.without(Capability::Offer) }
    }

    /// Hints come over the connection that carries the votes (`CLIENT TRACKING` over RESP3). It is
    /// asked for them if somebody listens by the time it is made: who listens later, and is the
    /// first, hears from the next connection on. Changes made through this node are not told.
    fn listen(&self, listener: Arc<dyn HintListener>) {
        self.listeners.add(listener);
    }

    fn facts(&self) -> Option<Arc<Facts>> {
        self.state.facts()
    }

    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        let (address, settings) = (self.address.clone(), self.settings.clone());
        Box::pin(async move { Some(inspect::examine(address, settings, key).await) })
    }

    fn observe(&self, observer: Arc<dyn StatusListener>) {
        self.state.observe(observer);
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode").field("name", &self.name).finish_non_exhaustive()
    }
}
