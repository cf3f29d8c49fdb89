//! Renews a lease, and decides by the verdict whether it is lost ([`Keeper::apply_verdict`]). When a renewal is due, or tried
//! again, is decided in `quorlock_protocol::renewal`; that its deadline has passed, in `Keeper::handle_events`.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::Keeper;
use crate::engine::offer_inbox::Time;
use crate::engine::take_up::read_in_time;
use crate::engine::throttle::InFlight;
use crate::error::{LossReason, RenewError};
use crate::node::{Request, SharedRequest};
use crate::quorum::round::{Expect, Round};
use crate::telemetry::{At, Renewed};
use quorlock_protocol::{Claim, Moment, Verdict};

/// A renewal in flight.
pub(super) struct Renewing {
    pub(super) round: Arc<Round>,
    pub(super) verdict: BoxFuture<'static, Verdict>,
    asked_by: Vec<RenewReply>,
    /// Counts the renewal until it is dropped.
    #[expect(dead_code, reason = "counts until it is dropped")]
    counted: InFlight,
}

type RenewReply = oneshot::Sender<Result<(), RenewError>>;

/// The renewal that takes up an offer is repeated after this fraction (one third) of what is left, unless it is confirmed.
const TAKEN_UP_AGAIN: u32 = 3;

impl Keeper {
    /// Takes up an offer, whose lease is valid until `deadline`, by a renewal for a full TTL that leaves before the holder
    /// learns of the lease (rule O-12): it may block the thread next. No task waits for the answers; they are counted when
    /// the lease is asked for its deadline.
    pub(super) fn take_up(&mut self, now: Moment, deadline: Moment) {
        self.cancel_repair();
        self.key_states = self.settle();
        let round = self.ask_to_renew(SharedRequest::immediate);
        self.state.take_up(&round, self.engine.drift.deadline(round.sent, self.ttl));
        self.state.follow(&round);
        if self.engine.offers.as_ref().is_some_and(|offers| offers.time == Time::Real) {
            read_in_time(&self.state);
        }
        self.schedule.begin_at(now + deadline.since(now) / TAKEN_UP_AGAIN);
    }

    /// Asks every node for a full TTL.
    fn ask_to_renew(&mut self, sending: impl FnOnce(SharedRequest) -> SharedRequest) -> Arc<Round> {
        let (claim, ttl, fencing_token) = (self.claim.clone(), self.ttl, self.state.fence);
        let request = sending(Request::Renew { claim, ttl, fencing_token }.into());
        let round = Round::start(&self.engine.nodes, Expect::Hold, ttl, |_| Some(request.clone()));
        self.schedule.send(round.sent);
        round
    }

    /// Postpones a due renewal while many others are in flight. Returns whether it did.
    pub(super) fn put_off(&mut self, now: Moment) -> bool {
        let engine = &self.engine;
        engine.are_many_renewing() && self.schedule.put_off(now, || engine.entropy.next_u64())
    }

    /// Asks every node for a full TTL, counted from now, and to store the key again if it was lost.
    /// So a lease that is held for long survives restarts of the nodes, one after the other.
    pub(super) fn renew(&mut self, asked_by: Vec<RenewReply>) {
        if let Some(renewing) = &mut self.renewing {
            renewing.asked_by.extend(asked_by);
            return;
        }
        self.cancel_repair();
        // Abandon the previous round so that an unsent request cannot follow a release.
        self.key_states = self.settle();
        let round = self.ask_to_renew(|request| request);
        let waited_for = round.clone();
        let verdict = Box::pin(async move { waited_for.verdict().await });
        let counted = self.engine.renewals.begin();
        self.renewing = Some(Box::new(Renewing { round, verdict, asked_by, counted }));
    }

