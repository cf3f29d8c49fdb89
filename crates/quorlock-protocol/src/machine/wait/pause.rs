//! Decides when a refused waiter asks again.

use std::sync::Arc;
use std::time::Duration;

use crate::machine::NodeSet;
use crate::node::{Expiry, Holding};
use crate::votes::{VoteOutcome, VoteReport};
use crate::{Backoff, Moment, Refusal, Verdict};

/// When a node that did not queue a waiter is asked for a place again, and nodes that are too young for their votes.
pub const ASKED_AGAIN: Duration = Duration::from_secs(1);

/// How long to wait before asking again.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the engine waits by it")]
pub struct Pause {
    /// At the latest.
    pub until: Moment,
    /// How many nodes must hint at a change to end the pause early …
    pub wanted: usize,
    /// … which nodes count …
    pub among: NodeSet,
    /// … and for which keys, if there are several.
    pub in_the_way: Vec<Arc<str>>,
}

impl Pause {
    /// Waits for a change at this node alone.
    pub fn wait_for(&mut self, node: usize) {
        (self.wanted, self.among) = (1, NodeSet::of(node));
    }

    /// Decides how long to wait and for which nodes: by [`Refusal::pause`] if a holder has a quorum and enough nodes send
    /// hints; otherwise (votes were split, hints are missing) at random, from `pauses`. `asked_one_first` says whether one
    /// node was asked before the others, and `hearing` counts the nodes of a set that send hints of these keys.
    pub fn after(
        (verdict, report): (Verdict, &VoteReport),
        asked_one_first: bool,
        hearing: impl FnOnce(&[Arc<str>], NodeSet) -> usize,
        pauses: &mut Backoff,
        mut random: impl FnMut() -> u64,
        now: Moment,
    ) -> Pause {
        let needed = report.quorum().needed();
        let (mut refusing, mut granted) = (NodeSet::default(), NodeSet::default());
        let mut behind = 0;
        let mut ends: Vec<Duration> = Vec::new();
        let mut in_the_way: Vec<Arc<str>> = Vec::new();
        for (node, vote) in report.votes().iter().enumerate() {
            match &vote.outcome {
                VoteOutcome::Held(Holding { expiry: Expiry::In(remaining), key, .. }) => {
                    refusing.insert(node);
                    ends.push(*remaining);
                    in_the_way.extend(key.clone().filter(|key| !in_the_way.contains(key)));
                }
                VoteOutcome::NotYourTurn => {
                    refusing.insert(node);
                    behind += 1;
                }
                VoteOutcome::Granted => granted.insert(node),
                VoteOutcome::Held(_)
                | VoteOutcome::FenceAhead
                | VoteOutcome::Restored
                | VoteOutcome::Free
                | VoteOutcome::Quarantined { .. }
                | VoteOutcome::Duplicate { .. }
                | VoteOutcome::Pending
                | VoteOutcome::Failed(_)
                | VoteOutcome::Skipped => {}
            }
        }
        let mut refusal = Refusal::new(report.granted(), needed);
        refusal.held = report.holder().map_or(0, |holder| holder.nodes) + behind >= needed;
        refusal.by_one = asked_one_first && refusing.len() == 1 && report.granted() == 0;
        // A node that granted reports our own withdrawal as a change: Redis 6.0 notifies the
        // writer, too.
        let among = if refusal.by_one { refusing } else { granted.complement() };
        let rest = if verdict == Verdict::Contended {
            refusal.pause(hearing(&in_the_way, among), &mut ends, &mut random)
        } else {
            None
        };
        let (pause, wanted) = match rest {
            Some(rest) => (rest, refusal.hints_wanted()),
            None => (pauses.next(random()), usize::MAX),
        };
        // Asking before leaves a tombstone each time.
        let pause = pause.max(report.quarantined_for().min(ASKED_AGAIN));
        debug_assert!(wanted > 0, "a pause ends without a hint");
        Pause { until: now + pause, wanted, among, in_the_way }
    }
}
