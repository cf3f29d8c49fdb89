//! Passes a lock on to the next waiter in this process.

use std::mem;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use tracing::debug;

use super::dispatcher::Dispatcher;
use super::ending::{Old, lost_before};
use super::{Keeper, LastRound, lease_env};
use crate::engine::attempt::{clean_up, decide, give_up, is_in_time, new_claim};
use crate::engine::cleanup::CleanupOf;
use crate::engine::commands::{Ended, ReleaseReply};
use crate::engine::lease_state::LeaseState;
use crate::engine::options::{AcquireRequest, Fencing, Renewal};
use crate::engine::queue::Waiter;
use crate::error::Lost;
use crate::quorum::round::Driven;
use crate::telemetry::Passed;
use quorlock_protocol::machine::{self, Attempt, Machine as _, Replaced, Wanted, may_hand_over};
use quorlock_protocol::{HoldEnd, Moment, Verdict};

impl Keeper {
    /// Delivers the lease to a waiter.
    pub(crate) fn deliver_to(mut self: Box<Self>, waiter: Waiter, rounds: usize) {
        self.runtime = waiter.runtime.clone();
        // If the receiver is gone, the lease is dropped with the failed message, and so released.
        drop(waiter.sender.send(Ok(self.deliver(&waiter.acquisition, rounds))));
    }

