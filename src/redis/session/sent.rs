//! A request in flight, and the reply that it expects.

use super::super::admission::Ask;
use super::super::command::ByHash;
use super::super::command::reply::{DONE, STORED};
use super::super::command::transaction::{Deletion, PRELUDE, PRELUDE_ANSWERS};
use super::super::push::is_change_of;
use crate::node::{NodeError, Request};
use quorlock_protocol::{Moment, turn_key};

/// A request that was sent and has a reply to come.
pub(super) struct Sent {
    pub(super) expected: Expected,
    pub(super) at: Moment,
    /// The number of replies to skip before the one that counts.
    pub(super) prelude: u8,
}

impl Sent {
    /// Returns whether the push says that the place of a waiter has changed because this request enqueues it
    /// again. Redis 6.0 pushes that just before its reply; it is not the waiter's turn then.
    pub(super) fn changes_own_place(&self, push: &[u8]) -> bool {
        let Expected::Ask { ask, .. } = &self.expected else { return false };
        let Request::Enqueue { key, waiter, .. } = &*ask.request else { return false };
        is_change_of(push, turn_key(key, *waiter).as_bytes())
    }

    /// Returns the usual reply. If exactly that arrives, it is skipped without parsing.
    pub(super) fn usual(&self) -> Option<&'static [u8]> {
        match &self.expected {
            Expected::Ask { sent_as: SentAs::Transaction, .. } if self.prelude == PRELUDE => {
                Some(PRELUDE_ANSWERS)
            }
            Expected::Ask { sent_as: SentAs::Plain, .. } => Some(STORED),
            Expected::Ask { sent_as: SentAs::Scripted(_), .. } => Some(DONE),
            Expected::Ask { .. }
            | Expected::Undo(_)
            | Expected::ReplicaAck
            | Expected::MaxTtl
            | Expected::NodeLists => None,
        }
    }
}

pub(super) enum Expected {
    Ask {
        ask: Ask,
        sent_as: SentAs,
    },
    Undo(Box<Undo>),
    /// The number of replicas that have all votes sent before.
    ReplicaAck,
    /// The largest `max_ttl` of the clients.
    MaxTtl,
    /// The lists of nodes of the clients.
    NodeLists,
}

/// Releases what a failed request may have stored, before its error is reported.
pub(super) struct Undo {
    pub(super) ask: Ask,
    pub(super) error: NodeError,
}

/// How a request was sent.
pub(super) enum SentAs {
    /// As a script.
    Scripted(ByHash),
    /// As a plain command.
    Plain,
    /// As an acquisition without a script: see ADR 16.
    Transaction,
    /// As a release without a script, with the first of its two replies.
    Deletion(Option<Deletion>),
}
