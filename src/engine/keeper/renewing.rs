//! Renews a lease, and decides by the verdict whether it is lost ([`Keeper::apply_verdict`]). When a renewal is due, or tried
//! again, is decided in `quorlock_protocol::renewal`, and which nodes are asked again in `machine::keep`; that its deadline has passed, in `Keeper::handle`.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::{Keeper, LastRound};
use crate::engine::commands::{Ended, Event, RenewReply};
use crate::engine::offer_inbox::Time;
use crate::engine::queue::HolderMode;
use crate::engine::take_up::take_up_in_time;
use crate::engine::throttle::InFlight;
use crate::error::{LossReason, RenewError};
use crate::node::{Request, SharedRequest};
use crate::quorum::round::{Expect, Followed, Round};
use crate::telemetry::{self, At};
use quorlock_protocol::machine::{KeyStates, Latest, Renewed};
use quorlock_protocol::{Claim, Mode, Moment, Verdict, take_up_after};

/// A renewal in flight.
pub(super) struct Renewing {
    pub(super) round: Arc<Round>,
    asked_by: Vec<RenewReply>,
    verdict_by: VerdictBy,
    /// Counts the renewal until it is dropped.
    #[expect(dead_code, reason = "counts until it is dropped")]
    counted: InFlight,
}

/// How the keeper learns of the verdict on a renewal.
enum VerdictBy {
    /// By the response that makes it certain. At this moment it is checked whether a task is needed.
    Response(Moment),
    /// By that, or a task that also treats silence as an answer. Dropped, this ends the task.
    Task(oneshot::Sender<()>),
}

impl Keeper {
    /// Plans the renewal for a full TTL that takes up an offer, whose lease is valid until `deadline` (rule O-12). A lock that
    /// is released before needs none. A thread sends it and reads the answers if the holder blocks the runtime.
    pub(super) fn plan_take_up(&mut self, now: Moment, deadline: Moment) {
        self.keep.stop_repairs();
        self.wants_repair = false;
        let left = deadline.since(now);
        let due = now + take_up_after(left);
        self.keep.schedule_mut().begin_at(due);
        self.state.set_untaken(true);
        if self.engine.offers.as_ref().is_some_and(|offers| offers.time == Time::Real) {
            take_up_in_time(&self.state, due, left);
        }
    }

    /// Asks nodes for a full TTL.
    fn ask_to_renew(&self, asked: impl Fn(usize) -> bool) -> Arc<Round> {
        let (claim, ttl, fencing_token) = (self.claim.clone(), self.ttl(), self.state.fence);
        let request = SharedRequest::from(Request::Renew { claim, ttl, fencing_token });
        Round::start(&self.engine.nodes, Expect::Kept, ttl, |node| asked(node).then(|| request.clone()))
    }

    /// Asks every node for a full TTL, counted from now, and to store the key again if it was lost.
    /// So a lease that is held for long survives restarts of the nodes, one after the other.
    pub(super) fn renew(&mut self, asked_by: Option<RenewReply>) {
        let mut asked_by: Vec<_> = asked_by.into_iter().collect();
        if let Some(renewing) = &mut self.renewing {
            if !matches!(&renewing.verdict_by, VerdictBy::Task(wanted) if wanted.is_closed()) {
                renewing.asked_by.append(&mut asked_by);
                return;
            }
            // Its task has ended: it has just sent the verdict, or its runtime has shut down and no other one drives it.
            asked_by.append(&mut renewing.asked_by);
            self.keep.abandon();
        }
        // Abandon the previous round so that an unsent request cannot follow a release.
        let latest = self.leave_rounds();
        let round = self.ask_to_renew(|_| true);
        self.keep.renew(latest, round.sent);
        self.wants_repair = false;
        let counted = self.engine.renewals.begin();
        let verdict_by = VerdictBy::Response(round.needs_no_task_until(round.sent));
        self.renewing = Some(Box::new(Renewing { round: round.clone(), asked_by, verdict_by, counted }));
        // Nearly every renewal is decided by responses, within a round trip.
        round.notify_decided(self.state.clone());
    }

    /// When to check whether the renewal in flight needs a task.
    pub(super) fn responses_until(&self) -> Option<Moment> {
        match self.renewing.as_ref()?.verdict_by {
            VerdictBy::Response(until) => Some(until),
            VerdictBy::Task(_) => None,
        }
    }

