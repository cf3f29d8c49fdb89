//! Asks all nodes one question, and knows the verdict as soon as it cannot change.

use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;

use crate::alarm::Alarm;
use crate::ballot::Said;
use crate::clock::Clock;
use crate::lease::LeaseState;
use crate::meter::Op;
use crate::node::{Answer, Asked, Came, Collect, NodeError, Reply, Vote};
use crate::protocol::{Moment, Quorum, Tally, Verdict};
use crate::standing::Standings;

mod nodes;
mod said;
mod slots;
#[cfg(test)]
mod tests;

use nodes::Member;
pub(crate) use nodes::Nodes;
use slots::{Slot, Slots, State};

/// One question to all nodes, or to some of them, and their answers.
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
    /// Which votes are the aim of the question: a release wants the key gone.
    pub(crate) aim: Aim,
    op: Op,
    /// Bounds the time limits of the nodes.
    pub(crate) ttl: Duration,
    slots: Mutex<Slots>,
    abandoned: AtomicBool,
}

/// After this part of the time of a node it is looked to whether its task is driven.
const KNOCK: u32 = 4;

/// As many nodes as a round has room for without asking the allocator once more.
const USUAL: usize = 5;

/// What a question wants from a node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Aim {
    /// That the key holds the token.
    Hold,
    /// The same, and a number for the fencing token.
    Draw,
    /// That it does not.
    LetGo,
    /// To hear anything at all.
    Hear,
}

impl Round {
    /// Asks every node for which `question` has one. `ttl` bounds the time limits.
    pub(crate) fn start<Q: Into<Asked>>(
        nodes: &Arc<Nodes>,
        aim: Aim,
        ttl: Duration,
        question: impl Fn(usize) -> Option<Q>,
    ) -> Arc<Round> {
        let question = |index| question(index).map(Into::into);
        let questions: SmallVec<[Option<Asked>; USUAL]> = (0..nodes.members.len()).map(question).collect();
        let op = Op::of(questions.iter().flatten().next().map(Deref::deref));
        // All must be known to be asked before the first one answers.
        let states =
            questions.iter().map(|asked| if asked.is_some() { State::Pending } else { State::Skipped });
        let round = Round::prepare(nodes, aim, op, ttl, states);
        for (index, question) in questions.into_iter().enumerate() {
            if let Some(question) = question {
                round.send(index, question);
            }
        }
        round
    }

    /// Asks the node at `first` only. The others are to follow by [`ask_rest`](Round::ask_rest).
    pub(crate) fn start_at(
        nodes: &Arc<Nodes>,
        aim: Aim,
        ttl: Duration,
        first: usize,
        question: &Asked,
    ) -> Arc<Round> {
        let unasked = nodes.members.iter().map(|_| State::Unasked);
        let round = Round::prepare(nodes, aim, Op::of(Some(question)), ttl, unasked);
        round.ask(first, question.clone());
        round
    }

    /// Asks all those that have not been asked yet.
    pub(crate) fn ask_rest(self: &Arc<Round>, question: &Asked) {
        for index in 0..self.nodes.members.len() {
            let unasked = matches!(self.slots().nodes.get(index), Some(Slot { state: State::Unasked, .. }));
            if unasked {
                self.ask(index, question.clone());
            }
        }
    }

    fn prepare(
        nodes: &Arc<Nodes>,
        aim: Aim,
        op: Op,
        ttl: Duration,
        states: impl Iterator<Item = State>,
    ) -> Arc<Round> {
        let sent = nodes.clock.now();
        let limit = |member: &Member| sent + member.limit(nodes.base_limit, ttl);
        let slots =
            nodes.members.iter().zip(states).map(|(member, state)| Slot { limit: limit(member), state });
        let slots = Mutex::new(Slots::new(slots.collect()));
        Arc::new(Round { sent, aim, op, ttl, slots, nodes: nodes.clone(), abandoned: AtomicBool::new(false) })
    }

    /// Asks a node that has not been asked.
    fn ask(self: &Arc<Round>, index: usize, question: Asked) {
        let Some(member) = self.nodes.members.get(index) else { return };
        let limit = self.nodes.clock.now() + member.limit(self.nodes.base_limit, self.ttl);
        self.slots().asked(index, limit);
        self.send(index, question);
    }

    /// The node answers into the round, perhaps before this returns.
    fn send(self: &Arc<Round>, index: usize, question: Asked) {
        let Some(member) = self.nodes.members.get(index) else { return };
        member.node.ask(question, Reply::new(self.clone(), index));
    }

    /// Waits for the verdict: until it cannot change any more, or every node that has not
    /// answered has had its time.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: the round goes on, and can be asked again.
    pub(crate) async fn verdict(&self) -> Verdict {
        self.wait_for(|slots, now| self.decide(slots, now)).await
    }

    /// Waits until every node that was asked has answered or has had its time.
    pub(crate) async fn settled(&self) {
        self.wait_for(|slots, now| slots.next_limit(now).is_none().then_some(())).await;
    }

    /// Wakes the task of `context` once, no later than when the last answer comes. Returns when the first
    /// of those nodes has had its time that have not answered; `None` where all have.
    pub(crate) fn listen(&self, context: &Context<'_>) -> Option<Moment> {
        let mut slots = self.slots();
        let limit = slots.next_limit(self.sent)?;
        slots.waiting.join(context);
        Some(limit)
    }

