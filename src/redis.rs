//! Nodes that are Redis or Valkey servers, masters behind Sentinels, or whole clusters.
//!
//! [`RedisNode`] is one server, found by its [`Address`] or as the master of a Sentinel service;
//! [`ClusterNode`] is a Redis Cluster with one vote, found by its [`ClusterAddress`].
//! [`Builder::nodes`](crate::Builder::nodes) makes both from URLs, so programs need this module only to wrap
//! or test a node. [`ServerError`] is the error of a server behind a [`NodeError`], and [`scripts`] has the
//! Lua scripts that the servers run.
//!
//! The pages `docs/masters.md` and `docs/topologies.md` of the book say how to run such servers.

// The only place that names the client crate. A handle passes a request to `admission`, and an admitted one
// to the queue of the node's task. There is one task per node, which `home` keeps on a runtime: the
// `supervisor` reconnects, the `handshake` identifies the server and decides whether it may vote, and a
// `session` runs requests over one connection until that ends. `command` encodes requests and decodes
// replies, and `push` handles what the server pushes. A `connection` reads and writes bytes; `resp` has the
// codec. `error` classifies errors. `inspect` is the health check, and `list` lists keys, over connections of their own. `info` parses
// what a server reports about itself, and `promotion` finds out what it does not report: since when it is
// master. `max_ttl` and `node_lists` compare what clients must have in common. `sentinel` finds the master
// of a service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::address::Layout;
pub use crate::address::{Address, ClusterAddress, Endpoint};
pub use cluster::ClusterNode;
pub use sentinel::SentinelErrors;
pub use server_error::{MissingRight, ServerError, ServerErrorKind};

use self::admission::{PendingRequest, State};
use self::handshake::may_offer;
use self::home::Home;
pub(crate) use self::kind::RedisKind;
use self::push::Listeners;
use self::settings::Settings;
use self::supervisor::NodeInner;
use crate::node::facts::Facts;
use crate::node::{
    Capabilities, Capability, HintListener, KeyPages, ListedKeys, Node, NodeError, Responder, SharedRequest,
    StatusListener,
};
use crate::transport::is_past_the_runtime;

mod admission;
mod cluster;
mod command;
mod connect_timeout;
mod connection;
mod error;
mod exchange;
mod handshake;
mod home;
mod inbox_secret;
mod info;
mod inspect;
mod introduction;
mod kind;
mod last_seen;
mod list;
mod login;
mod max_ttl;
mod node_lists;
mod observers;
mod process;
mod promotion;
mod push;
mod redisson;
mod resp;
mod scan;
#[doc(hidden)]
pub mod scripts;
mod seen_processes;
mod sentinel;
mod server_error;
mod session;
mod settings;
mod start;
mod supervisor;
#[cfg(test)]
mod tests;

/// A [`Node`] that is a Redis or Valkey server, with one supervised connection.
///
/// [`Builder::nodes`](crate::Builder::nodes) makes these from URLs. Create one directly to wrap it in a node
/// of your own, or to test it.
///
/// It connects at the first request or call of [`Node::ready`], not before. Its task runs on the Tokio
/// runtime of that call, and ends when the node is dropped: once all earlier requests were answered, or a
/// second later. If the runtime ends, the next request reconnects from its own runtime; so does
/// [`Node::ready`] if the runtime is not driven. A task that panics is restarted.
pub struct RedisNode {
    name: Arc<str>,
    queue: UnboundedSender<PendingRequest>,
    state: Arc<State>,
    listeners: Arc<Listeners>,
    inner: Arc<NodeInner>,
    home: Arc<Home>,
    /// For the connections of a health check.
    address: Address,
    settings: Settings,
}

impl RedisNode {
    /// Creates a node for the server at `address`, with the system's clock, randomness and network.
    #[must_use]
    pub fn new(address: Address) -> RedisNode {
        RedisNode::with(address, Settings::default())
    }

    /// Creates a node for the server at `address`, with these settings.
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

    fn ask(&self, request: SharedRequest, responder: Responder) {
        if let Err(error) = self.capabilities().check(&request) {
            return responder.send(Err(error));
        }
        let permit = match self.home.begin().and_then(|()| self.state.admit(&request)) {
            Ok(permit) => permit,
            Err(error) => {
                // The state may be old: its task may not be driven.
                drop(self.home.wake());
                return responder.send(Err(error));
            }
        };
        if let Err(unsent) = self.queue.send(PendingRequest { request, responder, permit, step: None }) {
            let reason = "the node was dropped";
            unsent.0.answer(Err(NodeError::Unreachable { reason: reason.into() }));
        }
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        if is_past_the_runtime() {
            // A blocked runtime keeps its connection (rule O-12).
            self.home.poll_here();
        }
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

    /// Offers are excluded where a vote depends on the time of its request, or on other servers.
    fn capabilities(&self) -> Capabilities {
        if self.address.layout() == Layout::Redisson {
            return redisson::capabilities();
        }
        let all = Capabilities::all();
        if may_offer(&self.address, &self.settings) { all } else { all.without(Capability::Offer) }
    }

    /// Hints use the connection that carries the votes (`CLIENT TRACKING` over RESP3). They are enabled when
    /// the connection is made, if there is a listener by then; a first listener that is added later receives
    /// hints from the next connection on. Changes through this node produce no hints.
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

    fn list_keys(&self, prefix: Arc<str>, which: ListedKeys) -> KeyPages {
        list::keys(self.address.clone(), self.settings.clone(), prefix, which)
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
