//! Sends one request to all nodes, and knows the verdict as soon as it cannot change.

use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::task::yield_now;

use super::key_states::KeyStates;
use super::vote_report::VoteOutcome;
use crate::node::{Collect, NodeError, ReceivedAt, Responder, Response, SharedRequest, Vote};
use crate::runtime::clock::Clock;
use crate::runtime::timer::Timer;
use crate::telemetry::Op;
use quorlock_protocol::{Moment, Quorum, Tally, Verdict};

mod responses;
#[cfg(test)]
mod tests;
mod votes;

use super::members::Nodes;
use super::members::{LEAST_PATIENCE, NodeHandle};
use responses::{Responses, Slot, State};

/// One request to all nodes, or to some of them, and their answers.
///
/// The answers are collected here, by whichever task brings them; nobody has to poll for them.
/// So a round that was decided early goes on by itself: its stragglers still do as they were
/// asked, and a later release knows how each of them stands. Nothing is dropped half-way.
///
/// They are counted when something may come of it: not before as many are there as can decide, not
/// again once they have, and the last one only wakes whoever waits for it. As soon as a node has let its
/// time pass, which makes it an unknown vote, each answer counts.
pub(crate) struct Round {
    nodes: Arc<Nodes>,
    /// Read before the first byte was sent (rule I-1).
    pub(crate) sent: Moment,
    /// Which votes the request is sent for: a release wants the key gone.
    pub(crate) expect: Expect,
    op: Op,
    /// Bounds the time limits of the nodes.
    pub(crate) ttl: Duration,
    slots: Mutex<Responses>,
    abandoned: AtomicBool,
}

/// Learns how the nodes stand once all of them have answered in a round.
pub(crate) trait OnSettled: fmt::Debug + Send + Sync {
    /// All nodes have answered in `round`, and stand so.
    fn settled(&self, round: &Round, standings: KeyStates);
}

/// After this part of the time of a node it is looked to whether its task is driven.
const WAKE_AFTER: u32 = 4;

/// As many nodes as a round has room for without asking the allocator once more.
const USUAL: usize = 5;

/// As [`LEAST_PATIENCE`], for whoever only wants to know what the nodes say, and is not in a hurry.
const LEAST_LOOK: Duration = Duration::from_millis(250);
/// How often others have their turn before silence counts: the first has what came read from the sockets
/// of a runtime with one thread, the second has it understood.
const LAST_LOOKS: usize = 3;

/// What a request wants from a node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Expect {
    /// That the key holds the token.
    Hold,
    /// The same, and a number for the fencing token.
    Number,
    /// That it does not.
    Released,
    /// To hear anything at all.
    AnyAnswer,
}

impl Round {
    /// Asks every node for which `request` has one. `ttl` bounds the time limits.
    pub(crate) fn start<Q: Into<SharedRequest>>(
        nodes: &Arc<Nodes>,
        expect: Expect,
        ttl: Duration,
        request: impl Fn(usize) -> Option<Q>,
    ) -> Arc<Round> {
        let request = |index| request(index).map(Into::into);
        let requests: SmallVec<[Option<SharedRequest>; USUAL]> =
            (0..nodes.members.len()).map(request).collect();
        let op = Op::of(requests.iter().flatten().next().map(Deref::deref));
        // All must be known to be asked before the first one answers.
        let is_asked = |index| requests.get(index).is_some_and(Option::is_some);
        let round = Round::prepare(nodes, expect, op, ttl, |index, sent| {
            if is_asked(index) { State::Pending { asked: sent } } else { State::Skipped }
        });
        for (index, request) in requests.into_iter().enumerate() {
            if let Some(request) = request {
                round.send(index, request);
            }
        }
        round
    }

    /// Asks the node at `first` only. The others are to follow by [`ask_rest`](Round::ask_rest).
    pub(crate) fn start_at(
        nodes: &Arc<Nodes>,
        expect: Expect,
        ttl: Duration,
        first: usize,
        request: &SharedRequest,
    ) -> Arc<Round> {
        let round = Round::prepare(nodes, expect, Op::of(Some(request)), ttl, |_, _| State::Unasked);
        round.ask(first, request.clone());
        round
    }

    /// Asks all those that have not been asked yet.
    pub(crate) fn ask_rest(self: &Arc<Round>, request: &SharedRequest) {
        for index in 0..self.nodes.members.len() {
            let unasked = matches!(self.slots().nodes.get(index), Some(Slot { state: State::Unasked, .. }));
            if unasked {
                self.ask(index, request.clone());
            }
        }
    }