    /// Waits until the node at `index` has answered or has had its time, and says whether it
    /// refused.
    pub(crate) async fn refuses(&self, index: usize) -> bool {
        self.wait_for(|slots, now| {
            slots.waiting.for_each_answer();
            match self.said(slots, index, now)? {
                Said::Held(_) | Said::Behind | Said::Ahead | Said::Free => Some(true),
                Said::Granted
                | Said::Restored
                | Said::Quarantined { .. }
                | Said::Duplicate { .. }
                | Said::Pending
                | Said::Failed(_)
                | Said::Skipped => Some(false),
            }
        })
        .await
    }

    async fn wait_for<T>(&self, done: impl Fn(&mut Slots, Moment) -> Option<T>) -> T {
        let mut wait = Wait { round: self, alarm: Alarm::default(), begun: false, knocked: false };
        // Nobody's time is up as of then. Where it is by now, the alarm rings at once, and only then
        // there is need of a look at the clock.
        let mut now = self.sent;
        poll_fn(|context| {
            let mut slots = self.slots();
            let mut outcome = done(&mut slots, now);
            if outcome.is_none() && wait.begun {
                now = self.nodes.clock.now();
                outcome = done(&mut slots, now);
            }
            if let Some(outcome) = outcome {
                return Poll::Ready(outcome);
            }
            wait.begun = true;
            slots.waiting.join(context);
            let next = slots.next_limit(now);
            drop(slots);
            if let Some(limit) = next {
                let knock = self.sent + limit.since(self.sent) / KNOCK;
                if !wait.knocked && now >= knock {
                    wait.knocked = true;
                    self.knock();
                }
                let at = if wait.knocked { limit } else { knock };
                self.nodes.alarms.set(&mut wait.alarm, at, context);
            }
            Poll::Pending
        })
        .await
    }

    /// Sees to it that somebody answers for the nodes that have not: a node's task may have ended, or
    /// stand still, with another runtime.
    pub(crate) fn knock(&self) {
        let members = self.nodes.members.iter().zip(0..);
        let silent =
            |index: usize| matches!(self.slots().nodes.get(index), Some(Slot { state: State::Pending, .. }));
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
                Some(State::Pending | State::Unasked) => {
                    slots.waiting.for_each_answer();
                    slots.waiting.join(context);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The node at `index` has answered at `now`.
    fn answered(&self, index: usize, result: Result<Answer, NodeError>, now: Moment) {
        let took = now.since(self.sent);
        let Some(member) = self.nodes.members.get(index) else { return };
        member.meter.answered(self.op, &result, took);
        if result.is_ok() {
            member.answered_after(took);
        }
        let mut slots = self.slots();
        if slots.answered(index, result, took).is_some_and(|limit| now >= limit) {
            member.meter.late();
        }
        let is_news = slots.all_heard()
            || !slots.in_time(now)
            || (slots.verdict.is_none() && self.decide(&mut slots, now).is_some());
        let woken = slots.waiting.leave(is_news);
        let heir = slots.heir_to_tell();
        drop(slots);
        self.tell(heir);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Gives the round up: questions that are not on their way yet need not be sent.
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

    fn count(&self, slots: &Slots, now: Moment) -> Tally {
        let mut tally = Tally::new(self.nodes.quorum);
        for index in 0..slots.nodes.len() {
            if let Some(said) = self.said(slots, index, now) {
                said.count(&mut tally);
            }
        }
        tally
    }

    /// The verdict, if it is certain at `now`.
    fn decide(&self, slots: &mut Slots, now: Moment) -> Option<Verdict> {
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
    pub(crate) fn standings(&self) -> Standings {
        self.slots().standings(self.aim)
    }

    /// From now on only how each node stands is of interest, to `heir`. It is told when all have answered,
    /// and lets go of the round: a lease that is held for hours needs no more. Returns how they stand now,
    /// and whether all have answered: then it is not told again.
    pub(crate) fn retire(&self, heir: &Arc<LeaseState>) -> (Standings, bool) {
        let mut slots = self.slots();
        let (standings, all_heard) = (slots.standings(self.aim), slots.all_heard());
        let before = if all_heard { None } else { slots.heir.replace(heir.clone()) };
        drop(slots);
        drop(before);
        (standings, all_heard)
    }

    pub(crate) fn quorum(&self) -> Quorum {
        self.nodes.quorum
    }

    /// Not under the lock: the round may be the heir's, and end with it.
    fn tell(&self, heir: Option<Arc<LeaseState>>) {
        if let Some(heir) = heir {
            heir.settled(self, self.standings());
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collect for Round {
    fn answer(&self, index: usize, result: Result<Answer, NodeError>) {
        self.answered(index, result, self.nodes.clock.now());
    }

    fn answer_that_came(&self, index: usize, result: Result<Answer, NodeError>, came: Came<'_>) {
        let now = came.on(&*self.nodes.clock).unwrap_or_else(|| self.nodes.clock.now());
        self.answered(index, result, now);
    }

    fn wanted(&self) -> bool {
        !self.abandoned.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Round").field("aim", &self.aim).field("slots", &*self.slots()).finish_non_exhaustive()
    }
}

/// Somebody who waits.
struct Wait<'a> {
    round: &'a Round,
    /// Rings when a node's time is up.
    alarm: Alarm,
    /// Whether the round knows of it.
    begun: bool,
    knocked: bool,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.round.nodes.alarms.stop(&mut self.alarm);
        if self.begun {
            // Those who go on waiting come back.
            let woken = self.round.slots().waiting.leave(true);
            woken.into_iter().for_each(Waker::wake);
        }
    }
}
