//! Why a node gave no vote.

use std::sync::Arc;
use std::time::Duration;

/// Why a node gave no vote.
///
/// An error means that nobody knows what the node has done, unless
/// [`may_have_acted`](NodeError::may_have_acted) says that nothing was sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// There is no connection, and the question was not sent.
    #[error("unreachable: {reason}")]
    Unreachable {
        /// Why there is none.
        reason: Arc<str>,
    },
    /// The question was sent and has not been answered.
    #[error("no answer within {}", crate::duration::format(*.waited))]
    Unanswered {
        /// The time limit that has passed.
        waited: Duration,
    },
    /// The connection ended before the answer came.
    #[error("the connection ended before it answered: {reason}")]
    Disconnected {
        /// What ended it.
        reason: Arc<str>,
    },
    /// So many earlier questions wait for this node that this one was not sent.
    #[error("{waiting} earlier requests are unanswered, so this one was not sent")]
    Overloaded {
        /// How many.
        waiting: usize,
    },
    /// The server did as asked, and too few replicas confirmed it in time: a failover may forget it.
    #[error(
        "done, and confirmed in time by {copies} of the {needed} replicas that must have it, so it does not count"
    )]
    Unconfirmed {
        /// How many did.
        copies: u64,
        /// How many must: `wait` in the node's address.
        needed: u64,
    },
    /// The question became pointless before it was sent.
    #[error("not asked: the attempt was over before the connection was ready")]
    NotAsked,
    /// The server may not vote, whatever it would say.
    #[error("{reason}")]
    Unfit {
        /// What is wrong with it, and what would be right.
        reason: Arc<str>,
    },
    /// The semaphore has another number of permits there.
    #[error(
        "the semaphore has {found} permits there, and this program asks for {asked}: all must ask for the \
         same, and another number is possible when nobody has held a permit for one TTL"
    )]
    OtherLimit {
        /// As the node has it.
        found: Arc<str>,
        /// As it was asked for.
        asked: Arc<str>,
    },
    /// The server answered with an error.
    #[error("{message}")]
    Failed {
        /// The server's own words, and what they mean here.
        message: Arc<str>,
        /// Whether trying again can help without anybody mending something.
        lasting: Lasting,
    },
}

/// Whether an error ends by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: it ends by itself or it does not")]
pub enum Lasting {
    /// It may pass: the server is loading, busy or out of memory.
    Passing,
    /// Somebody has to mend it: missing rights, a wrong password, a key of the wrong type.
    UntilMended,
}

impl NodeError {
    /// Whether the node may have carried out the question, now or later.
    #[must_use]
    pub fn may_have_acted(&self) -> bool {
        match self {
            NodeError::Unanswered { .. }
            | NodeError::Disconnected { .. }
            | NodeError::Unconfirmed { .. }
            | NodeError::OtherLimit { .. } => true,
            NodeError::Unreachable { .. }
            | NodeError::Overloaded { .. }
            | NodeError::NotAsked
            | NodeError::Unfit { .. }
            | NodeError::Failed { .. } => false,
        }
    }

    /// Whether somebody has to mend something before this node can grant.
    #[must_use]
    pub fn lasts(&self) -> bool {
        match self {
            NodeError::Unfit { .. }
            | NodeError::OtherLimit { .. }
            | NodeError::Failed { lasting: Lasting::UntilMended, .. } => true,
            NodeError::Failed { lasting: Lasting::Passing, .. }
            | NodeError::Unanswered { .. }
            | NodeError::Disconnected { .. }
            | NodeError::Unconfirmed { .. }
            | NodeError::Unreachable { .. }
            | NodeError::Overloaded { .. }
            | NodeError::NotAsked => false,
        }
    }
}
