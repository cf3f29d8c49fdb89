//! Decides when a refused waiter asks again.

use std::sync::Arc;
use std::time::Duration;

use super::{ASKED_AGAIN, Contender};
use crate::engine::attempt::AskOrder;
use crate::engine::subscription::Subscription;
use crate::node::{Expiry, Holding};
use quorlock_protocol::machine::NodeSet;
use quorlock_protocol::votes::{VoteOutcome, VoteReport};
use quorlock_protocol::{Moment, Refusal, Verdict};

/// How long to wait before asking again.
pub(super) struct Pause {
    pub(super) until: Moment,
    /// How many nodes must hint at a change to end the pause early …
    wanted: usize,
    /// … which nodes count …
    among: NodeSet,
    /// … and for which keys, if there are several.
    pub(super) in_the_way: Vec<Arc<str>>,
}

impl Pause {
    /// Waits for a change at this node alone.
    pub(super) fn wait_for(&mut self, node: usize) {
        (self.wanted, self.among) = (1, NodeSet::of(node));
    }
}

impl Contender {
    /// Decides how long to wait and for which nodes: by [`Refusal::pause`] if a holder has a quorum and enough nodes send
    /// hints; otherwise (votes were split, hints are missing) at random, from `self.pauses`.
    pub(super) fn pause(
        &mut self,
        verdict: Verdict,
        report: &VoteReport,
        subscription: &Subscription,
        now: Moment,
    ) -> Pause {
        let entropy = &self.engine.entropy;
        let needed = report.quorum().needed();
        let (mut refusing, mut granted) = (NodeSet::default(), NodeSet::default());
        let mut behind = 0;
        let mut ends: Vec<Duration> = Vec::new();
        let mut in_the_way: Vec<Arc<str>> = Vec::new();
        for (index, vote) in report.votes().iter().enumerate() {
            match &vote.outcome {
                VoteOutcome::Held(Holding { expiry: Expiry::In(remaining), key, .. }) => {
                    refusing.insert(index);
                    ends.push(*remaining);
                    in_the_way.extend(key.clone().filter(|key| !in_the_way.contains(key)));
                }
                VoteOutcome::NotYourTurn => {
                    refusing.insert(index);
                    behind += 1;
                }
                VoteOutcome::Granted => granted.insert(index),
                VoteOutcome::Held(_)
                | VoteOutcome::FenceAhead
                | VoteOutcome::Restored
                | VoteOutcome::Free
                | VoteOutcome::Quarantined { .. }
                | VoteOutcome::Duplicate { .. }
                | VoteOutcome::Pending
                | VoteOutcome::Failed(_)
                | VoteOutcome::Skipped
                | _ => {}
            }
        }
        let mut refusal = Refusal::new(report.granted(), needed);
        refusal.held = report.holder().map_or(0, |holder| holder.nodes) + behind >= needed;
        refusal.by_one =
            matches!(self.order, AskOrder::PreferredFirst(_)) && refusing.len() == 1 && report.granted() == 0;
        // A node that granted reports our own withdrawal as a change: Redis 6.0 notifies the
        // writer, too.
        let among = if refusal.by_one { refusing } else { granted.complement() };
        let rest = if verdict == Verdict::Contended {
            let hearing = subscription.hints(&in_the_way).hearing(among);
            refusal.pause(hearing, &mut ends, || entropy.next_u64())
        } else {
            None
        };
        let (pause, wanted) = match rest {
            Some(rest) => (rest, refusal.hints_wanted()),
            None => (self.pauses.next(entropy.next_u64()), usize::MAX),
        };
        // Asking before leaves a tombstone each time.
        let pause = pause.max(report.quarantined_for().min(ASKED_AGAIN));
        debug_assert!(wanted > 0, "a pause ends without a hint");
        Pause { until: now + pause, wanted, among, in_the_way }
    }

    /// Waits until the next request may be sent (rule W-10), or for an offer.
    pub(super) async fn keep_pace(&mut self, subscription: &Subscription) {
        let engine = &self.engine;
        let Some(from) = self.pace.next(|| engine.now()) else { return };
        let bell = subscription.bell();
        let has_offers = async {
            while !self.queue.has_offers() {
                bell.notified().await;
            }
        };
        tokio::select! {
            biased;
            () = engine.closing.cancelled() => {}
            () = has_offers => {}
            () = engine.wait_until(from) => {}
        }
    }

    /// Waits until this moment, for enough hints, for an offer, or for what the bell is rung for as well.
    pub(super) async fn sleep(
        &self,
        pause: &Pause,
        until: Moment,
        subscription: &Subscription,
        is_over: impl Fn() -> bool,
    ) {
        // Created before the first check, so that no hint is missed.
        let bell = subscription.bell();
        let enough = async {
            while subscription.hints(&pause.in_the_way).changed(pause.among) < pause.wanted
                && !self.queue.has_offers()
                && !is_over()
            {
                bell.notified().await;
            }
        };
        tokio::select! {
            biased;
            () = enough => {}
            () = self.engine.wait_until(until) => {}
        }
    }
}
