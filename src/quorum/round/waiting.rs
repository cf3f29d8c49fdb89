//! Waits for the responses and the verdict of a round.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::yield_now;

use super::{Driven, Inner};
use crate::runtime::clock::Clock;
use crate::runtime::timer::Timer;
use quorlock_protocol::machine::{Attempt, Deployment, LEAST_PATIENCE, Machine};
use quorlock_protocol::{Moment, Verdict};

/// Tasks of silent nodes are woken after this fraction (a quarter) of the timeout.
const WAKE_AFTER: u32 = 4;
/// How often other tasks run before silence counts as a timeout: once to read from the sockets of a
/// single-threaded runtime, once to parse what was read.
pub(super) const SILENCE_CHECKS: usize = 3;

impl Driven<Attempt> {
    /// Waits until the verdict is certain; returns `None` if something is to be sent before. Its driver then
    /// [sends](Driven::send_due) it, and waits again.
    pub(crate) async fn decided(&self) -> Option<Verdict> {
        self.wait_for(None, |inner, now| {
            let verdict = inner.machine.decide(&*self.nodes, now);
            (verdict.is_some() || inner.machine.has_unsent()).then_some(verdict)
        })
        .await
    }
}

impl<M: Machine> Driven<M> {
    /// Waits until the verdict is certain, or every silent node has timed out. Once the verdict can
    /// no longer be *unavailable*, the remaining wait is short.
    pub(crate) async fn verdict(&self) -> Verdict {
        self.wait_for(None, |inner, now| inner.machine.round_mut().decide(&*self.nodes, now)).await
    }

    /// Waits until every asked node has responded or timed out. An inspection waits only briefly
    /// for the rest once enough have responded.
    pub(crate) async fn settled(&self) {
        self.wait_for(None, |inner, now| inner.machine.round().poll_timeout(now).is_none().then_some(()))
            .await;
    }

    /// Waits until `done` returns true of the machine; it is also asked at `until`.
    pub(crate) async fn until(&self, until: Moment, done: impl Fn(&M, Moment) -> bool) {
        self.wait_for(Some(until), |inner, now| done(&inner.machine, now).then_some(())).await;
    }

    /// Wakes the task of `context` once, with the last response at the latest. Returns the earliest
    /// timeout of the silent nodes; `None` if all have responded.
    pub(crate) fn listen(&self, context: &Context<'_>) -> Option<Moment> {
        let mut inner = self.inner.lock();
        let limit = inner.machine.round().poll_timeout(self.sent)?;
        inner.waiting.join(context);
        Some(limit)
    }

    /// Waits until the node at `index` has responded or is overdue. Returns whether it refused.
    pub(crate) async fn refuses(&self, index: usize) -> bool {
        let patience = || self.nodes.overdue_after(index, LEAST_PATIENCE, self.ttl);
        debug_assert!(
            !self.inner.lock().machine.round().is_unasked(index),
            "waits for a node that was not asked"
        );
        let asked = self.inner.lock().machine.round().asked_at(index);
        let overdue = asked.map(|asked| asked + patience());
        self.wait_for(overdue, |inner, now| {
            inner.waiting.for_each_answer();
            let refuses = inner.machine.round().refuses(&*self.nodes, index, now);
            refuses.or_else(|| overdue.is_some_and(|overdue| now >= overdue).then_some(false))
        })
        .await
    }

