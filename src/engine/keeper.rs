//! Keeps one lease from its acquisition to its end: renews it, and releases the lock or passes it on.
//!
//! A [`Keeper`] lies in the [`LeaseState`] and handles what happens: a lease that goes on has no task.
//! Only it sends requests for the lease, so a renewal and a release cannot race (I-15). The event by which the lease ends
//! takes it out for good, and what is still to be done is done by its owner: the future of the holder that waits, or a task.
//!
//! ```text
//!  acquired ──► in the state of the lease ◄──┐
//!                 │  │                       │ goes on
//!                 │  └── event ──► handled ──┤
//!                 │                          │ the lease has ended
//!                 └── the holder releases ───┤
//!                                            ▼
//!                                         conclude ──► released, passed on, retained, or cleaned up
//! ```
//!
//! # Events
//!
//! | event | effect |
//! |---|---|
//! | the lease is from an offer | Its first renewal, which takes the offer up, is planned for soon (`renewing`); a thread sends it and reads the answers if the runtime is blocked (`take_up`). |
//! | a renewal is due | Asks all nodes for a full TTL, unless many other renewals are in flight (`renewing`). |
//! | verdict on a renewal, by the response that makes it certain, or by a task where nodes are silent (`renewing`) | Confirmed: the deadline moves, counted from before the renewal was sent. Not confirmed: nothing changes, and the renewal is retried. Too many nodes without the key: the lease is lost. |
//! | an answer to a renewal, after its verdict or when the next one is in flight, completes as many nodes without the key as another client needs | The lease is lost. |
//! | all nodes have answered in the latest round | What it left is kept, and the round dropped. A repair is planned, if it won the lock for no more than a quorum. |
//! | a node says that a key has changed | The next renewal is due now (`machine::Keep` decides); a task sets the timer, since the node may be reporting it, on the runtime that it has. |
//! | a repair is due | Asks the nodes again that have not granted, while no more than a quorum holds the key (`renewing`; which nodes, `machine::Keep` decides). |
//! | the holder renews | As if a renewal were due; joins one in flight. |
//! | the holder extends it | Renews for a longer TTL, also from then on. A renewal in flight has asked for less, and is not counted. |
//! | the holder downgrades | The claim is shared from now on, and a renewal says so to the nodes. |
//! | the holder releases, or drops the lease | Hands the lock off to the next waiter of this process, passes it on by one round, or releases it (`succession`, `ending`). |
//! | the holder retains the lock | Replaces the token by one that no process holds (`retaining`). |
//! | the deadline passes | The lease is lost, and its keys are cleaned up. |
//! | the coordinator closes | The same. |
//! | the runtime of its timer has shut down | The keeper moves to one that is driven. So it does if a call of the program finds that the timer is late; what a node reports may come on the runtime of its connection, and moves nothing. |
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
//! ([`FinishInBackground`]). If that task is dropped, because it panicked or its runtime shut down, `Keeper::drop` lets
//! another one serve the queue. Nothing is released then: the keys expire.

use std::sync::{Arc, Weak};
use std::task::{Context, Wake as _, Waker};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, ready};
use tokio::runtime::{EnterGuard, Handle};
use tracing::debug;

use super::attempt::Attempt;
use super::commands::{Ended, Event};
use super::context::EngineContext;
use super::hold::Hold;
use super::lease_state::{LeaseKeeper, LeaseState};
use super::options::AcquireRequest;
use super::wait::Handoff;
use crate::error::{LossReason, Lost};
use crate::node::Capabilities;
use crate::quorum::round::{Driven, Followed};
use crate::runtime::tasks::{FinishInBackground, Registry};
use crate::runtime::timer::{Timer, Timers};
use crate::telemetry::{At, Held, LockMeter};
use dispatcher::{Dispatcher, Succession};
use quorlock_protocol::machine::{self, Due, Keep, KeyStates, Machine as _, Streak};
use quorlock_protocol::{Claim, FencingToken, Mode, Moment, RenewalSchedule};
use renewing::Renewing;

pub(crate) mod dispatcher;
mod ending;
mod logging;
mod readers;
mod renewing;
mod retaining;
mod succession;

/// What the latest round left on the nodes.
enum LastRound {
    /// Nothing new.
    None,
    /// Some nodes may still answer.
    InFlight(Arc<Followed>),
    /// All nodes have answered.
    Settled(KeyStates),
}

