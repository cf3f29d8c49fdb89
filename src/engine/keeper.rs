//! Owns a lease from acquisition to release: renews it, releases it, or passes the lock on to the
//! next waiter in this process.
//!
//! While the lease is idle the keeper is parked in the lease state, and there is no task. The
//! renewal task or the releasing holder takes it out and owns it exclusively. So a renewal and a
//! release cannot race, and dropping a lease only sends a message.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::attempt::{Attempt, clean_up};
use super::cleanup::{Cleanup, CleanupOf};
use super::commands::{HolderCommands, Retention};
use super::context::EngineContext;
use super::hold::Hold;
use super::lease_state::{LastRound, LeaseState, ParkedKeeper};
use super::options::AcquireRequest;
use super::queue::Whose;
use super::wait::{Handoff, HandoffStreak};
use crate::error::{LossReason, Lost, RenewError};
use crate::node::{Capabilities, Request, SharedRequest};
use crate::quorum::key_states::KeyStates;
use crate::quorum::round::{Expect, Round};
use crate::quorum::vote_report::{Holder, VoteReport};
use crate::runtime::detached::FinishInBackground;
use crate::runtime::tasks::Registry;
use crate::runtime::timer::{Timer, Timers};
use crate::telemetry::{At, Held, LockMeter, Loss, Renewed};
use quorlock_protocol::{COURTESY, Claim, FencingToken, Mode, Moment, RenewalSchedule, Verdict};
use repair::RepairSchedule;
use throttle::InFlight;

mod repair;
mod retaining;
mod succession;
mod throttle;

pub(crate) use succession::Succession;
pub(crate) use throttle::Renewals;

/// Keeps one lease. Tens of thousands may be parked, so state that only an active keeper needs is
/// boxed.
pub(crate) struct Keeper {
    shared: Arc<EngineContext>,
    state: Arc<LeaseState>,
    claim: Arc<Claim>,
    /// The key of the wait queue in this process.
    line: Arc<str>,
    /// Serves the waiters after the lease, unless this lease keeps out no waiter of this process.
    succession: Option<Box<dyn Succession>>,
    /// Runs due work: the runtime of the caller that acquired the lease, unless that has shut down.
    runtime: Handle,
    ttl: Duration,
    hand_over: Handoff,
    meter: LockMeter,
    /// What the rounds before the latest one left on each node.
    standings: KeyStates,
    /// A renewal without a verdict yet.
    renewing: Option<Box<Renewing>>,
    /// When to renew next.
    schedule: RenewalSchedule,
    /// When to retry the nodes that did not grant, if too few did.
    again: Option<Box<RepairSchedule>>,
    timer: Timer,
    held: Held,
    series: HandoffStreak,
}

/// An offered lease is first renewed after this fraction (one third) of its remaining time.
const FIRST_RENEWAL: u32 = 3;

/// A renewal in flight.
struct Renewing {
    round: Arc<Round>,
    verdict: BoxFuture<'static, Verdict>,
    asked_by: Vec<RenewReply>,
    /// Counts the renewal until it is dropped.
    #[expect(dead_code, reason = "counts until it is dropped")]
    counted: InFlight,
}

type RenewReply = oneshot::Sender<Result<(), RenewError>>;
pub(crate) type ReleaseReply = oneshot::Sender<Result<(), Lost>>;

/// What wakes the keeper.
enum Event {
    /// The verdict on a renewal.
    Verdict(Verdict),
    /// Commands from the holder.
    Commands(HolderCommands),
    /// The coordinator is being closed.
    Closing,
    /// A renewal is due, or the lease has expired.
    Time,
}

/// How the lease ended.
enum Ended {
    /// The holder released the lock, and may wait for confirmation.
    Released(Option<ReleaseReply>),
    /// The holder leaves the lock taken.
    Retained(Retention),
    /// The lease was lost.
    Lost(LossReason),
}