    /// Asks no node: what they say comes [unasked](Round::offered). What it counts from, and until when it is waited
    /// for, is as if they were asked now for a key that lives for `life`.
    pub(crate) fn without_requests(nodes: &Arc<Nodes>, expect: Expect, life: Duration) -> Arc<Round> {
        let round =
            Round::prepare(nodes, expect, Op::of(None), life, |_, sent| State::Pending { asked: sent });
        round.slots().wait_until(round.sent + life);
        round
    }

    /// The node at `index` votes without being asked for it just now. Only its first vote counts.
    pub(crate) fn offered(&self, index: usize, vote: Response, now: Moment) {
        let mut slots = self.slots();
        if slots.asked_at(index).is_some() {
            slots.answered(index, Ok(vote), now.since(self.sent));
            self.conclude(slots, now);
        }
    }

    fn prepare(
        nodes: &Arc<Nodes>,
        expect: Expect,
        op: Op,
        ttl: Duration,
        state: impl Fn(usize, Moment) -> State,
    ) -> Arc<Round> {
        let sent = nodes.clock.now();
        let slot = |(index, member): (usize, &NodeHandle)| {
            let limit = sent + nodes.limit(member, ttl);
            Slot { limit, state: state(index, sent) }
        };
        let slots = nodes.members.iter().enumerate().map(slot);
        let slots = Mutex::new(Responses::new(slots.collect()));
        let abandoned = AtomicBool::new(false);
        Arc::new(Round { sent, expect, op, ttl, slots, nodes: nodes.clone(), abandoned })
    }

    /// Asks a node that has not been asked.
    pub(crate) fn ask(self: &Arc<Round>, index: usize, request: SharedRequest) {
        let Some(member) = self.nodes.members.get(index) else { return };
        let now = self.nodes.clock.now();
        self.slots().asked(index, now, now + self.nodes.limit(member, self.ttl));
        self.send(index, request);
    }

    /// The node answers into the round, perhaps before this returns.
    fn send(self: &Arc<Round>, index: usize, request: SharedRequest) {
        let Some(member) = self.nodes.members.get(index) else { return };
        member.node.ask(request, Responder::new(self.clone(), index));
    }

    /// Waits for the verdict: until it cannot change any more, or every node that has not
    /// answered has timed out. Once it is certain that the verdict is not *unavailable*, that is little.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: the round goes on, and can be asked again.
    pub(crate) async fn verdict(&self) -> Verdict {
        self.wait_for(None, |slots, now| self.decide(slots, now)).await
    }

    /// Waits until every node that was asked has answered or has timed out. Whoever only wants to hear
    /// what they say waits a little while for the rest once enough have answered.
    pub(crate) async fn settled(&self) {
        self.wait_for(None, |slots, now| slots.next_limit(now).is_none().then_some(())).await;
    }

    /// Wakes the task of `context` once, no later than when the last answer comes. Returns when the first
    /// of those nodes has timed out that have not answered; `None` where all have.
    pub(crate) fn listen(&self, context: &Context<'_>) -> Option<Moment> {
        let mut slots = self.slots();
        let limit = slots.next_limit(self.sent)?;
        slots.waiting.join(context);
        Some(limit)
    }

    /// Waits until the node at `index` has answered or is overdue, and says whether it refused.
    pub(crate) async fn refuses(&self, index: usize) -> bool {
        let patience = |member| self.nodes.overdue_after(member, LEAST_PATIENCE, self.ttl);
        let asked = self.slots().asked_at(index);
        let overdue = asked.zip(self.nodes.members.get(index)).map(|(asked, node)| asked + patience(node));
        self.wait_for(overdue, |slots, now| {
            slots.waiting.for_each_answer();
            let Some(said) = self.said(slots, index, now) else {
                return overdue.is_some_and(|overdue| now >= overdue).then_some(false);
            };
            Some(match said {
                VoteOutcome::Held(_)
                | VoteOutcome::NotYourTurn
                | VoteOutcome::FenceAhead
                | VoteOutcome::Free => true,
                VoteOutcome::Granted
                | VoteOutcome::Restored
                | VoteOutcome::Quarantined { .. }
                | VoteOutcome::Duplicate { .. }
                | VoteOutcome::Pending
                | VoteOutcome::Failed(_)
                | VoteOutcome::Skipped => false,
            })
        })
        .await
    }

