//! Announces a writer that waits for readers.

use std::sync::Arc;

use super::Contender;
use crate::engine::options::AcquireRequest;
use crate::engine::queue::HolderMode;
use crate::node::{Request, SharedRequest};
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{Mode, Moment};

impl Contender {
    /// Tells all nodes, if readers hold the lock. Done only by the first in the queue, or a reader whose turn comes before it
    /// would be refused, and the lock stay free meanwhile. `key` is what the votes are about that name none.
    pub(super) fn announce_intent(
        &mut self,
        acquisition: &AcquireRequest,
        votes: (&Arc<str>, &VoteReport),
        now: Moment,
    ) {
        if self.mode != Mode::Exclusive {
            return;
        }
        for request in self.intent.refused(votes, self.queue.waiter(), now) {
            if matches!(request, Request::WithdrawWriter { .. }) {
                self.withdraw(acquisition, request);
                continue;
            }
            let request = SharedRequest::from(request);
            drop(Round::start(&self.engine.nodes, Expect::AnyAnswer, acquisition.ttl, |_| {
                Some(request.clone())
            }));
        }
    }

    /// Withdraws the writer's announcement: it has the lock or has given up.
    pub(super) fn withdraw_intent(&mut self, acquisition: &AcquireRequest) {
        if !self.intent.is_none()
            && let Some(request) = self.intent.withdraw(self.queue.waiter())
        {
            self.withdraw(acquisition, request);
        }
    }

    /// Asks all nodes to forget the writer. Readers of this process that were refused may ask again: nodes do not notify the
    /// connection that made a change.
    fn withdraw(&self, acquisition: &AcquireRequest, request: Request) {
        let request = SharedRequest::from(request);
        self.engine.ask_in_background(acquisition.ttl, |_| Some(request.clone()));
        self.engine.queues_of(Mode::Shared).given_back(&self.keys.iter(), HolderMode::Other);
    }
}