impl Keeper {
    /// Creates the keeper of a lease from this `attempt`.
    pub(crate) fn new(shared: &Arc<EngineContext>, plan: &AcquireRequest, attempt: Attempt) -> Box<Keeper> {
        let (deadline, offered) = (attempt.deadline(), attempt.is_offered());
        let (claim, round, fence) = attempt.keep();
        if !offered {
            return Keeper::of(shared, plan, claim, &round, fence, (round.sent, deadline));
        }
        let now = shared.now();
        let mut keeper = Keeper::of(shared, plan, claim, &round, fence, (now, deadline));
        // It has less than its TTL, so it is renewed early if it is held for long enough.
        keeper.schedule.begin_at(now + deadline.since(now) / FIRST_RENEWAL);
        keeper
    }

    /// Sets what serves the waiters of this process after the lease.
    pub(crate) fn succeeded_by(mut self: Box<Self>, succession: Box<dyn Succession>) -> Box<Keeper> {
        self.succession = Some(succession);
        self
    }

    fn of(
        shared: &Arc<EngineContext>,
        plan: &AcquireRequest,
        claim: Arc<Claim>,
        round: &Arc<Round>,
        fence: Option<FencingToken>,
        (begun, deadline): (Moment, Moment),
    ) -> Box<Keeper> {
        let hold_until = plan.max_hold.map(|longest| begun + longest);
        let state = LeaseState::new(&plan.resource, &claim, fence, deadline, hold_until, lease_env(shared));
        let mut keeper = Keeper {
            state,
            claim,
            line: plan.line().clone(),
            succession: None,
            runtime: Handle::current(),
            ttl: plan.ttl,
            hand_over: plan.hand_over(),
            meter: plan.meter.clone(),
            standings: KeyStates::default(),
            renewing: None,
            schedule: RenewalSchedule::new(plan.renewal.every(plan.ttl), plan.ttl, round.sent),
            again: None,
            timer: Timer::default(),
            held: plan.meter.held(begun),
            series: HandoffStreak::new(begun),
            shared: shared.clone(),
        };
        let standings = keeper.state.follow(round);
        keeper.schedule_repair(standings);
        Box::new(keeper)
    }

    /// Delivers the lease, which took `rounds` rounds, and reports the new holder to the other
    /// waiters.
    pub(crate) fn deliver(self: Box<Self>, plan: &AcquireRequest, rounds: usize) -> Hold {
        let now = self.shared.now();
        let (resource, span) = (&self.state.resource, &plan.span.get());
        if !span.is_disabled() {
            span.record("rounds", rounds).record("token", self.state.token().short());
        }
        let token = || self.state.token().short();
        let fence = || self.state.fence.map(FencingToken::get);
        debug!(parent: span, %resource, token = %token(), fencing_token = fence(), "acquired");
        self.meter.rounds(rounds);
        self.meter.remaining(At::Acquire, self.state.left(now), self.ttl);
        if self.claim.mode() == Mode::Exclusive {
            self.tell(now);
        }
        let hold = Hold::of(self.state.clone());
        if let Some(wanted) = self.rest(now) {
            wanted.unpark();
        }
        hold
    }

    /// Parks the keeper until there is work. Returns it if there is some already.
    fn rest(mut self: Box<Self>, now: Moment) -> Option<Box<Keeper>> {
        let state = self.state.clone();
        let (bell, wake) = (Waker::from(state.clone()), self.wake(now));
        let context = Context::from_waker(&bell);
        self.shared.nodes.timers.set_on(&self.runtime, &mut self.timer, wake, &context);
        // Checked after the timer is set: closing the coordinator fires all timers.
        if self.shared.closing.is_cancelled() { Some(self) } else { state.rest(self) }
    }

    async fn work(mut self: Box<Self>) {
        loop {
            if let Some(ended) = self.attend().await {
                return Box::pin(self.conclude(ended)).await;
            }
            self.look_at_stragglers();
            let now = self.shared.now();
            match self.rest(now) {
                Some(wanted) => {
                    self = wanted;
                    // Woken because its runtime has shut down, it stays on the current one.
                    self.runtime = Handle::current();
                }
                None => return,
            }
        }
    }

    /// Reports the holder to the waiters of this process.
    fn tell(&self, now: Moment) {
        let holder = || Holder {
            token: self.claim.token().clone(),
            fencing_token: self.state.fence,
            nodes: self.shared.nodes.quorum.needed(),
            remaining: self.state.left(now),
            readers: Vec::new(),
            key: None,
        };
        self.shared.lines.tell(&self.line, None, || (Some(holder()), None), now);
    }