    /// Has a task wait for the verdict if nodes are silent: it wakes their tasks, and treats silence as an answer in time.
    pub(super) fn wait_in_task(&mut self, now: Moment) {
        let Some(renewing) = &mut self.renewing else { return };
        if !matches!(renewing.verdict_by, VerdictBy::Response(until) if until <= now) {
            return;
        }
        let round = renewing.round.clone();
        let until = round.needs_no_task_until(now);
        if now < until {
            renewing.verdict_by = VerdictBy::Response(until);
            return;
        }
        let (wanted, mut unwanted) = oneshot::channel();
        renewing.verdict_by = VerdictBy::Task(wanted);
        let state = self.state.clone();
        let waiting = async move {
            tokio::select! {
                biased;
                _ = &mut unwanted => {}
                verdict = round.verdict() => state.handle(Event::Verdict(round.clone(), verdict)),
            }
        };
        self.engine.tasks.spawn(waiting, &self.runtime);
    }

    /// Applies the verdict on the renewal in flight, if responses have made it certain.
    pub(super) fn decided(&mut self, now: Moment) {
        let Some(round) = self.renewing.as_ref().map(|renewing| renewing.round.clone()) else { return };
        let Some(verdict) = round.certain() else { return };
        if let Err(reason) = self.apply_verdict(&round, verdict, now) {
            self.handle_in_task(move || Event::End(Ended::Lost(reason)));
        }
    }

    /// Plans to ask nodes again that did not grant, if no more than a quorum holds the key (rule I-38). Returns whether it is
    /// planned.
    pub(super) fn plan_repair(&mut self, key_states: KeyStates) -> bool {
        let now = self.engine.now();
        let is_planned = self.keep.look(&*self.engine.nodes, key_states, now);
        if is_planned {
            self.wants_repair = false;
        }
        is_planned
    }

    /// Follows `round` until all nodes have answered: a lease that is held for hours needs to know no more of it than what it
    /// has left. Returns that so far.
    pub(super) fn follow(&mut self, round: Arc<Followed>) -> KeyStates {
        let (key_states, all_responded) = round.notify_settled(self.state.clone());
        self.last_round =
            if all_responded { LastRound::Settled(key_states) } else { LastRound::InFlight(round) };
        key_states
    }

    /// Keeps what the latest round has left, if all nodes have answered. Returns whether that makes a repair necessary.
    pub(super) fn settled(&mut self) -> bool {
        if let LastRound::InFlight(round) = &self.last_round
            && round.all_responded()
        {
            self.last_round = LastRound::Settled(round.key_states());
        }
        self.check_late_answers()
    }

    /// Checks answers to the acquisition that arrived after the lease was delivered. Returns whether a repair is planned.
    pub(super) fn check_late_answers(&mut self) -> bool {
        match self.last_round {
            LastRound::Settled(key_states) if self.wants_repair => self.plan_repair(key_states),
            LastRound::Settled(_) | LastRound::InFlight(_) | LastRound::None => false,
        }
    }

    /// Asks the nodes without the key again, unless enough have it by now.
    pub(super) fn repair(&mut self, now: Moment) {
        let engine = self.engine.clone();
        let (states, open_since) = match &self.last_round {
            LastRound::None => (KeyStates::default(), None),
            LastRound::Settled(states) => (*states, None),
            LastRound::InFlight(round) => (round.key_states(), Some(round.sent)),
        };
        let many_renew = || engine.are_many_renewing();
        if let Some(lacking) =
            self.keep.repair(&*engine.nodes, Latest { states, open_since }, now, many_renew)
        {
            let left = self.leave_rounds();
            self.keep.settle(left);
            let round = self.ask_to_renew(|node| lacking.contains(node));
            self.follow(round);
        }
    }

    /// Hears of changes of the keys from now on: nodes report them after a renewal (rule I-52). The marker of a shared lock
    /// changes with each reader, so a share does not.
    fn hear(&mut self) {
        if !self.hears && self.claim.mode() == Mode::Exclusive {
            self.hears = self.engine.queues.hear_for(self.claim.keys(), &self.state);
        }
    }

    pub(super) fn stop_hearing(&mut self) {
        if mem::take(&mut self.hears) {
            self.engine.queues.stop_hearing_for(self.claim.keys(), &self.state);
        }
    }

