//! The interface between the lock algorithm and a lock server, for programs that bring a [`Node`] of their
//! own.
//!
//! What a node does with a request is the same for every store, and is there to be used:
//!
//! | what the store can do in one step | its node uses | as in |
//! |---|---|---|
//! | read rows, and write them if they are unchanged | [`record`]: read, [`Records::apply`](record::Records::apply), write, answer | `quorlock-mysql`, `quorlock-sqlite` |
//! | run a script or a function | the same changes in the store's own language, compared with [`record`] by tests | this crate for Redis, `quorlock-postgres` |
//! | create keys in an order that all clients see, which end with their session | [`places`]: the first place holds the lock, the others wait | `quorlock-etcd`, `quorlock-zookeeper` |
//! | anything, from another language | `quorlock-exec`: a program with one line of JSON for each request | `gateways/` |
//!
//! # How a request runs
//!
//! A [`NodeKind`] makes nodes from URLs, with the clock, randomness, transport and settings of [`Seams`]. The library
//! sends a node a [`SharedRequest`] ([`Node::ask`]), which it answers once through the [`Responder`]: with a
//! [`Response`], whose [`Vote`] may count, or with a [`NodeError`], which says whether anything may have been carried
//! out. What it cannot do, its [`Capabilities`] say, and the library does not ask for it.
//!
//! ```text
//! Coordinator ── SharedRequest ──► Node::ask ──► the store
//!     ▲                               │
//!     ├──── Responder: Response ◄─────┤   one answer for each request
//!     ├──── HintListener: Hint ◄──────┤   a key has changed; an offer has come
//!     └──── StatusListener ◄──────────┘   the connection has come or gone
//! ```
//!
//! | a node | if it has more than the minimum |
//! |---|---|
//! | [`Node::listen`] | notifies a [`HintListener`] of changed keys, so that waiters need not poll |
//! | [`Node::observe`], [`Observers`] | notifies a [`StatusListener`] of its connection, for [`health`](crate::health) |
//! | [`Node::facts`], [`Node::examine`] | collects [`Facts`] for [`doctor`](crate::doctor) |
//! | [`Node::list_keys`] | lists its locks as [`KeyPages`], for [`Coordinator::list`](crate::Coordinator::list) |
//!
//! The page "Write a node" of the book (`docs/write-a-node.md`) leads through an implementation;
//! `quorlock_testkit::contract` tests one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::runtime::BoxFuture;

use self::facts::Facts;

pub(crate) mod catch_panic;
pub mod facts;
mod hint;
mod key_pages;
mod kind;
mod kinds;
pub(crate) mod lists;
pub(crate) mod max_ttls;
mod observers;
pub(crate) mod password;
pub mod places;
mod responder;
mod seams;
// For the kinds of node of this project.
#[doc(hidden)]
pub mod shedlock;

pub use crate::address::{AddressError, percent_decoded};
pub use hint::{ConnectionState, Hint, HintListener, StatusListener};
pub use key_pages::KeyPages;
pub use kind::{NodeAddress, NodeKind};
pub use kinds::Kinds;
pub(crate) use max_ttls::MaxTtlNotes;
pub use observers::Observers;
pub(crate) use quorlock_protocol::node::risk_of_one;
#[doc(inline)]
pub use quorlock_protocol::node::{
    Access, Capabilities, Capability, Durability, Expiry, Grants, Hints, Holding, Identity, NodeError,
    NodeErrorKind, NodeLimits, Order, QueueListing, Queued, QueuedWaiter, Reach, Reason, Request, Response,
    SharedRequest, StandsFor, Vote, record,
};
pub(crate) use responder::{Collect, ReceivedAt};
pub use responder::{Responder, ask};
pub use seams::Seams;