    /// Waits until something is `done`, which may be because the time of a node is up, or because it is
    /// `until`.
    async fn wait_for<T>(
        &self,
        until: Option<Moment>,
        done: impl Fn(&mut Responses, Moment) -> Option<T>,
    ) -> T {
        let mut wait = Wait { round: self, timer: Timer::default(), begun: false, woken: false };
        // Nobody's time is up as of then. Where it is by now, the timer fires at once, and only then
        // there is need of a look at the clock.
        let mut now = self.sent;
        loop {
            let outcome = poll_fn(|context| {
                let mut slots = self.slots();
                let mut outcome = done(&mut slots, now);
                if outcome.is_none() && wait.begun {
                    let present = self.nodes.clock.now();
                    let is_up = |time: Moment| now < time && time <= present;
                    if slots.next_limit(now).is_some_and(is_up) || until.is_some_and(is_up) {
                        return Poll::Ready(None);
                    }
                    now = present;
                    outcome = done(&mut slots, now);
                }
                if outcome.is_some() {
                    return Poll::Ready(outcome);
                }
                wait.begun = true;
                slots.waiting.join(context);
                let next = slots.next_limit(now);
                drop(slots);
                let wake_silent = next.filter(|_| !wait.woken).map(|limit| self.wakes_at(limit, now));
                if wake_silent.is_some_and(|wake_silent| now >= wake_silent) {
                    wait.woken = true;
                    self.wake_silent();
                }
                let next = if wait.woken { next } else { wake_silent };
                let at = next.into_iter().chain(until.filter(|until| *until > now)).min();
                if let Some(at) = at {
                    self.nodes.timers.set(&mut wait.timer, at, context);
                }
                Poll::Pending
            })
            .await;
            if let Some(outcome) = outcome {
                return outcome;
            }
            // Where this program had to wait for its own turn, the answers may have come before it, and
            // silence is not theirs (rule I-46): whoever reads them has its turn first.
            for _ in 0..LAST_LOOKS {
                yield_now().await;
                if let Some(outcome) = done(&mut self.slots(), now) {
                    return outcome;
                }
            }
            now = self.nodes.clock.now();
        }
    }

    /// When to see to those that are waited for until `limit`: when the first node is overdue, or a part of
    /// that time is up. Before then, when to ask again: nearly all rounds are over by that time, and are
    /// spared to find out what their nodes should need.
    fn wakes_at(&self, limit: Moment, now: Moment) -> Moment {
        let part = limit.since(self.sent) / WAKE_AFTER;
        let earliest = self.sent + part.min(LEAST_PATIENCE);
        if now < earliest {
            return earliest;
        }
        let overdue = |member| self.nodes.overdue_after(member, LEAST_PATIENCE, self.ttl);
        self.sent + self.nodes.members.iter().map(overdue).fold(part, Duration::min)
    }

    /// Sees to it that somebody answers for the nodes that have not: a node's task may have ended, or
    /// stand still, with another runtime.
    pub(crate) fn wake_silent(&self) {
        let members = self.nodes.members.iter().zip(0..);
        let silent = |index: usize| {
            matches!(self.slots().nodes.get(index), Some(Slot { state: State::Pending { .. }, .. }))
        };
        for (member, index) in members {
            if silent(index) {
                drop(member.node.ready());
            }
        }
    }

