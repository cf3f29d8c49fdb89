//! One independent lock server, as a few requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use self::facts::Facts;

mod capabilities;
pub(crate) mod error;
pub mod facts;
mod hint;
mod kind;
mod kinds;
pub(crate) mod max_ttls;
mod request;
mod responder;
mod response;
mod seams;
mod shared_request;

pub use crate::address::{AddressError, percent_decoded};
pub use crate::reason::Reason;
pub(crate) use capabilities::risk_of_one;
pub use capabilities::{Capabilities, Capability, Durability, Hints, NodeLimits, Order, Reach, StandsFor};
pub use error::{Access, NodeError, NodeErrorKind};
pub use hint::{ConnectionState, Hint, HintListener, StatusListener};
pub use kind::{NodeAddress, NodeKind};
pub use kinds::Kinds;
pub use max_ttls::MaxTtlNotes;
pub use request::Request;
pub(crate) use responder::{Collect, ReceivedAt};
pub use responder::{Responder, ask};
pub use response::{Expiry, Holding, Identity, QueueListing, Queued, QueuedWaiter, Response, Vote};
pub use seams::Seams;
pub use shared_request::SharedRequest;

/// One independent lock server. It votes.
///
/// Nothing above this trait knows Redis. An implementation keeps these promises, which
/// `quorlock_testkit::contract` checks:
///
/// - *One answer*: each [`Request`] is answered once, through its [`Responder`], and
///   [`ask`](Node::ask) does not block: what takes time happens elsewhere. The answer is what the store says
///   after it was asked, and a lock that it grants counts from before it was asked, or from the earlier
///   moment that the answer [names](Response::counting_from).
/// - *Unknown is never no*: a store that could not be asked, or has not answered, is a [`NodeError`], whose
///   variant says whether the request may have been carried out. Nothing is sent twice.
/// - *Order*: requests for one key are carried out in the order in which they were asked, or the node says
///   that they are [not](Order::Unordered).
/// - *A floor*: a key that was granted for a time stays for that time, unless it is released. What a store
///   may end at any moment, such as a lock of its session, cannot be a node. A TTL that it cannot keep is
///   refused, as [`Unsupported`](NodeErrorKind::Unsupported).
/// - *Tombstones*: after a [`Cancel`](Request::Cancel) the requests of that claim that come late do nothing.
/// - *Memory*: an answer names the [history](Identity) of the data that it comes from. A store that may have
///   forgotten a grant has a new one.
/// - *Fencing*: each lock has a counter that only grows. It is this library's own, since the numbers that
///   stores have for their writes cannot be compared with those of other nodes.
///
/// # Examples
///
/// A node of one's own is one method and a name:
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
    /// What people call it: an address without its password.
    fn name(&self) -> &str;

    /// Asks one thing. Must not block.
    fn ask(&self, request: SharedRequest, responder: Responder);

    /// Ends when the first contact with the server has been made, or has failed. Until then
    /// requests may have to wait for the connection. Ready at once unless overridden.
    ///
    /// The library also calls it to have a silent node try again, and drops the future: a node that connects
    /// does so when this is called, and not when the future is polled.
    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// How long the server took to answer when the connection was made: a hint of how long to wait for
    /// its first vote. `None`, unless overridden; then the votes tell.
    fn round_trip(&self) -> Option<Duration> {
        None
    }

    /// What it can do, and what it is. Always the same. The least that a node can be, unless overridden.
    ///
    /// What it cannot do is not asked of it: a lock that needs that is refused when it is made, naming the
    /// node, or does without. A node of others, which adds something to theirs, passes this on.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// What it can keep to, as far as it is known by now. No limits, unless overridden.
    fn limits(&self) -> NodeLimits {
        NodeLimits::default()
    }

    /// From now on tells `listener` what happens to keys that this node has refused, so that
    /// whoever waits for them need not ask again and again. A node that cannot know says nothing,
    /// and its waiters ask again after pauses.
    ///
    /// Called before the node is asked for the first time, once for each listener: all of them stay.
    fn listen(&self, listener: Arc<dyn HintListener>) {
        drop(listener);
    }

    /// What is known of the server from the last time it introduced itself, without asking it.
    fn facts(&self) -> Option<Arc<Facts>> {
        None
    }

    /// Asks the server what a check-up has to know, over a connection of its own. What is probed is
    /// probed on `key`, which is free, and on its siblings, and nothing is left there. Ends in
    /// seconds, whatever the server does. `None`, unless overridden: such a node is not examined.
    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        drop(key);
        Box::pin(std::future::ready(None))
    }

    /// Tells `observer` how this node stands to its server, and from now on whenever that changes.
    /// A node that does not know says nothing, and its [health](crate::health::Health) stays unknown.
    fn observe(&self, observer: Arc<dyn StatusListener>) {
        drop(observer);
    }
}

/// A shared node is a node: the same one can be given to a coordinator and kept.
impl<N: Node + ?Sized> Node for Arc<N> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn ask(&self, request: SharedRequest, responder: Responder) {
        (**self).ask(request, responder);
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        (**self).ready()
    }

    fn round_trip(&self) -> Option<Duration> {
        (**self).round_trip()
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn limits(&self) -> NodeLimits {
        (**self).limits()
    }

    fn listen(&self, listener: Arc<dyn HintListener>) {
        (**self).listen(listener);
    }

    fn facts(&self) -> Option<Arc<Facts>> {
        (**self).facts()
    }

    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        (**self).examine(key)
    }

    fn observe(&self, observer: Arc<dyn StatusListener>) {
        (**self).observe(observer);
    }
}