/// One independent lock server, which has one vote.
///
/// An implementation keeps these promises, which `quorlock_testkit::contract` checks:
///
/// - *One response*: each [`Request`] is answered exactly once, through its [`Responder`]. [`ask`](Node::ask)
///   does not block: slow work is done elsewhere. The response reflects the store after the request was sent,
///   and the TTL of a granted lock starts no earlier than the request was sent, or than the moment that the
///   response [names](Response::counting_from). A renewal may be answered from a heartbeat that the store has
///   confirmed, if that has also listed the key as still there.
/// - *Unknown is never no*: a store that could not be asked, or has not answered, is reported as a
///   [`NodeError`], whose variant says whether the request may have been carried out. No request is sent
///   twice.
/// - *Order*: requests for one key are carried out in the order in which they were sent, or the node declares
///   itself [`Order::Unordered`].
/// - *Minimum TTL*: a granted key is kept for its whole TTL unless it is released. A store that may drop it
///   at any moment, such as one with session locks, cannot be a node. A TTL that the store cannot keep is
///   refused as [`Unsupported`](NodeErrorKind::Unsupported).
/// - *Tombstones*: after a [`Cancel`](Request::Cancel), late requests of the same claim do nothing.
/// - *Memory*: a response names the [history](Identity) of the data that it comes from. A store that may have
///   forgotten a grant starts a new history.
/// - *Fencing*: each lock has a counter that only grows. It is kept by this library, because the version
///   numbers of stores cannot be compared across nodes.
///
/// # Examples
///
/// A minimal node has a name and one method:
///
/// ```
/// use quorlock::node::{Node, NodeError, Responder, SharedRequest};
///
/// #[derive(Debug)]
/// struct Unplugged;
///
/// impl Node for Unplugged {
///     fn name(&self) -> &str {
///         "unplugged"
///     }
///
///     fn ask(&self, _request: SharedRequest, responder: Responder) {
///         responder.send(Err(NodeError::Unreachable { reason: "it is not plugged in".into() }));
///     }
/// }
/// ```
pub trait Node: fmt::Debug + Send + Sync + 'static {
    /// Returns the display name: an address without its password.
    fn name(&self) -> &str;

    /// Sends a request. Must neither block nor panic: the call of a client that acquires, renews or releases a lock makes it.
    fn ask(&self, request: SharedRequest, responder: Responder);

    /// Resolves once the first contact with the server was made or has failed. Until then, requests may have
    /// to wait for the connection. Resolves immediately unless overridden.
    ///
    /// The library also calls it to make a silent node reconnect, and drops the future: a node must start to
    /// connect when this is called, not when the future is polled.
    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns how long the server took to answer when the connection was made: a hint for how long to wait
    /// for its first vote. `None` unless overridden; the library then measures votes.
    fn round_trip(&self) -> Option<Duration> {
        None
    }

    /// Returns what the node supports, and its properties. Must never change. Unless overridden, the minimum
    /// that a node supports.
    ///
    /// The library never sends a request that the node does not support: a lock that needs it is refused when
    /// it is acquired or validated, naming the node, or works without it. A node that wraps another one forwards this.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Returns the limits of the node, as far as they are known by now. No limits unless overridden.
    fn limits(&self) -> NodeLimits {
        NodeLimits::default()
    }

    /// Returns by how much the time of a grant or a renewal may begin before it was asked for, with this TTL and while the
    /// servers are sound: see [`Response::counting_from`]. The library renews early enough for it, refuses a TTL of which
    /// too little would be left, and lets programs end in time. It may change when the server is connected. Zero unless
    /// overridden, which is right for a node whose responses name no earlier moment.
    fn grant_age(&self, ttl: Duration) -> Duration {
        let _ = ttl;
        Duration::ZERO
    }

    /// Registers a `listener`, which is notified from now on of changes to keys that this node has refused,
    /// so that waiters need not poll. A node that cannot detect changes ignores this, and its waiters retry
    /// after pauses.
    ///
    /// Called once for each listener, before the first request. All listeners stay registered.
    fn listen(&self, listener: Arc<dyn HintListener>) {
        drop(listener);
    }

    /// Returns what the server reported about itself at the last connection, without a request.
    fn facts(&self) -> Option<Arc<Facts>> {
        None
    }

    /// Collects the facts that `doctor` needs from the server, over a connection of its own. Probes use
    /// `key`, which is free, and keys derived from it, and delete them afterwards. Must finish within
    /// seconds, whatever the server does. Resolves to `None` unless overridden: such a node is not examined.
    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        drop(key);
        Box::pin(std::future::ready(None))
    }

    /// Lists the keys of locks that begin with `prefix`: of those that are stored, or of those that have a queue of
    /// waiters. Page by page, each of which occupies the store for less than a millisecond, over a connection of its
    /// own; the library makes a pause after each. A key that is there during the whole listing is listed, perhaps
    /// twice; one that comes or goes meanwhile may be. Unless overridden, the only page is an error that says that the
    /// node cannot list its keys.
    ///
    /// Auxiliary keys of locks ([`is_auxiliary_key`](crate::protocol::is_auxiliary_key)) may be listed, and are dropped
    /// by the library.
    fn list_keys(&self, prefix: Arc<str>, which: ListedKeys) -> KeyPages {
        drop((prefix, which));
        KeyPages::unfold((), |()| async {
            let reason = "nodes of this kind cannot list their keys".into();
            Err(NodeError::Failed { kind: NodeErrorKind::Unsupported, reason })
        })
    }

    /// Notifies `observer` of the state of the connection to the server, now and whenever it changes. A node
    /// that does not know its state ignores this, and its [health](crate::health::Health) stays unknown.
    fn observe(&self, observer: Arc<dyn StatusListener>) {
        drop(observer);
    }
}

