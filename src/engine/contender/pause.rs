//! Waits before a refused waiter asks again.

use super::Contender;
use crate::engine::subscription::Subscription;
use quorlock_protocol::machine::wait::Pause;
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{Moment, Verdict};

impl Contender {
    /// Decides how long to wait and for which nodes.
    pub(super) fn pause(
        &mut self,
        verdict: Verdict,
        report: &VoteReport,
        subscription: &Subscription,
        now: Moment,
    ) -> Pause {
        let Contender { engine, contest, .. } = self;
        let hearing = |keys: &[_], among| subscription.hints(keys).hearing(among);
        contest.pause((verdict, report), hearing, || engine.entropy.next_u64(), now)
    }

    /// Waits until the next request may be sent (rule W-10), or for an offer or a turn, which would pass meanwhile.
    /// Returns whether a turn ended the wait.
    pub(super) async fn keep_pace(&mut self, subscription: &Subscription) -> bool {
        let engine = &self.engine;
        let Some(from) = self.pace.next(|| engine.now()) else { return false };
        self.wait_for_pace(from, subscription, || subscription.has_turn()).await;
        subscription.has_turn()
    }

    /// Waits until the attempt of a turn may be sent, or for an offer. Turns have a pace of their own: a node that
    /// lies may announce one after the other.
    pub(super) async fn keep_pace_of_turns(&mut self, subscription: &Subscription) {
        let engine = &self.engine;
        let Some(from) = self.turn_pace.next(|| engine.now()) else { return };
        self.wait_for_pace(from, subscription, || false).await;
    }

    async fn wait_for_pace(&self, from: Moment, subscription: &Subscription, is_over: impl Fn() -> bool) {
        let bell = subscription.bell();
        let is_urgent = async {
            while !self.queue.offers.has_offers() && !is_over() {
                bell.notified().await;
            }
        };
        tokio::select! {
            biased;
            () = self.engine.closing.cancelled() => {}
            () = is_urgent => {}
            () = self.engine.wait_until(from) => {}
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
                && !self.queue.offers.has_offers()
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