    /// Works until the lease has ended, or nothing is left to do (`None`).
    async fn attend(&mut self) -> Option<Ended> {
        loop {
            let event = self.next_event().await?;
            let now = self.shared.now();
            let running = self.state.term.remaining(now).is_some();
            let outcome = match event {
                Event::Commands(HolderCommands { retain: Some(wanted), .. }) if running => {
                    return Some(Ended::Retained(wanted));
                }
                Event::Commands(commands) if commands.ends() && running => {
                    return Some(Ended::Released(commands.release));
                }
                Event::Commands(commands) if commands.ends() => {
                    let lost = self.state.end(self.state.lapsed(now));
                    if let Some(reply) = commands.release {
                        drop(reply.send(Err(lost.clone())));
                    }
                    if let Some(wanted) = commands.retain {
                        wanted.reply(Err(lost.clone().into()));
                    }
                    Err(lost.reason)
                }
                _ if !running => Err(self.state.lapsed(now)),
                Event::Commands(HolderCommands { downgrade: Some(reply), mut renewals, .. }) => {
                    renewals.push(reply);
                    self.downgrade(renewals);
                    // The waiters wait for readers now, of which this lease is one.
                    drop(self.take_successor());
                    Ok(())
                }
                Event::Commands(commands) => {
                    self.renew(commands.renewals);
                    Ok(())
                }
                Event::Verdict(verdict) => self.count(verdict, now),
                Event::Closing => Err(LossReason::Closed),
                Event::Time => {
                    if self.renewing.is_none() && self.schedule.is_due(now) && !self.put_off(now) {
                        self.renew(Vec::new());
                    } else if self.is_to_ask_again(now) {
                        self.ask_again(now);
                    }
                    Ok(())
                }
            };
            if let Err(reason) = outcome {
                return Some(Ended::Lost(reason));
            }
        }
    }

    /// Returns `None` if there is nothing to do.
    async fn next_event(&mut self) -> Option<Event> {
        poll_fn(|context| self.poll_event(context)).await
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Some(renewing) = &mut self.renewing
            && let Poll::Ready(verdict) = renewing.verdict.as_mut().poll(context)
        {
            return Poll::Ready(Some(Event::Verdict(verdict)));
        }
        let waits = self.renewing.is_some();
        if let Some(commands) = self.state.read(waits.then_some(&*context)) {
            return Poll::Ready(Some(Event::Commands(commands)));
        }
        let now = self.shared.now();
        let wake = self.wake(now);
        if now >= wake {
            return Poll::Ready(Some(Event::Time));
        }
        if waits {
            // Set before `closing` is checked: closing the coordinator fires all timers.
            self.shared.nodes.timers.set(&mut self.timer, wake, context);
        }
        if self.shared.closing.is_cancelled() {
            return Poll::Ready(Some(Event::Closing));
        }
        if waits { Poll::Pending } else { Poll::Ready(None) }
    }

    /// When there will be work.
    fn wake(&self, now: Moment) -> Moment {
        let end = self.state.term.remaining(now).unwrap_or(now);
        if self.renewing.is_some() {
            return end;
        }
        let again = self.again.as_ref().map(|again| again.at);
        self.schedule.due().into_iter().chain(again).chain([end]).min().unwrap_or(end)
    }

    /// Postpones a due renewal while many others are in flight. Returns whether it did.
    fn put_off(&mut self, now: Moment) -> bool {
        let shared = &self.shared;
        shared.are_many_renewing() && self.schedule.put_off(now, || shared.entropy.half())
    }

