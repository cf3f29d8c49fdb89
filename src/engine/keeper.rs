//! Owns one lease from its acquisition to its end: renews it, and releases the lock or passes it on.
//!
//! A [`Keeper`] is a box with a single owner. While there is nothing to do it is parked in the
//! [`LeaseState`], and the lease has no task. What takes it out is its owner from then on, and only
//! the owner sends requests for the lease: so a renewal and a release cannot race (I-15). Dropping a
//! lease only sends a command.
//!
//! ```text
//!  acquired ──► parked ◄──────────────── nothing left to do ───────────────┐
//!                 │  │                                                     │
//!                 │  └── timer, command, closing ──► running, in a task ───┤
//!                 │                                                        │ the lease has ended
//!                 └── the holder releases ──► running, in its future ──────┤
//!                                                                          ▼
//!                        closed ◄── released, retained, or cleaned up ◄── conclude
//! ```
//!
//! # Events
//!
//! | event | effect |
//! |---|---|
//! | the lease is from an offer | The offer is taken up: a renewal is sent before the holder learns of the lease (`renewing`). |
//! | a renewal is due | Asks all nodes for a full TTL, unless many other renewals are in flight (`renewing`). |
//! | verdict on a renewal (`renewing`) | Confirmed: the deadline moves, counted from before the renewal was sent. Not confirmed: nothing changes, and the renewal is retried. Too many nodes without the key: the lease is lost. |
//! | a repair is due | Asks the nodes again that have not granted, while no more than a quorum holds the key (`renewing`; which nodes, `machine::Keep` decides). |
//! | command to renew | As if a renewal were due; joins one in flight. |
//! | command to downgrade | The claim is shared from now on, and a renewal says so to the nodes. |
//! | command to release, or lease dropped | Hands the lock off to the next waiter of this process, passes it on by one round, or releases it (`succession`, `ending`). |
//! | command to retain | Replaces the token by one that no process holds (`retaining`). |
//! | the deadline passes | The lease is lost, and its keys are cleaned up. |
//! | the coordinator closes | The same. |
//!
//! Commands that arrive while the keeper is running wait in its mailbox; they are read before it is
//! parked again. A timer that has fired, and closing, are checked at the same point.
//!
//! # Invariants
//!
//! - A quorum of all nodes confirms a renewal (I-8), before the old deadline (I-9). The deadline
//!   never moves back (I-6) and counts from before the renewal was sent (I-7).
//! - A failed renewal changes nothing, but `nodes - quorum + 1` nodes without the key end the lease
//!   (I-11). A lease that has ended stays lost (I-10).
//! - One renewal waits for its verdict at a time. The lease has ended and its renewals are abandoned
//!   before a release, an offer or a transfer is sent (I-15, O-4). A renewal that is in flight then was sent earlier, so each node
//!   carries it out before the release.
//! - What earlier rounds left on each node is never forgotten: an unknown state stays unknown (I-40).
//! - A repair confirms nothing and moves no deadline. It ends with the first renewal (I-38).
//! - A lease that is handed off has the deadline of the old one, which has ended before (I-21). It
//!   moves to the runtime of its holder (I-32).
//! - A downgraded lease claims a share from before the first byte is sent (S-6).
//!
//! # When a future is dropped
//!
//! A holder that stops waiting for its release leaves the work to a task
//! ([`FinishInBackground`]). If the task of a running keeper is dropped, because it panicked or its
//! runtime shut down, `Keeper::drop` closes the slot, so that no caller waits for a reply, and lets a
//! task serve the queue. Nothing is renewed or released then: the keys expire, and the lease is valid
//! until its deadline and not longer.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tracing::debug;

use super::attempt::Attempt;
use super::commands::{HolderCommands, ReleaseReply, Retention};
use super::context::EngineContext;
use super::hold::Hold;
use super::lease_state::{LeaseState, ParkedKeeper};
use super::options::AcquireRequest;
use super::wait::{Handoff, HandoffStreak};
use crate::error::LossReason;
use crate::node::{Capabilities, Expiry};
use crate::quorum::round::Round;
use crate::runtime::detached::FinishInBackground;
use crate::runtime::tasks::Registry;
use crate::runtime::timer::{Timer, Timers};
use crate::telemetry::{At, Held, LockMeter};
use quorlock_protocol::machine::{Due, Keep};
use quorlock_protocol::votes::Holder;
use quorlock_protocol::{Claim, FencingToken, Mode, Moment, RenewalSchedule, Verdict};
use renewing::Renewing;

mod ending;
mod renewing;
mod retaining;
mod succession;

