//! Learns from refusals which node to ask first.

use super::Contender;
use crate::engine::attempt::AskOrder;
use quorlock_protocol::machine::NodeSet;
use quorlock_protocol::preferred_node;
use quorlock_protocol::votes::{NodeVote, VoteOutcome, VoteReport};

impl Contender {
    /// Learns which node to ask first next time.
    ///
    /// If one node alone refuses twice, for the same holder, its key may be stale: the next node is
    /// asked instead. If all nodes were asked, and one client has a quorum, the nodes that hold
    /// another token are known.
    pub(super) fn learn(&mut self, report: &VoteReport) {
        self.look_for_others(report);
        if let Some(contested) = report.holder().and_then(|holder| holder.key) {
            // All contenders for this key meet there, including those that want several keys.
            self.preference.home = Some(preferred_node(&contested, report.quorum().nodes()));
        }
        let mut refusing = Vec::new();
        let mut silent = NodeSet::default();
        for (node, vote) in report.votes().iter().enumerate() {
            match &vote.outcome {
                VoteOutcome::Held(holding) => refusing.push((node, &holding.token)),
                VoteOutcome::Pending | VoteOutcome::Failed(_) => silent.insert(node),
                VoteOutcome::Granted
                | VoteOutcome::Restored
                | VoteOutcome::NotYourTurn
                | VoteOutcome::FenceAhead
                | VoteOutcome::Free
                | VoteOutcome::Quarantined { .. }
                | VoteOutcome::Duplicate { .. }
                | VoteOutcome::Skipped
                | _ => {}
            }
        }
        if let ([(_, token)], AskOrder::PreferredFirst(_), 0) = (&*refusing, self.order, report.granted()) {
            if self.refused_by.as_ref() == Some(*token) {
                self.preference.skipped += 1;
            }
            self.refused_by = Some((*token).clone());
            return;
        }
        self.refused_by = None;
        self.preference.skipped = 0;
        let needed = report.quorum().needed();
        let holder = report.holder().filter(|holder| holder.nodes >= needed);
        if holder.is_some() || report.granted() >= needed {
            let holder = holder.map(|holder| holder.token);
            let outliers = refusing.iter().filter(|(_, token)| holder.as_ref() != Some(*token));
            // For silent nodes, keep what was known.
            let known = self.preference.outliers.intersection(silent);
            self.preference.outliers = known.union(outliers.map(|(node, _)| *node).collect());
        }
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