    /// Gives the lock up: passes it to the next local waiter, releases it, or leaves it taken. What that asks the nodes has
    /// left before this returns, except where the lock is left taken. Returns what is still to be done.
    pub(super) fn give_up(mut self: Box<Self>, ended: Ended) -> Option<BoxFuture<'static, ()>> {
        let lapsed = self.has_lapsed();
        match (ended, lapsed) {
            (Ended::Lost(reason), _) => {
                self.lose(reason);
                None
            }
            (Ended::Released(reply), Some(lost)) => {
                if let Some(reply) = reply {
                    drop(reply.send(Err(lost.clone())));
                }
                self.lose(lost.reason);
                None
            }
            (Ended::Retained(wanted), Some(lost)) => {
                wanted.reply(Err(lost.clone().into()));
                self.lose(lost.reason);
                None
            }
            (Ended::Retained(wanted), None) => {
                let successor = self.take_successor();
                Some(Box::pin(self.retain(wanted).map(|()| drop(successor))))
            }
            (Ended::Released(reply), None) => match self.next_here() {
                None => {
                    let successor = self.take_successor();
                    let done = move |released| {
                        if let Some(reply) = reply {
                            drop(reply.send(released));
                        }
                        drop(successor);
                    };
                    Some(Box::pin(self.release().map(done)))
                }
                Some(next) => match self.handoff(&next.acquisition, reply) {
                    Ok(()) => {
                        self.deliver_to(next, 0);
                        None
                    }
                    // Dropped, the dispatcher serves the waiters in a task.
                    Err(reply) => Some(Box::pin(self.pass_on(next, reply).map(drop))),
                },
            },
        }
    }

    /// Ends a lease that was over when its holder gave it up.
    pub(super) fn has_lapsed(&self) -> Option<Lost> {
        let now = self.engine.now();
        self.state.runs_until(now).is_none().then(|| self.state.end(self.state.lapsed(now)))
    }

    /// Returns the next local waiter, if the handoff limits allow one before other processes.
    fn next_here(&mut self) -> Option<Waiter> {
        self.succession.as_ref()?;
        let span = self.handoff.span.unwrap_or(self.ttl());
        let goes_on = self.streak.goes_on(self.handoff.times, span, self.engine.now());
        if goes_on { self.engine.queues.next(&self.queue_key) } else { None }
    }

    /// Moves the duty to serve the waiters to the caller: dropped, the dispatcher does.
    pub(super) fn take_successor(&mut self) -> Option<Dispatcher> {
        let succession = self.succession.take()?;
        Some(Dispatcher::resumed(&self.engine, &self.queue_key, succession))
    }

    /// Hands the lock to the next local waiter without asking any node: the key stays on the nodes,
    /// and the new lease has the deadline of the old one (rule I-21). Otherwise returns the reply,
    /// which is still to be sent.
    pub(super) fn handoff(
        &mut self,
        next: &Arc<AcquireRequest>,
        reply: Option<ReleaseReply>,
    ) -> Result<(), Option<ReleaseReply>> {
        let now = self.engine.now();
        let end = self.state.runs_until(now).unwrap_or(now);
        let successor = machine::Successor {
            ttl: next.ttl,
            is_fenced: next.fencing == Fencing::On,
            is_renewed: next.renewal != Renewal::Manual,
        };
        if !may_hand_over(&self.keep, self.state.fence.is_some(), successor, (now, end)) {
            return Err(reply);
        }
        // The old lease ends before the new one begins.
        let hold = self.hold();
        self.end();
        self.log(hold, HoldEnd::PassedOn);
        self.since = now;
        self.stop_hearing();
        let hold_until = next.max_hold.map(|longest| now + longest);
        self.handoff = next.handoff();
        self.meter = next.meter.clone();
        self.held = self.meter.held(now);
        self.meter.passed(Passed::Locally);
        // A failed renewal is retried when it would have been.
        let every = next.renewal.every(&self.engine.timing(self.ttl()));
        self.keep.schedule_mut().handoff(every);
        let last_round = mem::replace(&mut self.last_round, LastRound::None);
        debug_assert!(self.state.has_ended(), "a lease goes on while the next one begins");
        self.state = LeaseState::new(
            &next.resource,
            &self.claim,
            (None, self.state.store_revision),
            end,
            hold_until,
            lease_env(&self.engine),
        );
        self.until = self.state.deadline().unwrap_or(end);
        match last_round {
            LastRound::InFlight(round) => {
                self.follow(round);
            }
            LastRound::Settled(key_states) => self.keep.settle(Some(key_states)),
            LastRound::None => {}
        }
        self.wants_repair = true;
        debug!(resource = %self.state.resource, token = %self.state.token().short(), "handed over");
        if let Some(reply) = reply {
            drop(reply.send(Ok(())));
        }
        Ok(())
    }

    /// Passes the lock to the next local waiter by one round that replaces the token: a new lease
    /// with a full TTL, and the lock is free at no moment.
    ///
    /// The old lease has ended before anything is sent, so the two never overlap. Every node that
    /// grants holds the new token from then on, as if it had been free. If no quorum did so in
    /// time, both claims are withdrawn, and the returned dispatcher serves the queue. The request has left when this
    /// returns.
    pub(super) fn pass_on(
        mut self: Box<Self>,
        waiter: Waiter,
        reply: Option<ReleaseReply>,
    ) -> impl Future<Output = Option<Dispatcher>> + Send {
        let (valid_until, hold) = (self.valid_until(), self.hold());
        self.end();
        let next = &waiter.acquisition;
        let fence_hint = self.engine.fence_hint(next, self.state.fence);
        let (from, to) = (self.claim.clone(), new_claim(&self.engine, next, fence_hint));
        let old = Old::of(self.settle());
        debug_assert!(self.state.has_ended(), "a lease goes on while its lock is passed on");
        let ttl = next.ttl;
        let (nodes, wanted) = (&self.engine.nodes, Wanted { claim: to.clone(), ttl, fence_hint });
        let round = Driven::attempt(nodes, Attempt::pass_on(&**nodes, self.engine.now(), wanted, from));
        async move {
            let next = &waiter.acquisition;
            let verdict = decide(&self.engine, &round).await;
            let now = self.engine.now();
            let deadline = round.with(|round, nodes| round.round().deadline(nodes, self.engine.drift));
            if verdict != Verdict::Won {
                self.not_confirmed(round.report());
            }
            self.report_release(reply, old.clone(), &round, valid_until);
            let is_passed_on = verdict == Verdict::Won && is_in_time(&self.engine, &round, now);
            self.log(hold, if is_passed_on { HoldEnd::PassedOn } else { HoldEnd::Released });
            // A node without the new token may still have the old one.
            self.take_back(old, round.clone(), Replaced::left_behind);
            if is_passed_on {
                next.meter.passed(Passed::ByRound);
                let (rounds, fence) = round.with(|round, _| (round.rounds(), round.number()));
                debug!(resource = %next.resource, token = %to.token().short(), "passed on");
                let mut passed = Keeper::of(&self.engine, next, to, &round, fence, (round.sent, deadline));
                (passed.streak, passed.succession) = (self.streak, self.succession.take());
                passed.deliver_to(waiter, rounds);
                return None;
            }
            next.meter.passed(Passed::Failed);
            debug!(resource = %self.state.resource, votes = %round.report(), "not passed on");
            clean_up(&self.engine, &self.runtime, &to, next.ttl, give_up(&round), CleanupOf::Lease);
            // It was first in the queue, and stays first.
            self.engine.queues.put_back(&self.queue_key, waiter);
            self.engine.queues.clear_held(&self.queue_key);
            self.take_successor()
        }
    }

    /// Answers a holder that has released the lock, which `round` passes on: whether enough nodes had lost the key
    /// before that another client may have held the lock (rule I-11).
    fn report_release(
        &self,
        reply: Option<ReleaseReply>,
        old: Old,
        round: &Arc<Driven<Attempt>>,
        valid_until: Moment,
    ) {
        let answer = move |outcome| {
            if let Some(reply) = reply {
                drop(reply.send(outcome));
            }
        };
        if !old.has_lost(round) {
            return answer(Ok(()));
        }
        // Nearly never. A single node without the key is no loss: the others decide, and the next holder does not wait.
        let (engine, round, state, meter) =
            (self.engine.clone(), round.clone(), self.state.clone(), self.meter.clone());
        let judge = async move {
            let lost = old.was_lost(&round, &engine, valid_until).await;
            answer(if lost { Err(lost_before(&state, &meter)) } else { Ok(()) });
        };
        self.engine.tasks.spawn(judge, &self.runtime);
    }
}
