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
use tokio::runtime::Handle;
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
use self::state::{Ask, Stage, State};
use self::supervisor::Desk;
use super::{Asked, Listener, Node, NodeError, Reply, Watcher};
use crate::clock::{Clock, SystemClock};
use crate::entropy::{Entropy, SystemEntropy};
use crate::examination::Facts;
use crate::max_ttls::MaxTtls;
use crate::protocol::gate;

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
mod request;
pub mod scripts;
mod sentinel;
mod server_error;
mod start;
mod state;
mod supervisor;
mod swift;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod wire;

/// What a Redis node works with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) connect_limit: ConnectLimit,
    pub(crate) notices: Notices,
    pub(crate) membership: Membership,
    /// How long a vote may wait for replicas, where the address asks for that.
    pub(crate) copy_limit: Duration,
    /// Where a server that was promoted keeps since when it is a master; `None` with the restart guard
    /// off, which does not want to know.
    pub(crate) gate: Option<Arc<str>>,
    /// Where what nodes tell of other clients' `max_ttl` is compared with ours, and which of them this is.
    pub(crate) max_ttls: Option<(Arc<MaxTtls>, usize)>,
}

/// Whether what stands out at a connection is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notices {
    Logged,
    /// A check-up tells it.
    ToldElsewhere,
}

/// Whether a server stands alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Membership {
    Alone,
    OfCluster,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            dial: Arc::new(SystemDial::default()),
            connect_limit: ConnectLimit::default(),
            notices: Notices::Logged,
            membership: Membership::Alone,
            copy_limit: Duration::from_millis(25),
            gate: Some(gate("").into()),
            max_ttls: None,
        }
    }
}

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

/// The runtime that a node's task lives on.
fn runtime() -> Result<Handle, NodeError> {
    Handle::try_current().map_err(|_| {
        let reason = "there is no Tokio runtime here to connect from; call from within one";
        NodeError::Unreachable { reason: reason.into() }
    })
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