/// Keeps one lease. There may be tens of thousands, so state that only a busy keeper needs is boxed.
pub(crate) struct Keeper {
    engine: Arc<EngineContext>,
    state: Arc<LeaseState>,
    claim: Arc<Claim>,
    /// The key of the wait queue in this process.
    queue_key: Arc<str>,
    /// Of the waiters of this process, unless this lease keeps out none of them.
    succession: Option<Succession>,
    /// Runs due work: the runtime of the caller that acquired the lease, unless that has shut down.
    runtime: Handle,
    handoff: Handoff,
    meter: LockMeter,
    /// Decides what is due, and what a verdict means.
    keep: Keep,
    /// A renewal without a verdict yet.
    renewing: Option<Box<Renewing>>,
    last_round: LastRound,
    /// Whether to ask nodes again, if the latest round ends with the key on no more than a quorum.
    wants_repair: bool,
    /// Whether it hears of changes of its keys.
    hears: bool,
    timer: Timer,
    held: Held,
    /// When the hold of the present holder began.
    since: Moment,
    /// When its validity ends, or has ended: the state forgets the deadline once it is seen to have passed.
    until: Moment,
    streak: Streak,
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
        keeper.plan_take_up(now, deadline);
        keeper
    }

    /// Has the waiters of this process served after the lease.
    fn succeeded_by(mut self: Box<Self>, dispatcher: Dispatcher) -> Box<Keeper> {
        self.succession = Some(dispatcher.rest());
        self
    }

    fn of(
        engine: &Arc<EngineContext>,
        acquisition: &AcquireRequest,
        claim: Arc<Claim>,
        round: &Arc<Driven<machine::Attempt>>,
        fence: Option<FencingToken>,
        (begun, deadline): (Moment, Moment),
    ) -> Box<Keeper> {
        debug_assert!(deadline <= round.sent + acquisition.ttl, "a lease outlives its keys");
        let hold_until = acquisition.max_hold.map(|longest| begun + longest);
        let numbers = (fence, round.with(|attempt, _| attempt.round().store_revision()));
        let every = acquisition.renewal.every(&engine.timing(acquisition.ttl));
        let keep = Keep::new(RenewalSchedule::new(every, acquisition.ttl, round.sent));
        let state =
            LeaseState::new(&acquisition.resource, &claim, numbers, deadline, hold_until, lease_env(engine));
        let mut keeper = Keeper {
            until: state.deadline().unwrap_or(deadline),
            state,
            claim,
            queue_key: acquisition.queue_key().clone(),
            succession: None,
            runtime: Handle::current(),
            handoff: acquisition.handoff(),
            meter: acquisition.meter.clone(),
            keep,
            renewing: None,
            last_round: LastRound::None,
            wants_repair: true,
            hears: false,
            timer: Timer::default(),
            held: acquisition.meter.held(begun),
            since: begun,
            streak: Streak::new(begun),
            engine: engine.clone(),
        };
        let key_states = keeper.follow(round.clone());
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
            let needed = self.engine.nodes.quorum.needed();
            self.engine.queues.set_held(&self.queue_key, &self.state, needed, now);
            self.engine.queues.acquired(&self.claim.keys());
        }
        let hold = Hold::of(self.state.clone());
        self.wait(now);
        hold
    }

    /// Waits in the state of the lease for what happens to it.
    fn wait(mut self: Box<Self>, now: Moment) {
        self.set_timer(now);
        // Checked after the timer is set: closing the coordinator fires all timers.
        let (state, is_closing) = (self.state.clone(), self.engine.closing.is_cancelled());
        state.give_to(self);
        if is_closing {
            state.wake();
        }
    }

    fn set_timer(&mut self, now: Moment) {
        let (bell, wake) = (Waker::from(self.state.clone()), self.wake(now));
        let context = Context::from_waker(&bell);
        self.engine.nodes.timers.set_on(&self.runtime, &mut self.timer, wake, &context);
    }

    /// Has a task deliver an event, of which the keeper asks nodes: one of them may be reporting something now.
    fn handle_in_task(&self, event: impl FnOnce() -> Event + Send + 'static) {
        let state = self.state.clone();
        self.engine.tasks.spawn(async move { state.handle(event()) }, &self.runtime);
    }

    /// Has a task set the timer, on a runtime that is driven.
    fn move_to_task(&self) {
        self.handle_in_task(|| Event::Adopt(Handle::current()));
    }

    /// Does what is due at `now`. Returns whether anything was.
    fn look(&mut self, now: Moment) -> Result<bool, LossReason> {
        if self.engine.closing.is_cancelled() {
            return Err(LossReason::Closed);
        }
        let planned = self.check_late_answers();
        let wake = self.wake(now);
        if now < wake {
            return Ok(planned);
        }
        if self.state.runs_until(now).is_none() {
            return Err(self.state.lapsed(now));
        }
        let engine = &self.engine;
        match self.keep.due(now, || engine.are_many_renewing(), || engine.entropy.next_u64()) {
            Some(Due::Renewal) => self.renew(None),
            Some(Due::Repair) => self.repair(now),
            None => self.wait_in_task(now),
        }
        Ok(true)
    }

    fn ttl(&self) -> Duration {
        self.keep.schedule().ttl()
    }

    /// When there will be work.
    fn wake(&self, now: Moment) -> Moment {
        // Not judged: an answer may be about to be counted.
        let due = self.keep.poll_timeout(self.state.deadline().unwrap_or(now));
        self.responses_until().map_or(due, |until| until.min(due))
    }
}

