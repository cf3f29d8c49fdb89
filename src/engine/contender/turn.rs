//! Waits for a turn in the queue of a node, and takes the lock that a holder offers meanwhile. The states and the limits (O-5)
//! are at the head of `contender.rs`.

use std::sync::Arc;

use tracing::debug;

use super::Contender;
use crate::engine::attempt::Attempt;
use crate::engine::offer;
use crate::engine::options::{AcquireRequest, News};
use crate::engine::subscription::Subscription;
use crate::error::AcquireError;
use quorlock_protocol::machine::Deployment as _;
use quorlock_protocol::machine::NodeSet;
use quorlock_protocol::machine::wait::{Next, Notice, OfferStep, Place};
use quorlock_protocol::{Mode, Moment, Verdict};

/// The outcome of waiting in a queue.
pub(super) enum Chance {
    /// It is our turn to ask all nodes, until this moment.
    Turn(Moment),
    /// The previous holder has offered the lock.
    Offer(Box<Attempt>),
    /// No node has a queue.
    NoQueue,
}

impl Contender {
    /// Waits until the lock is offered, it is our turn, or there is another reason to try.
    pub(super) async fn turn(
        &mut self,
        acquisition: &Arc<AcquireRequest>,
        subscription: &Subscription,
    ) -> Result<Chance, AcquireError> {
        let alone = self.mode == Mode::Exclusive && !self.keys.are_several();
        debug_assert!(alone, "an offer would not be enough for this waiter");
        // Earlier notifications belong to another turn.
        self.turns(subscription);
        loop {
            self.keep_pace(subscription).await;
            subscription.clear_hints();
            let offered = offer::voted(&self.queue.offers, subscription.bell());
            let asked = tokio::select! {
                biased;
                () = self.engine.closing.cancelled() => return Err(AcquireError::Closed),
                () = offered => None,
                asked = self.queue.ask(&self.engine, self.keys.first(), acquisition, self.contest.outliers()) => asked,
            };
            if self.queue.offers.has_offers() {
                match self.take_offer(subscription, acquisition).await? {
                    Some(attempt) => return Ok(Chance::Offer(Box::new(attempt))),
                    None => continue,
                }
            }
            self.rounds += 1;
            let Some(place) = asked else { return Ok(Chance::NoQueue) };
            let now = self.engine.now();
            self.queue.give_back_unheard(&self.engine, acquisition, &place);
            if self.queue.places.has_moved(place.ahead()) {
                let node = self.engine.nodes.name(place.home);
                debug!(keys = %self.keys, processes_before = place.ahead(), %node, "waiting in the queue");
            }
            self.look_for_others(&place.report);
            if place.ahead() == 0 {
                let key = self.keys.first().clone();
                self.announce_intent(acquisition, (&key, &place.report), now);
            } else {
                self.withdraw_intent(acquisition);
            }
            // The node tells a waiter far from the front nothing about the holder.
            let is_unknown = place.ahead() > 1 && acquisition.on_wait.is_some();
            let report = Box::new(if is_unknown {
                self.queue.report_other_node(&self.engine, &self.keys, acquisition, &place).await
            } else {
                place.report.clone()
            });
            self.report(acquisition, News { verdict: Verdict::Contended, report }, Some(place.ahead()), now);
            let turns_before = self.turns(subscription);
            let go = self.queue.is_worth_trying(&self.engine, &self.keys, acquisition, &place).await;
            let is_turn = (go || !turns_before.is_empty()) && !self.queue.offers.has_offers();
            let next = if is_turn { Next::Try } else { self.wait_in_queue(&place, subscription).await? };
            match next {
                Next::Try => return Ok(Chance::Turn(self.engine.now() + place.turn)),
                Next::TakeOffer => {
                    if let Some(attempt) = self.take_offer(subscription, acquisition).await? {
                        return Ok(Chance::Offer(Box::new(attempt)));
                    }
                }
                Next::AskAgain | Next::WaitForTurn | Next::Wait => {}
            }
        }
    }

    /// Waits in the queue, and returns what to do next.
    async fn wait_in_queue(
        &mut self,
        place: &Place,
        subscription: &Subscription,
    ) -> Result<Next, AcquireError> {
        let home = NodeSet::of(place.home);
        let is_subscribed = subscription.hints(&[]).hearing(home) > 0;
        let mut until = self.queue.next(place, &self.engine, is_subscribed);
        // Created before the first check, so that no hint is missed.
        let bell = subscription.bell();
        loop {
            let notice = self.notice(subscription);
            let hints = subscription.hints(&[]);
            let is_cut_off = is_subscribed && hints.hearing(home) == 0;
            match place.next(notice, hints.changed, is_cut_off, self.engine.nodes.quorum.needed()) {
                Next::Wait => {}
                Next::WaitForTurn => {
                    subscription.clear_hints();
                    until = until.min(self.engine.now() + place.turn);
                }
                next @ (Next::TakeOffer | Next::Try | Next::AskAgain) => return Ok(next),
            }
            tokio::select! {
                biased;
                () = self.engine.closing.cancelled() => return Err(AcquireError::Closed),
                () = bell.notified() => {}
                () = self.engine.wait_until(until) => return Ok(Next::AskAgain),
            }
        }
    }

    /// Returns the most urgent of what has come.
    fn notice(&mut self, subscription: &Subscription) -> Notice {
        if self.queue.offers.has_offers() {
            return Notice::Offer;
        }
        let turns = self.turns(subscription);
        if !turns.is_empty() {
            self.queue.places.note_turns(turns);
            return Notice::Turn;
        }
        if self.queue.offers.turned_stale() { Notice::SoonFirst } else { Notice::None }
    }

    /// Returns the nodes that have announced our turn since the last call.
    fn turns(&self, subscription: &Subscription) -> NodeSet {
        subscription.turns(self.keys.first(), self.queue.waiter())
    }

    /// Waits for the offers of the other nodes after the first one. Hints that arrive with the
    /// offers report the same change. Returns `None` if the offers are too few or too late; they
    /// are then given back.
    pub(super) async fn take_offer(
        &mut self,
        subscription: &Subscription,
        acquisition: &Arc<AcquireRequest>,
    ) -> Result<Option<Attempt>, AcquireError> {
        let bell = subscription.bell();
        loop {
            let until = match self.queue.next_offer(&self.engine, acquisition) {
                OfferStep::Take { request: attempt, .. } => return Ok(Some(attempt)),
                OfferStep::Wait(until) => until,
                // Of a coordinator that closes, nothing is taken up.
                OfferStep::GiveBack(_) if self.engine.closing.is_cancelled() => {
                    return Err(AcquireError::Closed);
                }
                OfferStep::GiveBack(_) => return Ok(None),
            };
            tokio::select! {
                biased;
                () = self.engine.closing.cancelled() => return Err(AcquireError::Closed),
                () = bell.notified() => {}
                () = self.engine.wait_until(until) => {}
            }
        }
    }
}
