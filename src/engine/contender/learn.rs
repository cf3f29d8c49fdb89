//! Learns from refusals.

use super::Contender;
use quorlock_protocol::votes::{NodeVote, VoteOutcome, VoteReport};

impl Contender {
    /// Learns which node to ask first next time.
    pub(super) fn learn(&mut self, report: &VoteReport) {
        self.look_for_others(report);
        self.learnt.learn(report, self.order);
    }

    /// Records a holder that is not in the queue: the lock must then be free for a moment between
    /// holders (rule O-9).
    pub(super) fn look_for_others(&self, report: &VoteReport) {
        let by_others =
            |vote: &NodeVote| matches!(&vote.outcome, VoteOutcome::Held(holding) if !holding.token.is_ours());
        if let Some(offers) = &self.engine.offers
            && report.votes().iter().any(by_others)
        {
            offers.note_outsider(self.keys.first(), self.engine.now());
        }
    }
}