/// The keys that a node [lists](Node::list_keys).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    clippy::exhaustive_enums,
    reason = "complete: a lock is stored under its key, and its queue beside it"
)]
pub enum ListedKeys {
    /// Those that are stored: held, shared or retained locks. Other data with a key of such a name is listed as well
    /// where the store cannot tell it from a lock.
    Locks,
    /// Those with a queue of waiters, held or not.
    Queues,
}

/// Implements these methods of [`Node`], or all of them, by those of the node to which the expression refers:
/// `forward_node!(self => &self.node; name ready)`.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_node {
    ($self:ident => $node:expr) => {
        $crate::node::forward_node! {
            $self => $node;
            name ask ready round_trip capabilities limits grant_age listen facts examine list_keys observe
        }
    };
    ($self:ident => $node:expr; $($method:ident)*) => {
        $($crate::node::forward_node! { @$method $self $node })*
    };
    (@name $self:ident $node:expr) => {
        fn name(&$self) -> &str {
            $crate::node::Node::name($node)
        }
    };
    (@ask $self:ident $node:expr) => {
        fn ask(&$self, request: $crate::node::SharedRequest, responder: $crate::node::Responder) {
            $crate::node::Node::ask($node, request, responder);
        }
    };
    (@ready $self:ident $node:expr) => {
        fn ready(&$self) -> $crate::runtime::BoxFuture<'static, Result<(), $crate::node::NodeError>> {
            $crate::node::Node::ready($node)
        }
    };
    (@round_trip $self:ident $node:expr) => {
        fn round_trip(&$self) -> Option<std::time::Duration> {
            $crate::node::Node::round_trip($node)
        }
    };
    (@capabilities $self:ident $node:expr) => {
        fn capabilities(&$self) -> $crate::node::Capabilities {
            $crate::node::Node::capabilities($node)
        }
    };
    (@limits $self:ident $node:expr) => {
        fn limits(&$self) -> $crate::node::NodeLimits {
            $crate::node::Node::limits($node)
        }
    };
    (@grant_age $self:ident $node:expr) => {
        fn grant_age(&$self, ttl: std::time::Duration) -> std::time::Duration {
            $crate::node::Node::grant_age($node, ttl)
        }
    };
    (@listen $self:ident $node:expr) => {
        fn listen(&$self, listener: std::sync::Arc<dyn $crate::node::HintListener>) {
            $crate::node::Node::listen($node, listener);
        }
    };
    (@facts $self:ident $node:expr) => {
        fn facts(&$self) -> Option<std::sync::Arc<$crate::node::facts::Facts>> {
            $crate::node::Node::facts($node)
        }
    };
    (@examine $self:ident $node:expr) => {
        fn examine(
            &$self,
            key: std::sync::Arc<str>,
        ) -> $crate::runtime::BoxFuture<'static, Option<$crate::node::facts::Facts>> {
            $crate::node::Node::examine($node, key)
        }
    };
    (@list_keys $self:ident $node:expr) => {
        fn list_keys(
            &$self,
            prefix: std::sync::Arc<str>,
            which: $crate::node::ListedKeys,
        ) -> $crate::node::KeyPages {
            $crate::node::Node::list_keys($node, prefix, which)
        }
    };
    (@observe $self:ident $node:expr) => {
        fn observe(&$self, observer: std::sync::Arc<dyn $crate::node::StatusListener>) {
            $crate::node::Node::observe($node, observer);
        }
    };
}

#[doc(hidden)]
pub use forward_node;

/// A shared node is a node: the same one can be given to a coordinator and kept.
impl<N: Node + ?Sized> Node for Arc<N> {
    forward_node!(self => &**self);
}