pub(crate) use succession::Succession;

/// Keeps one lease. Tens of thousands may be parked, so state that only an active keeper needs is
/// boxed.
pub(crate) struct Keeper {
    engine: Arc<EngineContext>,
    state: Arc<LeaseState>,
    claim: Arc<Claim>,
    /// The key of the wait queue in this process.
    queue_key: Arc<str>,
    /// Serves the waiters after the lease, unless this lease keeps out no waiter of this process.
    succession: Option<Box<dyn Succession>>,
    /// Runs due work: the runtime of the caller that acquired the lease, unless that has shut down.
    runtime: Handle,
    handoff: Handoff,
    meter: LockMeter,
    /// Decides what is due, and what a verdict means.
    keep: Keep,
    /// A renewal without a verdict yet.
    renewing: Option<Box<Renewing>>,
    timer: Timer,
    held: Held,
    streak: HandoffStreak,
}

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
    pub(crate) fn new(
        engine: &Arc<EngineContext>,
        acquisition: &AcquireRequest,
        attempt: Attempt,
    ) -> Box<Keeper> {
        let (deadline, offered) = (attempt.deadline(), attempt.is_offered());
        let (claim, round, fence) = attempt.keep();
        if !offered {
            let mut keeper = Keeper::of(engine, acquisition, claim, &round, fence, (round.sent, deadline));
            keeper.keep.schedule_mut().begin_with(&engine.timing(acquisition.ttl), deadline);
            return keeper;
        }
        let now = engine.now();
        let mut keeper = Keeper::of(engine, acquisition, claim, &round, fence, (now, deadline));
        keeper.take_up(now, deadline);
        keeper
    }

    /// Sets what serves the waiters of this process after the lease.
    pub(crate) fn succeeded_by(mut self: Box<Self>, succession: Box<dyn Succession>) -> Box<Keeper> {
        self.succession = Some(succession);
        self
    }

    fn of(
        engine: &Arc<EngineContext>,
        acquisition: &AcquireRequest,
        claim: Arc<Claim>,
        round: &Arc<Round>,
        fence: Option<FencingToken>,
        (begun, deadline): (Moment, Moment),
    ) -> Box<Keeper> {
        debug_assert!(deadline <= round.sent + acquisition.ttl, "a lease outlives its keys");
        let hold_until = acquisition.max_hold.map(|longest| begun + longest);
        let numbers = (fence, round.store_revision());
        let every = acquisition.renewal.every(&engine.timing(acquisition.ttl));
        let keep = Keep::new(RenewalSchedule::new(every, acquisition.ttl, round.sent));
        let state =
            LeaseState::new(&acquisition.resource, &claim, numbers, deadline, hold_until, lease_env(engine));
        let mut keeper = Keeper {
            state,
            claim,
            queue_key: acquisition.queue_key().clone(),
            succession: None,
            runtime: Handle::current(),
            handoff: acquisition.handoff(),
            meter: acquisition.meter.clone(),
            keep,
            renewing: None,
            timer: Timer::default(),
            held: acquisition.meter.held(begun),
            streak: HandoffStreak::new(begun),
            engine: engine.clone(),
        };
        let key_states = keeper.state.follow(round);
        keeper.plan_repair(key_states);
        Box::new(keeper)
    }

    /// Delivers the lease, which took `rounds` rounds, and reports the new holder to the other
    /// waiters.
    pub(crate) fn deliver(self: Box<Self>, acquisition: &AcquireRequest, rounds: usize) -> Hold {
        let now = self.engine.now();
        let (resource, span) = (&self.state.resource, &acquisition.span.get());
        if !span.is_disabled() {
            span.record("rounds", rounds).record("token", self.state.token().short());
        }
        let token = || self.state.token().short();
        let fence = || self.state.fence.map(FencingToken::get);
        debug!(parent: span, %resource, token = %token(), fencing_token = fence(), "acquired");
        self.meter.rounds(rounds);
        self.meter.remaining(At::Acquire, self.state.left(now), self.ttl());
        if self.claim.mode() == Mode::Exclusive {
            self.report_holder(now);
            self.engine.queues.acquired(&self.claim.keys());
        }
        let hold = Hold::of(self.state.clone());
        if let Some(wanted) = self.park(now) {
            wanted.unpark();
        }
        hold
    }

    /// Parks the keeper until there is work. Returns it if there is some already.
    fn park(mut self: Box<Self>, now: Moment) -> Option<Box<Keeper>> {
        debug_assert!(self.renewing.is_none(), "a keeper is parked before its renewal has a verdict");
        let state = self.state.clone();
        let (bell, wake) = (Waker::from(state.clone()), self.wake(now));
        let context = Context::from_waker(&bell);
        self.engine.nodes.timers.set_on(&self.runtime, &mut self.timer, wake, &context);
        // Checked after the timer is set: closing the coordinator fires all timers.
        if self.engine.closing.is_cancelled() { Some(self) } else { state.park(self) }
    }

    async fn work(mut self: Box<Self>) {
        loop {
            if let Some(ended) = self.handle_events().await {
                return Box::pin(self.conclude(ended)).await;
            }
            self.check_late_answers();
            let now = self.engine.now();
            match self.park(now) {
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
    fn report_holder(&self, now: Moment) {
        let holder = || {
            let remaining = Expiry::In(self.state.left(now));
            let nodes = self.engine.nodes.quorum.needed();
            Holder::new(self.claim.token().clone(), self.state.fence, nodes, remaining)
        };
        self.engine.queues.report(&self.queue_key, None, || (Some(holder()), None), now);
    }

    /// Works until the lease has ended, or nothing is left to do (`None`).
    async fn handle_events(&mut self) -> Option<Ended> {
        loop {
            let event = self.next_event().await?;
            let now = self.engine.now();
            let running = self.state.runs_until(now).is_some();
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
                Event::Verdict(verdict) => self.apply_verdict(verdict, now),
                Event::Closing => Err(LossReason::Closed),
                Event::Time => {
                    if let Some(deadline) = self.state.was_taken_up() {
                        self.confirmed(deadline, now);
                    }
                    let engine = &self.engine;
                    match self.keep.due(now, || engine.are_many_renewing(), || engine.entropy.next_u64()) {
                        Some(Due::Renewal) => self.renew(Vec::new()),
                        Some(Due::Repair) => self.repair(now),
                        None => {}
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
        let now = self.engine.now();
        let wake = self.wake(now);
        if now >= wake {
            return Poll::Ready(Some(Event::Time));
        }
        if waits {
            // Set before `closing` is checked: closing the coordinator fires all timers.
            self.engine.nodes.timers.set(&mut self.timer, wake, context);
        }
        if self.engine.closing.is_cancelled() {
            return Poll::Ready(Some(Event::Closing));
        }
        if waits { Poll::Pending } else { Poll::Ready(None) }
    }

    fn ttl(&self) -> Duration {
        self.keep.schedule().ttl()
    }

    /// When there will be work.
    fn wake(&self, now: Moment) -> Moment {
        // Not judged: an answer may be about to be counted.
        self.keep.poll_timeout(self.state.deadline().unwrap_or(now))
    }
}

/// What the state of a lease needs from the context.
fn lease_env(engine: &EngineContext) -> (&Arc<Timers>, Weak<Registry>, Capabilities) {
    (&engine.nodes.timers, engine.tasks.registry(), engine.nodes.capabilities)
}

impl ParkedKeeper for Keeper {
    fn is_waited_for(&self) -> bool {
        self.succession.is_some() && self.engine.queues.is_waited_for(&self.queue_key)
    }

    fn give_back(mut self: Box<Self>, reply: ReleaseReply) -> FinishInBackground {
        let (engine, runtime) = (self.engine.clone(), self.runtime.clone());
        let work = async move {
            let successor = self.take_successor();
            drop(reply.send(self.release().await));
            drop(successor);
        };
        FinishInBackground::new(work, &engine.tasks, runtime)
    }

    fn leave_taken(mut self: Box<Self>, wanted: Retention) -> FinishInBackground {
        let (engine, runtime) = (self.engine.clone(), self.runtime.clone());
        let work = async move {
            let successor = self.take_successor();
            self.retain(wanted).await;
            drop(successor);
        };
        FinishInBackground::new(work, &engine.tasks, runtime)
    }

    fn unpark(mut self: Box<Self>) {
        let now = self.engine.now();
        if now.back(LATE) >= self.wake(now)
            && let Ok(here) = Handle::try_current()
        {
            // Nothing woke it in time, so its runtime is not driven.
            self.runtime = here;
        }
        let (engine, runtime) = (self.engine.clone(), self.runtime.clone());
        engine.tasks.spawn(self.work(), &runtime);
    }
}

/// A driven runtime fires a timer far sooner than this, unless the process was suspended.
const LATE: Duration = Duration::from_millis(20);

/// Runs on normal completion, on panic and when the runtime drops the keeper, so that no caller
/// waits for it.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.engine.nodes.timers.stop(&mut self.timer);
        self.state.close_slot();
        drop(self.state.take_last_round());
        drop(self.take_successor());
    }
}