    /// Downgrades the lease. The nodes learn of it by the first renewal of the shared claim, or by
    /// the next if that is lost; until then a node excludes more than it has to (rule S-6).
    pub(super) fn downgrade(&mut self, mut asked_by: Vec<RenewReply>) {
        self.clear_held();
        self.claim = Arc::new(Claim::clone(&self.claim).shared());
        // The verdict on an exclusive renewal does not apply any more.
        if let Some(Renewing { round, asked_by: others, .. }) = self.renewing.take().map(|renewing| *renewing)
        {
            self.key_states = self.settle();
            self.state.follow(&round);
            asked_by.extend(others);
        }
        debug!(resource = %self.state.resource, token = %self.state.token().short(), "shared from now on");
        self.renew(asked_by);
    }

    /// Applies the verdict on a renewal.
    ///
    /// A quorum of all nodes must have confirmed (rule I-8). The new deadline counts from before
    /// the renewal was sent (I-7), and applies only if the old one has not passed (I-9). Otherwise
    /// nothing changes, and the renewal is retried until the deadline (I-11). If enough nodes are
    /// known to lack the key for another client to have a quorum, the lease is lost immediately.
    pub(super) fn apply_verdict(&mut self, verdict: Verdict, now: Moment) -> Result<(), LossReason> {
        let Some(Renewing { round, asked_by, .. }) = self.renewing.take().map(|renewing| *renewing) else {
            return Ok(());
        };
        debug_assert!(self.repair.is_none(), "a repair goes on after the first renewal");
        let without = round.tally(now).denied();
        let (meter, left) = (&self.meter, self.state.left(now));
        let outcome = if without >= self.engine.nodes.quorum.blocking() {
            meter.renewed(Renewed::QuorumLost);
            Err(LossReason::QuorumLost)
        } else if verdict == Verdict::Won {
            let deadline = self.engine.drift.deadline(round.counts_from(), self.ttl);
            if self.state.renew(deadline, now) {
                meter.renewed(Renewed::Confirmed);
                meter.remaining(At::Renewal, left, self.ttl);
                Ok(true)
            } else {
                meter.renewed(Renewed::Late);
                Err(self.state.lapsed(now))
            }
        } else {
            meter.renewed(Renewed::Unconfirmed);
            Ok(false)
        };
        let reply = match outcome {
            Ok(true) => {
                debug!(resource = %self.state.resource, token = %self.state.token().short(), ?left, "renewed");
                self.confirmed(self.engine.drift.deadline(round.counts_from(), self.ttl), now);
                Ok(())
            }
            Ok(false) => {
                let report = round.report();
                let resource = &self.state.resource;
                self.schedule.fail(now, left, self.engine.entropy.next_u64());
                // Only the first failure of a series is a warning.
                if self.schedule.begins_series() {
                    warn!(%resource, votes = %report, ?left, "renewal not confirmed, trying again");
                } else {
                    debug!(%resource, votes = %report, ?left, "renewal still not confirmed, trying again");
                }
                let resource = self.state.resource.clone();
                Err(RenewError::Unconfirmed { resource, report: Box::new(report) })
            }
            Err(reason) => Err(RenewError::Lost(self.state.end(reason))),
        };
        // Late answers still count.
        self.state.follow(&round);
        for waiting in asked_by {
            // The caller may have stopped waiting.
            drop(waiting.send(reply.clone()));
        }
        outcome.map(|_| ())
    }

    /// Schedules the renewal after one that is valid until `deadline`.
    pub(super) fn confirmed(&mut self, deadline: Moment, now: Moment) {
        let (engine, left) = (&self.engine, deadline.since(now));
        let timing = engine.timing(self.ttl);
        self.schedule.confirm(&timing, (deadline, now), || engine.entropy.next_u64());
        let is_short = self.schedule.is_failing() && left < timing.warned_below(timing.renewal_every());
        if is_short && self.schedule.begins_series() {
            let resource = &self.state.resource;
            warn!(%resource, ?left, "renewal confirmed, but what it proves is old, trying again: the servers are slow or cut off");
        }
    }
}
