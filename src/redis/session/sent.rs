//! A request in flight, and the reply that it expects.

use super::super::admission::PendingRequest;
use super::super::exchange::Awaited;
use super::super::push::is_change_of;
use crate::node::{NodeError, Request};
use quorlock_protocol::{Moment, turn_key};

/// A request that was sent and has a reply to come.
pub(super) struct Sent {
    pub(super) expected: Expected,
    pub(super) at: Moment,
}

impl Sent {
    /// Returns whether the push says that what the client itself has there has changed, because of this request: the place of
    /// a waiter that it enqueues again, or a lock that it renews. Redis 6.0 pushes that just before its reply; it is not the
    /// waiter's turn then, and the holder has lost nothing.
    pub(super) fn changes_own(&self, push: &[u8]) -> bool {
        let Expected::Response { pending, .. } = &self.expected else { return false };
        if let Request::Enqueue { key, waiter, .. } = &*pending.request {
            return is_change_of(push, turn_key(key, *waiter).as_bytes());
        }
        let Request::Renew { claim, .. } = &*pending.request else { return false };
        claim.keys().any(|key| is_change_of(push, key.as_bytes()))
    }

    /// Returns the usual reply. If exactly that arrives, it is skipped without parsing.
    pub(super) fn usual(&self) -> Option<&'static [u8]> {
        if let Expected::Response { awaited, .. } = &self.expected { awaited.usual() } else { None }
    }
}

pub(super) enum Expected {
    Response {
        pending: PendingRequest,
        awaited: Awaited,
    },
    Undo(Box<Undo>),
    /// The largest `max_ttl` of the clients.
    MaxTtl,
    /// Whether there was no secret of the inboxes.
    SecretLeft,
    /// The secret of the inboxes.
    Secret,
    /// The lists of nodes of the clients.
    NodeLists,
}

/// Releases what a failed request may have stored, before its error is reported.
pub(super) struct Undo {
    pub(super) pending: PendingRequest,
    pub(super) error: NodeError,
}
