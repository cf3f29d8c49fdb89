//! Announces a writer that waits for readers.

use std::sync::Arc;

use super::Contender;
use crate::engine::options::AcquireRequest;
use crate::node::Request;
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::votes::{NodeVote, VoteOutcome, VoteReport};
use quorlock_protocol::{INTENT_AGE, INTENT_PATIENCE, Mode, Moment};

/// A writer's announcement on the nodes while it waits for readers.
pub(super) struct Intent {
    /// The key that the readers share.
    pub(super) key: Arc<str>,
    /// When it was last sent.
    announced_at: Moment,
}

impl Contender {
    /// If readers hold the lock, asks all nodes to admit no new readers (rule S-5): with the
    /// preferred node alone, readers would find a quorum among the others. Done only while readers
    /// hold the lock, or writers that wait for each other would keep readers out forever; and only by
    /// the first in the queue, or a reader whose turn comes before it would be refused, and the lock
    /// stay free meanwhile. `key` is what the votes are about that name none.
    pub(super) fn announce_intent(
        &mut self,
        acquisition: &AcquireRequest,
        (key, report): (&Arc<str>, &VoteReport),
        now: Moment,
    ) {
        let by_readers = |vote: &NodeVote| {
            let VoteOutcome::Held(holding) = &vote.outcome else { return None };
            let key = holding.key.as_ref().unwrap_or(key);
            holding.token.is_marker().then(|| key.clone())
        };
        let shared_key = report.votes().iter().find_map(by_readers);
        let Some(key) = shared_key.filter(|_| self.mode == Mode::Exclusive) else { return };
        if self.intent.as_ref().is_some_and(|intent| intent.key != key) {
            self.withdraw_intent(acquisition);
        }
        if self.intent.as_ref().is_some_and(|intent| now.since(intent.announced_at) < INTENT_AGE) {
            return;
        }
        self.intent = Some(Intent { key: key.clone(), announced_at: now });
        let (waiter, patience) = (self.queue.waiter(), INTENT_PATIENCE);
        let request = |_| Some(Request::AnnounceWriter { key: key.clone(), waiter, patience });
        drop(Round::start(&self.engine.nodes, Expect::AnyAnswer, acquisition.ttl, request));
    }

    /// Withdraws the writer's announcement: it has the lock or has given up.
    pub(super) fn withdraw_intent(&mut self, acquisition: &AcquireRequest) {
        if let Some(Intent { key, .. }) = self.intent.take() {
            let waiter = self.queue.waiter();
            let request = |_| Some(Request::WithdrawWriter { key: key.clone(), waiter });
            self.engine.ask_in_background(acquisition.ttl, request);
        }
    }
}