    /// Asks every node for a full TTL, counted from now, and to store the key again if it was lost.
    /// So a lease that is held for long survives restarts of the nodes, one after the other.
    fn renew(&mut self, asked_by: Vec<RenewReply>) {
        if let Some(renewing) = &mut self.renewing {
            renewing.asked_by.extend(asked_by);
            return;
        }
        self.ask_again_no_more();
        // Abandon the previous round so that an unsent request cannot follow a release.
        self.standings = self.settle();
        let (claim, ttl, fence) = (&self.claim, self.ttl, self.state.fence);
        let request = SharedRequest::from(Request::Renew { claim: claim.clone(), ttl, fencing_token: fence });
        let round = Round::start(&self.shared.nodes, Expect::Hold, ttl, |_| Some(request.clone()));
        self.schedule.send(round.sent);
        let waited_for = round.clone();
        let verdict = Box::pin(async move { waited_for.verdict().await });
        let counted = self.shared.renewals.begin();
        self.renewing = Some(Box::new(Renewing { round, verdict, asked_by, counted }));
    }

    /// Downgrades the lease. The nodes learn of it by the first renewal of the shared claim, or by
    /// the next if that is lost; until then a node excludes more than it has to (rule S-6).
    fn downgrade(&mut self, mut asked_by: Vec<RenewReply>) {
        self.let_go();
        self.claim = Arc::new(Claim::clone(&self.claim).shared());
        // The verdict on an exclusive renewal does not apply any more.
        if let Some(Renewing { round, asked_by: others, .. }) = self.renewing.take().map(|renewing| *renewing)
        {
            self.standings = self.settle();
            self.state.follow(&round);
            asked_by.extend(others);
        }
        debug!(resource = %self.state.resource, token = %self.state.token().short(), "shared from now on");
        self.renew(asked_by);
    }

    /// Reports to the waiters of this process that the lock is no longer held exclusively here, if
    /// it was.
    fn let_go(&self) {
        if self.claim.mode() == Mode::Exclusive {
            self.shared.lines.let_go(&self.line);
        }
    }