    /// Waits until the node at `index` has answered, for as long as that takes. `None` if it was
    /// not asked.
    pub(crate) async fn answer_of(&self, index: usize) -> Option<Result<Vote, NodeError>> {
        poll_fn(|context| {
            let mut slots = self.slots();
            match slots.nodes.get(index).map(|slot| &slot.state) {
                None | Some(State::Skipped) => Poll::Ready(None),
                Some(State::Answered { result, .. }) => {
                    let vote = result.as_ref().map(|answer| answer.vote.clone());
                    Poll::Ready(Some(vote.map_err(NodeError::clone)))
                }
                Some(State::Pending { .. } | State::Unasked) => {
                    slots.waiting.for_each_answer();
                    slots.waiting.join(context);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The node at `index` has answered at `now`.
    fn answered(&self, index: usize, result: Result<Response, NodeError>, now: Moment) {
        let Some(member) = self.nodes.members.get(index) else { return };
        let mut slots = self.slots();
        let took = now.since(slots.asked_at(index).unwrap_or(self.sent));
        member.meter.answered(self.op, &result, took);
        if result.is_ok() {
            member.answered_after(took);
        }
        if slots.answered(index, result, took).is_some_and(|limit| now >= limit) {
            member.meter.late();
        }
        self.conclude(slots, now);
    }

    /// Wakes those who wait, after an answer.
    fn conclude(&self, mut slots: MutexGuard<'_, Responses>, now: Moment) {
        let is_news = slots.all_heard()
            || !slots.in_time(now)
            || (slots.verdict.is_none() && self.decide(&mut slots, now).is_some());
        let is_news = self.shorten_limits(&mut slots, now) || is_news;
        let woken = slots.waiting.leave(is_news);
        let on_settled = slots.settled();
        drop(slots);
        self.notify(on_settled);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Once so many have answered that the verdict is not *unavailable*, whatever the rest say, those are
    /// waited for no longer than they should need (rule I-47). Says whether that begins now.
    fn shorten_limits(&self, slots: &mut Responses, now: Moment) -> bool {
        let hears = self.expect == Expect::AnyAnswer;
        let enough = slots.heard_of(self.nodes.quorum.needed());
        if !enough || slots.hastened || slots.all_heard() || (slots.verdict.is_some() && !hears) {
            return false;
        }
        let tally = self.count(slots, now);
        if tally.granted() + tally.denied() < self.nodes.quorum.needed() {
            return false;
        }
        let least = if hears { LEAST_LOOK } else { LEAST_PATIENCE };
        slots.shorten_limits(|index| match self.nodes.members.get(index) {
            Some(member) => now + self.nodes.overdue_after(member, least, self.ttl),
            None => now,
        });
        true
    }

    /// Gives the round up: requests that are not on their way yet need not be sent.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Whether all nodes that were asked have answered, and none with an error.
    pub(crate) fn all_voted(&self) -> bool {
        let voted =
            |slot: &Slot| matches!(slot.state, State::Skipped | State::Answered { result: Ok(_), .. });
        self.slots().nodes.iter().all(voted)
    }

    /// The count as it stands at `now`, with nodes past their limit as unknown.
    pub(crate) fn tally(&self, now: Moment) -> Tally {
        self.count(&self.slots(), now)
    }

    fn count(&self, slots: &Responses, now: Moment) -> Tally {
        let mut tally = Tally::new(self.nodes.quorum);
        for index in 0..slots.nodes.len() {
            if let Some(said) = self.said(slots, index, now) {
                said.count(&mut tally);
            }
        }
        tally
    }

    /// The verdict, if it is certain at `now`.
    fn decide(&self, slots: &mut Responses, now: Moment) -> Option<Verdict> {
        if slots.verdict.is_some() || slots.too_few(self.nodes.quorum, now) {
            return slots.verdict;
        }
        let verdict = self.count(slots, now).verdict();
        // Where a node's time is up it may have helped to decide by its silence, and still speak.
        if slots.in_time(now) {
            slots.verdict = verdict;
        }
        verdict
    }

    /// How each node stands to the key of the round's claim, as far as its answer tells.
    pub(crate) fn standings(&self) -> KeyStates {
        self.slots().standings(self.expect)
    }

    /// From now on only how each node stands is of interest, to `listener`. It is notified when all have
    /// answered, and lets go of the round: a lease that is held for hours needs no more. Returns how they
    /// stand now, and whether all have answered: then it is not notified.
    pub(crate) fn retire(&self, listener: &Arc<impl OnSettled + 'static>) -> (KeyStates, bool) {
        let mut slots = self.slots();
        let (standings, all_heard) = (slots.standings(self.expect), slots.all_heard());
        let before = if all_heard { None } else { slots.on_settled.replace(listener.clone()) };
        drop(slots);
        drop(before);
        (standings, all_heard)
    }

    pub(crate) fn quorum(&self) -> Quorum {
        self.nodes.quorum
    }

    /// Not under the lock: the round may be the listener's, and end with it.
    fn notify(&self, on_settled: Option<Arc<dyn OnSettled>>) {
        if let Some(listener) = on_settled {
            listener.settled(self, self.standings());
        }
    }

    fn slots(&self) -> MutexGuard<'_, Responses> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collect for Round {
    fn answer(&self, index: usize, result: Result<Response, NodeError>) {
        self.answered(index, result, self.nodes.clock.now());
    }

    fn answer_that_came(&self, index: usize, result: Result<Response, NodeError>, came: ReceivedAt<'_>) {
        let now = came.on(&*self.nodes.clock).unwrap_or_else(|| self.nodes.clock.now());
        self.answered(index, result, now);
    }

    fn wanted(&self) -> bool {
        !self.abandoned.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Round")
            .field("expect", &self.expect)
            .field("slots", &*self.slots())
            .finish_non_exhaustive()
    }
}

/// Somebody who waits.
struct Wait<'a> {
    round: &'a Round,
    /// Rings when a node's time is up.
    timer: Timer,
    /// Whether the round knows of it.
    begun: bool,
    woken: bool,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.round.nodes.timers.stop(&mut self.timer);
        if self.begun {
            // Those who go on waiting come back.
            let woken = self.round.slots().waiting.leave(true);
            woken.into_iter().for_each(Waker::wake);
        }
    }
}
