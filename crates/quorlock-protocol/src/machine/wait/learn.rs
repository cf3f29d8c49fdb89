//! Learns from refusals which node to ask first.

use crate::machine::NodeSet;
use crate::votes::{VoteOutcome, VoteReport};
use crate::{Token, preferred_node};

/// The order in which the nodes are asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum AskOrder {
    /// All in parallel: one round trip; the default while there is no contention.
    AllAtOnce,
    /// First the node that all contenders ask first, and the others only if it does not refuse. Its
    /// winner meets no competition at the others, so contenders do not split the vote, and losing
    /// costs one request (docs/adr/0003-waiting.md).
    PreferredFirst(Preference),
}

/// Which node to ask first under contention: the preferred node of the key, or the next one if that
/// holds a stale key and would always refuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Preference {
    /// The preferred node of the contended key; that of the claim unless set.
    pub home: Option<usize>,
    /// Nodes not to ask first, because they hold a token that no quorum holds.
    pub outliers: NodeSet,
    /// How many of the other nodes to skip, starting at the preferred one.
    pub skipped: usize,
}

impl Preference {
    /// Returns the node to ask first, where `preferred` is that of the claim.
    #[must_use]
    pub fn first(self, preferred: usize, nodes: usize) -> usize {
        let preferred = self.home.unwrap_or(preferred);
        let from_preferred = (0..nodes).map(|step| (preferred + step) % nodes);
        let good: Vec<usize> = from_preferred.filter(|node| !self.outliers.contains(*node)).collect();
        good.get(self.skipped % good.len().max(1)).copied().unwrap_or(preferred)
    }
}

/// What is known of contention with other clients.
#[derive(Clone, Debug, Default)]
pub struct Learnt {
    preference: Preference,
    /// The token that a node held which was the only one to refuse, last time.
    refused_by: Option<Token>,
}

impl Learnt {
    /// Returns the order for an attempt that meets competition.
    #[must_use]
    pub fn order(&self) -> AskOrder {
        AskOrder::PreferredFirst(self.preference)
    }

    /// Returns the nodes that hold a token that no quorum holds.
    #[must_use]
    pub fn outliers(&self) -> NodeSet {
        self.preference.outliers
    }

    /// Learns which node to ask first next time, from the votes on an attempt that asked in this `order`.
    ///
    /// If one node alone refuses twice, for the same holder, its key may be stale: the next node is
    /// asked instead. If all nodes were asked, and one client has a quorum, the nodes that hold
    /// another token are known.
    pub fn learn(&mut self, report: &VoteReport, order: AskOrder) {
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
                | VoteOutcome::Skipped => {}
            }
        }
        if let ([(_, token)], AskOrder::PreferredFirst(_), 0) = (&*refusing, order, report.granted()) {
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Quorum;
    use crate::machine::tests;
    use crate::votes::NodeVote;

    #[test]
    fn outliers_and_skipped_nodes_are_not_asked_first() {
        let first = |outliers: &[usize], skipped| {
            Preference { outliers: outliers.iter().copied().collect(), skipped, home: None }.first(3, 5)
        };
        assert_eq!(
            [0, 1, 2, 5, 6].map(|skipped| first(&[], skipped)),
            [3, 4, 0, 3, 4],
            "the nodes are a ring"
        );
        assert_eq!([0, 1, 2, 3].map(|skipped| first(&[0, 3], skipped)), [4, 1, 2, 4], "without the outliers");
        assert_eq!(first(&[0, 1, 2, 3, 4], 1), 3, "there is no better one");
        let home = |skipped| Preference { skipped, home: Some(1), ..Preference::default() }.first(3, 5);
        assert_eq!([0, 1].map(home), [1, 2], "of several keys, that of the one in the way");
    }

    fn held(node: usize, token: u128) -> NodeVote {
        vote(node, VoteOutcome::Held(tests::held(token)))
    }

    fn vote(node: usize, outcome: VoteOutcome) -> NodeVote {
        NodeVote { node: node.to_string().into(), outcome, took: Duration::ZERO, fencing_token: None }
    }

    fn report(votes: Vec<NodeVote>) -> VoteReport {
        VoteReport::new(Quorum::majority(5), votes)
    }

    fn first(learnt: &Learnt) -> usize {
        let AskOrder::PreferredFirst(preference) = learnt.order() else { return usize::MAX };
        preference.first(3, 5)
    }

    #[test]
    fn a_node_that_refuses_twice_for_one_holder_is_passed_over() {
        let mut learnt = Learnt::default();
        let refused = |token| {
            let mut votes: Vec<_> = (0..5).map(|node| vote(node, VoteOutcome::Pending)).collect();
            votes[3] = held(3, token);
            report(votes)
        };
        for (token, next) in [(7, 3), (7, 4), (8, 4), (8, 0)] {
            learnt.learn(&refused(token), learnt.order());
            assert_eq!(first(&learnt), next, "{token}");
        }
        learnt.learn(&refused(8), AskOrder::AllAtOnce);
        assert_eq!(first(&learnt), 3, "all were asked");
    }

    #[test]
    fn a_node_with_another_token_than_the_quorum_is_not_asked_first() {
        let mut learnt = Learnt::default();
        let votes = vec![held(0, 7), held(1, 7), held(2, 7), held(3, 9), held(4, 7)];
        learnt.learn(&report(votes), AskOrder::AllAtOnce);
        assert_eq!((first(&learnt), learnt.outliers()), (4, [3].into_iter().collect()));
        let silent = vec![held(0, 7), held(1, 7), held(2, 7), vote(3, VoteOutcome::Pending), held(4, 8)];
        learnt.learn(&report(silent), AskOrder::AllAtOnce);
        assert_eq!(learnt.outliers(), [3, 4].into_iter().collect(), "of a silent one, what was known");
        let split = vec![held(0, 7), held(1, 7), held(2, 8), held(3, 8), held(4, 9)];
        learnt.learn(&report(split), AskOrder::AllAtOnce);
        assert_eq!(learnt.outliers(), [3, 4].into_iter().collect(), "no client has a quorum");
    }
}
