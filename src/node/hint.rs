//! What a node tells without being asked.

use std::fmt;
use std::sync::Arc;

use super::{Identity, NodeError};
use quorlock_protocol::{InboxId, InboxMessage};

/// Sees how a [`Node`](crate::node::Node) stands to its server.
pub trait StatusListener: fmt::Debug + Send + Sync {
    /// Called from the node's own task: must not block, nor call that node.
    fn on_status(&self, contact: ConnectionState);
}

/// How a [`Node`](crate::node::Node) stands to its server.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectionState {
    /// This process answers.
    Connected(Arc<Identity>),
    /// Some of the servers that it is made of answer, and others do not: a cluster that some of its
    /// masters are lost of.
    Partial(NodeError),
    /// There is a connection, and it has not been answered over for a while.
    Stalled(NodeError),
    /// There is no connection, and another one is being tried.
    Lost(NodeError),
    /// There is none, and nobody tries: the node was dropped, or its runtime has ended or is not driven. The
    /// next call connects again.
    Ended(NodeError),
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionState::Connected(identity) => write!(f, "connected to {}", identity.id),
            ConnectionState::Partial(reason)
            | ConnectionState::Stalled(reason)
            | ConnectionState::Lost(reason)
            | ConnectionState::Ended(reason) => reason.fmt(f),
        }
    }
}

/// Hears from a [`Node`](crate::node::Node) what may be worth asking again.
///
/// Hints are no answers: they may come late, twice, for no reason, or not at all. Whoever acts on
/// one asks the node, and whoever waits for one also waits for a time.
pub trait HintListener: fmt::Debug + Send + Sync {
    /// Called from the node's own task: must not block, nor ask that node.
    fn on_hint(&self, hint: Hint<'_>);

    /// Where it receives messages from nodes that can [offer](crate::node::Request::Offer) locks, if it does: the node
    /// subscribes to that before it asks for the first time, and says so by [`inbox_open`](HintListener::inbox_open).
    fn inbox(&self) -> Option<InboxId> {
        None
    }

    /// From now on, until [`Hint::Unsubscribed`], messages to the inbox arrive.
    fn inbox_open(&self) {}

    /// The node, with this history of its data, sends a message to the inbox. Unlike a hint, an offer is an answer:
    /// the node's vote. As [`hear`](HintListener::on_hint) it must not block, nor ask that node.
    fn receive(&self, message: InboxMessage<'_>, from: &Arc<Identity>) {
        let _ = (message, from);
    }
}

/// What a [`HintListener`] hears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: something is known of one key, of all, or of none")]
pub enum Hint<'a> {
    /// From now on changes are told: of every key for which the node answers [`Vote::Held`](crate::node::Vote::Held), the
    /// next change after that answer, be it a release, an expiry or anything else. The same of a key
    /// of which an [inspection](crate::node::Request::Inspect) has found that it is free.
    Subscribed,
    /// This key has changed or ended.
    Invalidated(&'a [u8]),
    /// Any key may have changed without a word, such as when all keys were deleted.
    Flushed,
    /// From now on nothing is told, and what was asked for before is forgotten: the connection
    /// ended.
    Unsubscribed,
}