    /// Waits until `done` returns a value; it is also called when silence may decide, and at `until`.
    async fn wait_for<T>(
        &self,
        until: Option<Moment>,
        done: impl Fn(&mut Inner<M>, Moment) -> Option<T>,
    ) -> T {
        let mut wait = Wait { round: self, timer: Timer::default(), begun: false, woken: false };
        // No node has timed out as of `sent`. If one has by now, the timer fires immediately; only
        // then is the clock read.
        let mut now = self.sent;
        loop {
            let outcome = poll_fn(|context| {
                let mut inner = self.inner.lock();
                let mut outcome = done(&mut inner, now);
                if outcome.is_none() && wait.begun {
                    let present = self.nodes.clock.now();
                    let is_up = |time: Moment| now < time && time <= present;
                    if inner.machine.poll_silence(now).is_some_and(is_up) || until.is_some_and(is_up) {
                        return Poll::Ready(None);
                    }
                    now = present;
                    outcome = done(&mut inner, now);
                }
                if outcome.is_some() {
                    return Poll::Ready(outcome);
                }
                wait.begun = true;
                inner.waiting.join(context);
                let (next, deciding) = (inner.machine.poll_silence(now), inner.machine.deciding());
                let (sent, limit) = (deciding.sent(), deciding.poll_timeout(now));
                drop(inner);
                let wake_silent = limit.filter(|_| !wait.woken).map(|limit| self.wakes_at(sent, limit, now));
                if wake_silent.is_some_and(|wake_silent| now >= wake_silent) {
                    wait.woken = true;
                    self.wake_silent();
                }
                let wake_silent = wake_silent.filter(|_| !wait.woken);
                let until = until.filter(|until| *until > now);
                let at = next.into_iter().chain(wake_silent).chain(until).min();
                if let Some(at) = at {
                    self.nodes.timers.set(&mut wait.timer, at, context);
                }
                Poll::Pending
            })
            .await;
            if let Some(outcome) = outcome {
                return outcome;
            }
            // If this task was delayed, responses may already wait to be read, and the silence is
            // not the nodes' (rule I-46): let the tasks that read them run first.
            for _ in 0..SILENCE_CHECKS {
                yield_now().await;
                if let Some(outcome) = done(&mut self.inner.lock(), now) {
                    return outcome;
                }
            }
            now = self.nodes.clock.now();
        }
    }

    /// Returns until when a round needs no task that [waits](Driven::verdict) for it: then the tasks of silent nodes are to be
    /// woken. Asked again at that time, it may return a later one.
    pub(crate) fn needs_no_task_until(&self, now: Moment) -> Moment {
        let limit = self.inner.lock().machine.round().poll_timeout(self.sent);
        limit.map_or(now, |limit| self.wakes_at(self.sent, limit, now))
    }

    /// Returns when to wake the tasks of silent nodes that were asked at `sent` and time out at `limit`: when the first node
    /// is overdue, or after a fraction of the timeout. Before that, returns when to check again:
    /// nearly all rounds are over by then and need not compute what is expected of their nodes.
    fn wakes_at(&self, sent: Moment, limit: Moment, now: Moment) -> Moment {
        let part = limit.since(sent) / WAKE_AFTER;
        let earliest = sent + part.min(LEAST_PATIENCE);
        if now < earliest {
            return earliest;
        }
        let overdue = |node| self.nodes.overdue_after(node, LEAST_PATIENCE, self.ttl);
        sent + (0..self.nodes.members.len()).map(overdue).fold(part, Duration::min)
    }

    /// Wakes the connections of silent nodes, whose task may have ended or belong to a runtime that
    /// is not driven.
    pub(crate) fn wake_silent(&self) {
        for (index, member) in self.nodes.members.iter().enumerate() {
            let is_silent = self.inner.lock().machine.deciding().asked_at(index).is_some();
            if is_silent {
                drop(member.node.ready());
            }
        }
    }
}

/// A task that waits for the round.
struct Wait<'a, M: Machine> {
    round: &'a Driven<M>,
    /// Fires at a node's timeout.
    timer: Timer,
    /// Whether the round has its waker.
    begun: bool,
    woken: bool,
}

impl<M: Machine> Drop for Wait<'_, M> {
    fn drop(&mut self) {
        self.round.nodes.timers.stop(&mut self.timer);
        if self.begun {
            // Tasks that still wait register again.
            let woken = self.round.inner.lock().waiting.leave(true);
            woken.into_iter().for_each(Waker::wake);
        }
    }
}