    /// Downgrades the lease. The nodes learn of it by the first renewal of the shared claim, or by
    /// the next if that is lost; until then a node excludes more than it has to (rule S-6).
    pub(super) fn downgrade(&mut self, asked_by: RenewReply) {
        self.clear_held();
        self.stop_hearing();
        self.claim = Arc::new(Claim::clone(&self.claim).shared());
        debug!(resource = %self.state.resource, token = %self.state.token().short(), "shared from now on");
        self.renew_anew(asked_by);
        // Nodes do not notify the connection that made a change.
        self.engine.queues_of(Mode::Shared).given_back(&self.claim.keys(), HolderMode::Other);
        // The waiters wait for readers now, of which this lease is one.
        drop(self.take_successor());
    }

    /// Renews the lease for `ttl`, now and from now on, if no client may be surprised by so long a one (rule I-13).
    pub(super) fn extend(&mut self, ttl: Duration, asked_by: RenewReply) {
        if let Err(error) = self.engine.check_ttl(ttl) {
            drop(asked_by.send(Err(RenewError::Refused(error))));
            return;
        }
        self.keep.schedule_mut().extend(ttl);
        self.renew_anew(asked_by);
    }

    /// Renews a lease of which something has changed: the verdict on a renewal in flight does not apply any more.
    fn renew_anew(&mut self, asked_by: RenewReply) {
        let mut others = Vec::new();
        if let Some(Renewing { round, asked_by, .. }) = self.renewing.take().map(|renewing| *renewing) {
            let latest = self.leave_rounds();
            self.keep.settle(latest);
            self.keep.abandon();
            self.follow(round);
            others = asked_by;
        }
        self.renew(Some(asked_by));
        if let Some(renewing) = &mut self.renewing {
            renewing.asked_by.extend(others);
        }
    }

    /// Applies the verdict on the renewal that asked in `round`, if it is the latest: see
    /// [`Keep::count`](quorlock_protocol::machine::Keep::count).
    pub(super) fn apply_verdict(
        &mut self,
        round: &Arc<Round>,
        verdict: Verdict,
        now: Moment,
    ) -> Result<(), LossReason> {
        if !self.renewing.as_ref().is_some_and(|renewing| Arc::ptr_eq(&renewing.round, round)) {
            return Ok(());
        }
        if self.state.runs_until(now).is_none() {
            return Err(self.state.lapsed(now));
        }
        let asked_by = self.renewing.take().map(|renewing| renewing.asked_by).unwrap_or_default();
        let left = self.state.left(now);
        let (keep, drift) = (&mut self.keep, self.engine.drift);
        let (term, hold_until) = self.state.term();
        let renewed =
            round.with(|round, nodes| keep.count(nodes, (round, verdict), (term, hold_until, drift), now));
        let (meter, state) = (&self.meter, &self.state);
        let outcome = match renewed {
            Renewed::Confirmed(deadline) => {
                meter.renewed(telemetry::Renewed::Confirmed);
                meter.remaining(At::Renewal, left, self.ttl());
                Ok(Some(deadline))
            }
            Renewed::Unconfirmed => {
                meter.renewed(telemetry::Renewed::Unconfirmed);
                Ok(None)
            }
            Renewed::Late => {
                meter.renewed(telemetry::Renewed::Late);
                Err(state.lapsed(now))
            }
            Renewed::QuorumLost => {
                meter.renewed(telemetry::Renewed::QuorumLost);
                Err(LossReason::QuorumLost)
            }
        };
        let reply = match outcome {
            Ok(Some(deadline)) => {
                debug!(resource = %self.state.resource, token = %self.state.token().short(), ?left, "renewed");
                self.confirmed(deadline, now);
                Ok(())
            }
            Ok(None) => {
                let report = round.report();
                let resource = &self.state.resource;
                // Only the first failure of a series is a warning.
                if self.keep.schedule_mut().begins_series() {
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
        self.follow(round.clone());
        for waiting in asked_by {
            // The caller may have stopped waiting.
            drop(waiting.send(reply.clone()));
        }
        outcome.map(|_| ())
    }

    /// Schedules the renewal after one that is valid until `deadline`.
    pub(super) fn confirmed(&mut self, deadline: Moment, now: Moment) {
        self.hear();
        self.state.set_untaken(false);
        let (_, hold_until) = self.state.term();
        self.until = self.until.max(hold_until.min(deadline));
        let timing = self.engine.timing(self.ttl());
        if self.keep.confirmed(&*self.engine.nodes, &timing, deadline, now) {
            let (resource, left) = (&self.state.resource, deadline.since(now));
            warn!(%resource, ?left, "renewal confirmed, but what it proves is old, trying again: the servers are slow or cut off");
        }
    }
}