    /// Applies the verdict on a renewal.
    ///
    /// A quorum of all nodes must have confirmed (rule I-8). The new deadline counts from before
    /// the renewal was sent (I-7), and applies only if the old one has not passed (I-9). Otherwise
    /// nothing changes, and the renewal is retried until the deadline (I-11). If enough nodes are
    /// known to lack the key for another client to have a quorum, the lease is lost immediately.
    fn count(&mut self, verdict: Verdict, now: Moment) -> Result<(), LossReason> {
        let Some(Renewing { round, asked_by, .. }) = self.renewing.take().map(|renewing| *renewing) else {
            return Ok(());
        };
        let without = round.tally(now).denied();
        let (meter, left) = (&self.meter, self.state.left(now));
        let outcome = if without >= self.shared.nodes.quorum.blocking() {
            meter.renewed(Renewed::QuorumLost);
            Err(LossReason::QuorumLost)
        } else if verdict == Verdict::Won {
            let deadline = self.shared.drift.deadline(round.counts_from(), self.ttl);
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
                self.schedule.confirm();
                Ok(())
            }
            Ok(false) => {
                let report = round.report();
                let resource = &self.state.resource;
                // Only the first failure of a series is a warning.
                if self.schedule.is_failing() {
                    debug!(%resource, votes = %report, ?left, "renewal still not confirmed, trying again");
                } else {
                    warn!(%resource, votes = %report, ?left, "renewal not confirmed, trying again");
                }
                self.schedule.fail(now, self.shared.entropy.half());
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

    /// Releases the lock, and returns when a quorum has confirmed. The rest continues in the
    /// background.
    async fn release(mut self: Box<Self>) {
        self.end();
        // Before the holder is notified: it may ask for the lock again immediately.
        self.let_go();
        let of = CleanupOf::Release(self.state.fence);
        let sweep = Cleanup::start(&self.shared, &self.claim, self.ttl, self.settle(), of);
        self.tell_others();
        if let Some(sweep) = sweep {
            let verdict = sweep.confirmed().await;
            self.meter.released(verdict);
            if verdict != Verdict::Won {
                self.not_confirmed(sweep.report());
            }
            if sweep.is_wanted() {
                self.shared.lines.owe_courtesy(&self.line, self.shared.now() + COURTESY);
            }
            sweep.leave(self.runtime.clone());
        }
    }

    /// Records that no quorum has confirmed the release.
    fn not_confirmed(&self, report: VoteReport) {
        let (resource, token) = (&self.state.resource, self.state.token().short());
        warn!(%resource, %token, votes = %report, "release not confirmed; the lock may stay held until its TTL expires");
        self.state.not_confirmed(report);
    }

    /// Ends the lease on the holder's behalf.
    fn end(&mut self) {
        self.held.released(self.ttl, || {
            let now = self.shared.now();
            (now, self.state.left(now))
        });
        self.state.end(LossReason::Released);
        debug!(resource = %self.state.resource, token = %self.state.token().short(), "released");
    }

    /// Ends a lost lease and cleans up its keys, which protect nothing any more.
    fn lose(mut self: Box<Self>, reason: LossReason) {
        self.let_go();
        let reason = self.state.end(reason).reason;
        self.held.lost(counted(reason), || self.shared.now());
        let (resource, token) = (&self.state.resource, || self.state.token().short());
        if reason == LossReason::Closed {
            // Closing the coordinator is the program's own decision.
            debug!(%resource, token = %token(), %reason, "lease ended");
        } else {
            warn!(%resource, token = %token(), %reason, "lease lost");
        }
        clean_up(&self.shared, &self.runtime, &self.claim, self.ttl, self.settle(), CleanupOf::Lease);
        self.tell_others();
    }

    /// Notifies the waiters for these keys in the other wait queues of this process.
    fn tell_others(&self) {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let whose = if mode == self.claim.mode() { Whose::Own } else { Whose::Other };
            self.shared.lines_of(mode).given_back(self.claim.keys(), whose);
        }
    }

    /// Ends the renewals (rule I-15): an unsent request is dropped, and what follows is queued
    /// behind one in flight.
    fn settle(&self) -> KeyStates {
        let abandoned = |round: &Round| {
            round.abandon();
            round.standings()
        };
        let latest = match self.state.take_last_round() {
            LastRound::None => None,
            LastRound::InFlight(round) => Some(abandoned(&round)),
            LastRound::Settled(standings) => Some(standings),
        };
        let renewed = self.renewing.as_ref().map(|renewing| abandoned(&renewing.round));
        // A node that was not asked keeps its state: a request in flight is still in flight.
        latest.into_iter().chain(renewed).fold(self.standings, KeyStates::then)
    }
}

/// What the state of a lease needs from the context.
fn lease_env(shared: &EngineContext) -> (&Arc<Timers>, Weak<Registry>, Capabilities) {
    (&shared.nodes.timers, shared.tasks.registry(), shared.nodes.capabilities)
}

impl ParkedKeeper for Keeper {
    fn is_waited_for(&self) -> bool {
        self.succession.is_some() && self.shared.lines.is_waited_for(&self.line)
    }

    fn give_back(mut self: Box<Self>) -> FinishInBackground {
        let (shared, runtime) = (self.shared.clone(), self.runtime.clone());
        let work = async move {
            let successor = self.take_successor();
            self.release().await;
            drop(successor);
        };
        FinishInBackground::new(work, &shared.tasks, runtime)
    }

    fn leave_taken(mut self: Box<Self>, wanted: Retention) -> FinishInBackground {
        let (shared, runtime) = (self.shared.clone(), self.runtime.clone());
        let work = async move {
            let successor = self.take_successor();
            self.retain(wanted).await;
            drop(successor);
        };
        FinishInBackground::new(work, &shared.tasks, runtime)
    }

    fn unpark(mut self: Box<Self>) {
        let now = self.shared.now();
        if now.back(LATE) >= self.wake(now)
            && let Ok(here) = Handle::try_current()
        {
            // Nothing woke it in time, so its runtime is not driven.
            self.runtime = here;
        }
        let (shared, runtime) = (self.shared.clone(), self.runtime.clone());
        shared.tasks.spawn(self.work(), &runtime);
    }
}

/// A driven runtime fires a timer far sooner than this, unless the process was suspended.
const LATE: Duration = Duration::from_millis(20);

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

/// Runs on normal completion, on panic and when the runtime drops the keeper, so that no caller
/// waits for it.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.nodes.timers.stop(&mut self.timer);
        self.state.close_slot();
        drop(self.state.take_last_round());
        drop(self.take_successor());
    }
}