/// What the state of a lease needs from the context.
fn lease_env(engine: &EngineContext) -> (&Arc<Timers>, Weak<Registry>, Capabilities) {
    (&engine.nodes.timers, engine.tasks.registry(), engine.nodes.capabilities)
}

impl LeaseKeeper for Keeper {
    fn handle(&mut self, event: Event) -> Option<Ended> {
        if matches!(event, Event::Settled) && !self.settled() {
            return None;
        }
        let now = self.engine.now();
        if !event.is_of_a_node()
            && now.back(LATE) >= self.wake(now)
            && let Ok(here) = Handle::try_current()
        {
            // Nothing woke it in time, so its runtime is not driven.
            self.runtime = here;
        }
        let runtime = self.runtime.clone();
        let _entered = enter(&runtime);
        let outcome = match event {
            Event::End(ended) => return Some(ended),
            Event::Renew(_) | Event::Extend(..) | Event::Downgrade(_)
                if self.state.runs_until(now).is_none() =>
            {
                Err(self.state.lapsed(now))
            }
            Event::Verdict(round, verdict) => self.apply_verdict(&round, verdict, now),
            Event::Renew(reply) => {
                self.renew(Some(reply));
                Ok(())
            }
            Event::Extend(ttl, reply) => {
                self.extend(ttl, reply);
                Ok(())
            }
            Event::Downgrade(reply) => {
                self.downgrade(reply);
                Ok(())
            }
            Event::Adopt(runtime) => {
                self.runtime = runtime;
                Ok(())
            }
            Event::Hint => {
                if self.keep.handle_hint(&*self.engine.nodes, now) {
                    // On the runtime that it has: another one may only have the connection (I-32).
                    let on = runtime.clone();
                    self.handle_in_task(|| Event::Adopt(on));
                }
                return None;
            }
            Event::Lost => {
                self.handle_in_task(|| Event::End(Ended::Lost(LossReason::QuorumLost)));
                return None;
            }
            Event::Decided | Event::Settled => {
                if matches!(event, Event::Decided) {
                    self.decided(now);
                }
                self.set_timer(now);
                if self.engine.closing.is_cancelled() {
                    self.move_to_task();
                }
                return None;
            }
            Event::Attend => {
                let looked = if now < self.wake(now) { Ok(false) } else { self.look(now) };
                if let Some(renewing) = &self.renewing {
                    renewing.round.wake_silent();
                }
                looked.map(|_| ())
            }
            Event::Look => match self.look(now) {
                Ok(false) => {
                    // Woken for nothing: its runtime has shut down, where a timer would fire immediately again.
                    self.move_to_task();
                    return None;
                }
                outcome => outcome.map(|_| ()),
            },
        };
        match outcome {
            Ok(()) => {
                self.set_timer(now);
                // Checked after the timer is set: closing the coordinator fires all timers.
                self.engine.closing.is_cancelled().then_some(Ended::Lost(LossReason::Closed))
            }
            Err(reason) => Some(Ended::Lost(reason)),
        }
    }

    fn handle_later(&self, event: Event) {
        self.handle_in_task(|| event);
    }

    fn is_waited_for(&self) -> bool {
        self.succession.is_some() && self.engine.queues.is_waited_for(&self.queue_key)
    }

    fn release_here(mut self: Box<Self>) -> FinishInBackground<Result<(), Lost>> {
        let (engine, runtime) = (self.engine.clone(), self.runtime.clone());
        let _entered = enter(&runtime);
        let work: BoxFuture<'static, _> = if let Some(lost) = self.has_lapsed() {
            self.lose(lost.reason);
            Box::pin(ready(Err(lost)))
        } else {
            let successor = self.take_successor();
            Box::pin(self.release().inspect(move |_| drop(successor)))
        };
        FinishInBackground::new(work, &engine.tasks, runtime.clone())
    }

    fn conclude(self: Box<Self>, ended: Ended) {
        let (engine, runtime) = (self.engine.clone(), self.runtime.clone());
        let _entered = enter(&runtime);
        if let Some(rest) = self.give_up(ended) {
            engine.tasks.spawn(rest, &runtime);
        }
    }
}

/// Enters the runtime, unless the caller is in one: a node may need it to be asked.
fn enter(runtime: &Handle) -> Option<EnterGuard<'_>> {
    Handle::try_current().is_err_and(|error| error.is_missing_context()).then(|| runtime.enter())
}

/// A driven runtime fires a timer far sooner than this, unless the process was suspended.
const LATE: Duration = Duration::from_millis(20);

/// Runs on normal completion, on panic and when the runtime drops the keeper, so that no caller waits for it.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.engine.nodes.timers.stop(&mut self.timer);
        self.stop_hearing();
        self.state.close_slot();
        drop(self.take_successor());
    }
}
