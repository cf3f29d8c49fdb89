//! Ends a lease: releases its keys, or cleans up after a loss.

use std::mem;
use std::sync::Arc;

use tracing::{debug, warn};

use super::logging::end_of;
use super::{Keeper, LastRound};
use crate::engine::attempt::clean_up;
use crate::engine::cleanup::{Cleanup, CleanupOf};
use crate::engine::context::EngineContext;
use crate::engine::lease_state::LeaseState;
use crate::engine::queue::HolderMode;
use crate::error::{LossReason, Lost};
use crate::quorum::round::{Driven, Followed};
use crate::telemetry::{LockMeter, Loss};
use quorlock_protocol::machine::{KeyStates, Machine, NodeSet, Replaced};
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{COOLDOWN, HoldEnd, Mode, Moment, Verdict};

impl Keeper {
    /// Releases the lock: the requests have left when this returns, and the future ends when a quorum has confirmed. The
    /// rest continues in the background. Fails if the nodes had lost the key before.
    pub(super) fn release(mut self: Box<Self>) -> impl Future<Output = Result<(), Lost>> + Send {
        let (valid_until, hold) = (self.valid_until(), self.hold());
        self.end();
        // Before the holder is notified: it may ask for the lock again immediately.
        self.clear_held();
        debug_assert!(self.state.has_ended(), "a lease goes on while its lock is released");
        let (left, of) = (self.settle(), CleanupOf::Release(self.state.fence));
        let cleanup = Cleanup::start(&self.engine, &self.claim, self.ttl(), left.states(), of);
        self.notify_other_queues();
        async move {
            let Some(cleanup) = cleanup else {
                self.log(hold, HoldEnd::Released);
                return Ok(());
            };
            let verdict = cleanup.confirmed().await;
            self.meter.released(verdict);
            if verdict != Verdict::Won {
                self.not_confirmed(cleanup.report());
            }
            let is_lost = cleanup.came_too_late(valid_until, || left.lost()).await;
            if cleanup.is_wanted() {
                let now = self.engine.now();
                self.engine.queues.set_cooldown(&self.queue_key, (now, now + COOLDOWN));
            }
            cleanup.leave(self.runtime.clone());
            self.log(hold, if is_lost { HoldEnd::QuorumLost } else { HoldEnd::Released });
            if is_lost { Err(lost_before(&self.state, &self.meter)) } else { Ok(()) }
        }
    }

    /// When the validity of the lease ends if it goes on.
    pub(super) fn valid_until(&self) -> Moment {
        let now = self.engine.now();
        self.state.runs_until(now).unwrap_or(now)
    }

    /// Records that no quorum has confirmed the release.
    pub(super) fn not_confirmed(&self, report: VoteReport) {
        let (resource, token) = (&self.state.resource, self.state.token().short());
        warn!(%resource, %token, votes = %report, "release not confirmed; the lock may stay held until its TTL expires");
        self.state.not_confirmed(report);
    }

    /// Ends the lease on the holder's behalf.
    pub(super) fn end(&mut self) {
        self.held.released(self.ttl(), || {
            let now = self.engine.now();
            (now, self.state.left(now))
        });
        self.state.end(LossReason::Released);
        debug!(resource = %self.state.resource, token = %self.state.token().short(), "released");
    }

    /// Reports to the waiters of this process that the lock is no longer held exclusively here, if
    /// it was.
    pub(super) fn clear_held(&self) {
        if self.claim.mode() == Mode::Exclusive {
            self.engine.queues.clear_held(&self.queue_key);
        }
    }

    /// Ends a lost lease and cleans up its keys, which protect nothing any more.
    pub(super) fn lose(mut self: Box<Self>, reason: LossReason) {
        self.clear_held();
        let hold = self.hold();
        let reason = self.state.end(reason).reason;
        self.held.lost(counted(reason), || self.until.min(self.engine.now()));
        let (resource, token) = (&self.state.resource, || self.state.token().short());
        if reason == LossReason::Closed {
            // Closing the coordinator is the program's own decision.
            debug!(%resource, token = %token(), %reason, "lease ended");
        } else {
            warn!(%resource, token = %token(), %reason, "lease lost");
        }
        debug_assert!(self.state.has_ended(), "a lease goes on while its lock is cleaned up");
        let left = self.settle().states();
        clean_up(&self.engine, &self.runtime, &self.claim, self.ttl(), left, CleanupOf::Lease);
        self.notify_other_queues();
        self.log(hold, end_of(reason));
    }

