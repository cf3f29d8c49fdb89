//! Notifications that a node sends without a request.

use std::fmt;
use std::sync::Arc;

use super::{Identity, NodeError};
use quorlock_protocol::{InboxId, InboxMessage};

/// Receives the state of the connection between a [`Node`](super::Node) and its server.
pub trait StatusListener: fmt::Debug + Send + Sync {
    /// Called from the node's own task. Must not block, nor call that node.
    fn on_status(&self, contact: ConnectionState);
}

/// The state of the connection between a [`Node`](super::Node) and its server.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Connected to this process, which answers.
    Connected(Arc<Identity>),
    /// Some of the node's servers answer and others do not: a cluster that has lost some of its masters.
    Partial(NodeError),
    /// Connected, but without a response for a while.
    Stalled(NodeError),
    /// Not connected; reconnecting.
    Lost(NodeError),
    /// Not connected, and not reconnecting: the node was dropped, or its runtime has ended or is not driven.
    /// The next call reconnects.
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

/// Receives hints from a [`Node`](super::Node) about keys that may be worth another request.
///
/// A hint is no response: it may be late, duplicated, spurious or lost. A client that acts on a hint must ask
/// the node, and a client that waits for one must also have a timeout.
pub trait HintListener: fmt::Debug + Send + Sync {
    /// Called from the node's own task. Must not block, nor send a request to that node.
    fn on_hint(&self, hint: Hint<'_>);

    /// Returns the inbox for messages of nodes that can [offer](super::Request::Offer) locks, if the listener
    /// has one. The node subscribes to it before the first request, and then calls
    /// [`inbox_open`](HintListener::inbox_open).
    fn inbox(&self) -> Option<InboxId> {
        None
    }

    /// Messages to the inbox arrive from now on, until [`Hint::Unsubscribed`].
    fn inbox_open(&self) {}

    /// Receives a message to the inbox from the node with this history of its data. Unlike a hint, an offer
    /// is a response: the node's vote. As in [`on_hint`](HintListener::on_hint), must not block, nor send a request
    /// to that node.
    fn receive(&self, message: InboxMessage<'_>, from: &Arc<Identity>) {
        let _ = (message, from);
    }
}

/// A notification for a [`HintListener`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    clippy::exhaustive_enums,
    reason = "complete: a change of one key, of all keys, or of the notifications themselves"
)]
pub enum Hint<'a> {
    /// Notifications start. For every key for which the node answers [`Vote::Held`](super::Vote::Held), the
    /// next change after that response is notified, be it a release, an expiry or anything else. The same
    /// holds for a key that an [inspection](super::Request::Inspect) found free, and for the keys of a granted
    /// [renewal](super::Request::Renew), if the node [says so](super::Capabilities::hints_to_holders): of those the next
    /// change by another client.
    Subscribed,
    /// This key was changed or deleted, or has expired.
    Invalidated(&'a [u8]),
    /// Any key may have changed without a notification, such as when all keys were deleted.
    Flushed,
    /// Notifications stop, and earlier requests to be notified are forgotten: the connection ended.
    Unsubscribed,
}
