//! One independent lock server, as a few questions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use self::facts::Facts;

mod answer;
pub(crate) mod error;
pub(crate) mod facts;
mod hint;
pub(crate) mod max_ttls;
mod prepared;
mod question;
mod reply;

pub use answer::{Answer, Expiry, Holding, Instance, Vote};
pub use error::{Access, NodeError, NodeErrorKind, Reason};
pub use hint::{Contact, Hint, Listener, Watcher};
pub use prepared::Asked;
pub use question::Question;
pub(crate) use reply::{Came, Collect};
pub use reply::{Reply, ask};

/// One independent lock server. It votes.
///
/// Nothing above this trait knows Redis. A node answers each [`Question`] once, through its
/// [`Reply`]; an error means *unknown*, never *no*.
///
/// Implementations keep two promises. Questions are carried out in the order in which they were
/// asked, as long as the node was not restarted: a release that was asked after an acquisition
/// never overtakes it. And [`ask`](Node::ask) does not block: what takes time happens elsewhere.
///
/// # Examples
///
/// A node of one's own is one method and a name:
///
/// ```
/// use quorlock::{Asked, Node, NodeError, Reply};
///
/// #[derive(Debug)]
/// struct Unplugged;
///
/// impl Node for Unplugged {
///     fn name(&self) -> &str {
///         "unplugged"
///     }
///
///     fn ask(&self, _question: Asked, reply: Reply) {
///         reply.send(Err(NodeError::Unreachable { reason: "it is not plugged in".into() }));
///     }
/// }
/// ```
pub trait Node: fmt::Debug + Send + Sync + 'static {
    /// What people call it: an address without its password.
    fn name(&self) -> &str;

    /// Asks one question. Must not block.
    fn ask(&self, question: Asked, reply: Reply);

    /// Ends when the first contact with the server has been made, or has failed. Until then
    /// questions may have to wait for the connection. Ready at once unless overridden.
    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// How long the server took to answer when the connection was made: a hint of how long to wait for
    /// its first vote. `None`, unless overridden; then the votes tell.
    fn round_trip(&self) -> Option<Duration> {
        None
    }

    /// Whether it understands a claim of [several](crate::protocol::Claim::and) keys: does what is asked at all of them
    /// or at none. `false` unless overridden: a node that looked at the first key only would let others
    /// have the rest, so such a claim is not made where a node does not say that it can.
    fn takes_several(&self) -> bool {
        false
    }

    /// From now on tells `listener` what happens to keys that this node has refused, so that
    /// whoever waits for them need not ask again and again. A node that cannot know says nothing,
    /// and its waiters ask again after pauses.
    fn listen(&self, listener: Arc<dyn Listener>) {
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
    /// A node that does not know says nothing, and its [health](crate::Health) stays unknown.
    fn observe(&self, observer: Arc<dyn Watcher>) {
        drop(observer);
    }
}