    /// Notifies the waiters for these keys in the other wait queues of this process.
    pub(super) fn notify_other_queues(&self) {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let holder_mode = if mode == self.claim.mode() { HolderMode::Same } else { HolderMode::Other };
            self.engine.queues_of(mode).given_back(&self.claim.keys(), holder_mode);
        }
    }

    /// Takes the old token back where it may `still` be, once all nodes have answered in the round that replaces it.
    pub(super) fn take_back<M: Machine>(
        &self,
        old: Old,
        round: Arc<Driven<M>>,
        still: fn(Replaced, KeyStates) -> KeyStates,
    ) {
        let (engine, runtime) = (self.engine.clone(), self.runtime.clone());
        let (claim, ttl) = (self.claim.clone(), self.ttl());
        let rest = async move {
            round.settled().await;
            let states = still(old.token.settled(old.left.states()), round.key_states());
            clean_up(&engine, &runtime, &claim, ttl, states, CleanupOf::Lease);
        };
        self.engine.tasks.spawn(rest, &self.runtime);
    }

    /// Ends the renewals (rule I-15): an unsent request is dropped, and what follows is queued
    /// behind one in flight. Returns what all rounds leave.
    pub(super) fn settle(&mut self) -> Left {
        let (over, latest) = self.abandon_rounds();
        Left { before: self.keep.left(over), latest }
    }

    /// Gives up the latest rounds, and returns what they have left; nothing if there are none.
    pub(super) fn leave_rounds(&mut self) -> Option<KeyStates> {
        let (over, latest) = self.abandon_rounds();
        let latest = latest.map(|round| round.key_states());
        // A node that was not asked keeps its state: a request in flight is still in flight.
        over.into_iter().chain(latest).reduce(KeyStates::then)
    }

    /// Gives up the latest rounds. Returns what those have left that are over, and the last one otherwise.
    fn abandon_rounds(&mut self) -> (Option<KeyStates>, Option<Arc<Followed>>) {
        let (mut over, mut latest) = match mem::replace(&mut self.last_round, LastRound::None) {
            LastRound::None => (None, None),
            LastRound::InFlight(round) => (None, Some(round)),
            LastRound::Settled(key_states) => (Some(key_states), None),
        };
        if let Some(renewing) = &self.renewing {
            let before: Option<Arc<Followed>> = latest.replace(renewing.round.clone());
            over = over.or(before.map(|round| {
                round.abandon();
                round.key_states()
            }));
        }
        if let Some(round) = &latest {
            round.abandon();
        }
        (over, latest)
    }
}

/// What the rounds of a lease leave that has ended. The last of them may be in flight: it is abandoned, but still
/// carried out where it was sent, before what is sent next. Its answers are counted.
#[derive(Clone)]
pub(super) struct Left {
    before: KeyStates,
    latest: Option<Arc<Followed>>,
}

impl Left {
    /// Returns the state of the key on each node, as far as known by now.
    pub(super) fn states(&self) -> KeyStates {
        self.latest.as_ref().map_or(self.before, |round| self.before.then(round.key_states()))
    }

    /// Returns the nodes that have answered the last round by now that they had lost the key, if it was not confirmed
    /// (rule I-11). It has stored the key again there, so what is sent next finds it.
    pub(super) fn lost(&self) -> NodeSet {
        match &self.latest {
            // An acquisition has nothing to lose.
            Some(round) if !self.before.all_without() => round.had_lost(self.before),
            Some(_) | None => NodeSet::default(),
        }
    }
}

/// The token of a lease that has ended, which a round replaces by another one.
#[derive(Clone)]
pub(super) struct Old {
    pub(super) token: Replaced,
    left: Left,
}

impl Old {
    pub(super) fn of(left: Left) -> Old {
        Old { token: Replaced::new(left.states()), left }
    }

    fn known(&self) -> Replaced {
        self.token.also_lost(self.left.lost())
    }

    /// Whether a node had lost it, as far as the nodes have answered.
    pub(super) fn has_lost<M: Machine>(&self, round: &Driven<M>) -> bool {
        let known = self.known();
        round.with(|round, _| known.has_lost(round.round()))
    }

    /// Whether enough nodes had lost it before for another client to have held the lock (rule I-11).
    pub(super) async fn was_lost<M: Machine>(
        &self,
        round: &Driven<M>,
        engine: &EngineContext,
        valid_until: Moment,
    ) -> bool {
        if !self.has_lost(round) {
            return false;
        }
        // Nearly never.
        round.settled().await;
        let (known, now) = (self.known(), engine.now());
        round.with(|round, nodes| known.was_lost(nodes, round.round(), valid_until, now))
    }
}

/// Records that the nodes had lost the key before the holder released it.
pub(super) fn lost_before(state: &LeaseState, meter: &LockMeter) -> Lost {
    let lost = Lost::new(state.resource.clone(), LossReason::QuorumLost);
    warn!(resource = %lost.resource, token = %state.token().short(), reason = %lost.reason, "lease lost before its release");
    meter.lost(Loss::QuorumLost);
    lost
}

/// The metric of a loss; `None` for a release.
fn counted(reason: LossReason) -> Option<Loss> {
    match reason {
        LossReason::Expired => Some(Loss::Expired),
        LossReason::QuorumLost => Some(Loss::QuorumLost),
        LossReason::MaxHold => Some(Loss::MaxHold),
        LossReason::Closed => Some(Loss::Closed),
        LossReason::Released => None,
    }
}
