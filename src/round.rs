//! Asks all nodes one question, and knows the verdict as soon as it cannot change.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use crate::alarm::{Alarm, Alarms};
use crate::ballot::{Ballot, Paper, Said};
use crate::clock::Clock;
use crate::lease::LeaseState;
use crate::meter::Op;
use crate::node::{Answer, Collect, NodeError, Question, Reply, Vote};
use crate::protocol::{FencingToken, Moment, Tally, Verdict};
use crate::standing::Standings;

mod nodes;
mod slots;

pub(crate) use nodes::Nodes;
use slots::{Estate, Slot, Slots, State};

/// One question to all nodes, or to some of them, and their answers.
///
/// The answers are collected here, by whichever task brings them; nobody has to poll for them.
/// So a round that was decided early goes on by itself: its stragglers still do as they were
/// asked, and a later release knows how each of them stands. Nothing is dropped half-way.
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
    news: Notify,
}

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
    pub(crate) fn start(
        nodes: &Arc<Nodes>,
        aim: Aim,
        ttl: Duration,
        question: impl Fn(usize) -> Option<Question>,
    ) -> Arc<Round> {
        // All must be known to be asked before the first one answers.
        let mut op = None;
        let state = |index: usize| match question(index) {
            Some(question) => {
                op.get_or_insert_with(|| Op::of(Some(&question)));
                State::Due(question)
            }
            None => State::Skipped,
        };
        let slots = Round::slots_of(nodes, state);
        let round = Round::prepare(nodes, aim, op.unwrap_or_else(|| Op::of(None)), ttl, slots);
        for index in 0..nodes.members.len() {
            let question = round.slots().nodes.get_mut(index).and_then(|slot| slot.state.take_due());
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
        question: Question,
    ) -> Arc<Round> {
        let slots = Round::slots_of(nodes, |_| State::Unasked);
        let round = Round::prepare(nodes, aim, Op::of(Some(&question)), ttl, slots);
        round.ask(first, question);
        round
    }

    /// Asks all those that have not been asked yet.
    pub(crate) fn ask_rest(self: &Arc<Round>, question: impl Fn() -> Question) {
        for index in 0..self.nodes.members.len() {
            let unasked = matches!(self.slots().nodes.get(index), Some(Slot { state: State::Unasked, .. }));
            if unasked {
                self.ask(index, question());
            }
        }
    }

    fn slots_of(nodes: &Nodes, mut state: impl FnMut(usize) -> State) -> Vec<Slot> {
        let slot = |index| Slot { limit: Moment::ORIGIN, state: state(index) };
        (0..nodes.members.len()).map(slot).collect()
    }

    fn prepare(nodes: &Arc<Nodes>, aim: Aim, op: Op, ttl: Duration, mut slots: Vec<Slot>) -> Arc<Round> {
        let sent = nodes.clock.now();
        for (slot, member) in slots.iter_mut().zip(&nodes.members) {
            slot.limit = sent + member.limit(nodes.base_limit, ttl);
        }
        Arc::new(Round {
            sent,
            aim,
            op,
            ttl,
            slots: Mutex::new(Slots { nodes: slots, twins: false, decided: false, heir: None, digest: None }),
            nodes: nodes.clone(),
            abandoned: AtomicBool::new(false),
            news: Notify::new(),
        })
    }

    /// Asks a node that has not been asked.
    fn ask(self: &Arc<Round>, index: usize, question: Question) {
        let Some(member) = self.nodes.members.get(index) else { return };
        if let Some(slot) = self.slots().nodes.get_mut(index) {
            slot.limit = self.nodes.clock.now() + member.limit(self.nodes.base_limit, self.ttl);
            slot.state = State::Pending;
        }
        self.send(index, question);
    }

    /// The node answers into the round, perhaps before this returns.
    fn send(self: &Arc<Round>, index: usize, question: Question) {
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
        self.wait_for(|round, now| round.tally(now).verdict()).await
    }

    /// Waits until every node has answered or has had its time.
    pub(crate) async fn settled(&self) {
        self.wait_for(|round, now| (round.tally(now).pending() == 0).then_some(())).await;
    }

    /// Waits until the node at `index` has answered, for as long as that takes. `None` if it was
    /// not asked.
    pub(crate) async fn answer_of(&self, index: usize) -> Option<Result<Vote, NodeError>> {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            match self.slots().nodes.get(index).map(|slot| &slot.state) {
                None | Some(State::Skipped) => return None,
                Some(State::Answered { result, .. }) => {
                    return Some(result.as_ref().map(|answer| answer.vote.clone()).map_err(NodeError::clone));
                }
                Some(State::Due(_) | State::Pending | State::Unasked) => {}
            }
            news.await;
        }
    }

    /// Waits until the node at `index` has answered or has had its time, and says whether it
    /// refused.
    pub(crate) async fn refuses(&self, index: usize) -> bool {
        self.wait_for(|round, now| match round.said(&round.slots(), index, now)? {
            Said::Held(_) | Said::Behind | Said::Ahead | Said::Free => Some(true),
            Said::Granted
            | Said::Restored
            | Said::Quarantined { .. }
            | Said::Duplicate { .. }
            | Said::Pending
            | Said::Failed(_)
            | Said::Skipped => Some(false),
        })
        .await
    }

    async fn wait_for<T>(&self, done: impl Fn(&Round, Moment) -> Option<T>) -> T {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let now = self.nodes.clock.now();
            if let Some(outcome) = done(self, now) {
                return outcome;
            }
            let mut limit = Limit { alarms: &self.nodes.alarms, alarm: Alarm::default() };
            let at = self.next_limit(now);
            poll_fn(|context| {
                if news.as_mut().poll(context).is_ready() {
                    return Poll::Ready(());
                }
                let Some(at) = at else { return Poll::Pending };
                if self.nodes.clock.now() >= at {
                    return Poll::Ready(());
                }
                limit.alarms.set(&mut limit.alarm, at, context);
                Poll::Pending
            })
            .await;
        }
    }

    /// The numbers that were drawn by the nodes whose votes count.
    pub(crate) fn numbers(&self) -> Vec<FencingToken> {
        let now = self.nodes.clock.now();
        let slots = self.slots();
        let number = |(index, slot): (usize, &Slot)| match &slot.state {
            State::Answered { result: Ok(answer), .. }
                if self.said(&slots, index, now) == Some(Said::Granted) =>
            {
                answer.fencing_token
            }
            State::Answered { .. } | State::Due(_) | State::Pending | State::Unasked | State::Skipped => None,
        };
        slots.nodes.iter().enumerate().filter_map(number).collect()
    }

    /// The largest number that a node has spoken of.
    pub(crate) fn largest_number(&self) -> Option<FencingToken> {
        let number = |slot: &Slot| match &slot.state {
            State::Answered { result: Ok(answer), .. } => answer.fencing_token,
            State::Answered { result: Err(_), .. }
            | State::Due(_)
            | State::Pending
            | State::Unasked
            | State::Skipped => None,
        };
        self.slots().nodes.iter().filter_map(number).max()
    }

    /// Whether a node has said that somebody else wants the key.
    pub(crate) fn is_wanted(&self) -> bool {
        let wanted = |slot: &Slot| match &slot.state {
            State::Answered { result: Ok(answer), .. } => answer.vote == Vote::Wanted,
            State::Answered { result: Err(_), .. }
            | State::Due(_)
            | State::Pending
            | State::Unasked
            | State::Skipped => false,
        };
        self.slots().nodes.iter().any(wanted)
    }

    /// Gives the round up: questions that are not on their way yet need not be sent.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// The count as it stands at `now`, with nodes past their limit as unknown.
    pub(crate) fn tally(&self, now: Moment) -> Tally {
        self.count(&self.slots(), now)
    }

    fn count(&self, slots: &Slots, now: Moment) -> Tally {
        if let Some((tally, _)) = &slots.digest {
            return *tally;
        }
        let mut tally = Tally::new(self.nodes.quorum);
        for index in 0..slots.nodes.len() {
            if let Some(said) = self.said(slots, index, now) {
                said.count(&mut tally);
            }
        }
        tally
    }

    /// All answers so far, for people.
    pub(crate) fn ballot(&self) -> Ballot {
        let now = self.nodes.clock.now();
        let slots = self.slots();
        let paper = |(index, slot): (usize, &Slot)| {
            let waited = now.since(self.sent);
            let said = match slot.state {
                State::Unasked => Said::Failed(NodeError::NotAsked),
                State::Skipped | State::Due(_) | State::Pending | State::Answered { .. } => {
                    self.said(&slots, index, now).unwrap_or(Said::Pending)
                }
            };
            let took = if let State::Answered { took, .. } = slot.state { took } else { waited };
            let fence = if let State::Answered { result: Ok(answer), .. } = &slot.state {
                answer.fencing_token
            } else {
                None
            };
            Paper { node: self.nodes.name(index), said, took, fencing_token: fence }
        };
        Ballot::new(self.nodes.quorum, slots.nodes.iter().enumerate().map(paper).collect())
    }

    /// How each node stands to the key of the round's claim, as far as its answer tells.
    pub(crate) fn standings(&self) -> Standings {
        self.slots().standings(self.aim)
    }

    /// From now on nobody asks who has said what, but only how each node stands. When all have
    /// answered, the answers are dropped, and `heir` is told and lets go of the round: a lease that is
    /// held for hours needs no more.
    pub(crate) fn retire(&self, heir: Arc<LeaseState>) {
        let mut slots = self.slots();
        let before = slots.heir.replace(heir);
        let tally = self.count(&slots, self.nodes.clock.now());
        let estate = slots.digest(tally, self.aim);
        let known = slots.digest.map(|(_, standings)| standings);
        let late = if known.is_some() { slots.heir.take() } else { None };
        drop(slots);
        drop(before);
        self.leave(estate);
        if let (Some(heir), Some(standings)) = (late, known) {
            heir.settled(self, standings);
        }
    }

    fn leave(&self, estate: Option<Estate>) {
        if let Some(Estate { heir, standings, .. }) = estate {
            heir.settled(self, standings);
        }
    }

    /// What the node at `index` has said and whether it counts; `None` while it still may answer.
    fn said(&self, slots: &Slots, index: usize, now: Moment) -> Option<Said> {
        let slot = slots.nodes.get(index)?;
        let answer = match &slot.state {
            State::Skipped => return Some(Said::Skipped),
            State::Unasked => return None,
            State::Due(_) | State::Pending if now < slot.limit => return None,
            State::Due(_) | State::Pending => return Some(unanswered(slot.limit.since(self.sent))),
            State::Answered { result: Err(error), .. } => return Some(Said::Failed(error.clone())),
            State::Answered { result: Ok(answer), .. } => answer,
        };
        let twin =
            if slots.twins { slots.same_process(index, answer).find(|twin| *twin < index) } else { None };
        if let Some(twin) = twin {
            return Some(Said::Duplicate { of: self.nodes.name(twin) });
        }
        Some(match (&answer.vote, self.aim) {
            (Vote::Granted, Aim::Draw) if answer.fencing_token.is_none() => Said::Failed(unnumbered()),
            (Vote::Granted | Vote::Wanted, Aim::Hold | Aim::Draw) => {
                // The age counts when the question was sent: what the node forgot before that, it
                // cannot know (rule I-12).
                let left = answer.instance.stands_aside(self.nodes.quarantine, self.sent);
                if left.is_zero() { Said::Granted } else { Said::Quarantined { left } }
            }
            (_, Aim::LetGo) | (Vote::Granted | Vote::Wanted, Aim::Hear) => Said::Granted,
            (Vote::Restored, _) => Said::Restored,
            (Vote::Held(holding), _) => Said::Held(holding.clone()),
            (Vote::Behind, _) => Said::Behind,
            (Vote::Ahead, _) => Said::Ahead,
            (Vote::Free, _) => Said::Free,
        })
    }

    /// When the next node runs out of time.
    fn next_limit(&self, now: Moment) -> Option<Moment> {
        let slots = self.slots();
        let pending = slots.nodes.iter().filter(|slot| matches!(slot.state, State::Due(_) | State::Pending));
        pending.map(|slot| slot.limit).filter(|limit| *limit > now).min()
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collect for Round {
    fn answer(&self, index: usize, result: Result<Answer, NodeError>) {
        let took = self.nodes.clock.now().since(self.sent);
        let member = self.nodes.members.get(index);
        if let Some(member) = member {
            member.meter.answered(self.op, &result, took);
            if result.is_ok() {
                member.answered_after(took);
            }
        }
        let mut slots = self.slots();
        if let Ok(answer) = &result {
            let twins = slots.same_process(index, answer).next().is_some();
            slots.twins |= twins;
        }
        if let Some(slot) = slots.nodes.get_mut(index) {
            debug_assert!(matches!(slot.state, State::Pending), "a node answered twice");
            slot.state = State::Answered { result, took };
            if let Some(member) = member.filter(|_| self.sent + took >= slot.limit) {
                member.meter.late();
            }
        }
        let tally = self.count(&slots, self.sent + took);
        let decides = !slots.decided && tally.verdict().is_some();
        slots.decided |= decides;
        // An answer that decides nothing wakes nobody, unless it is the last, or somebody waits for
        // the first.
        let wakes = decides || tally.pending() == 0 || slots.is_staged();
        let estate = slots.digest(tally, self.aim);
        drop(slots);
        self.leave(estate);
        if wakes {
            self.news.notify_waiters();
        }
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

/// The time limit of a node, for somebody who waits for it.
struct Limit<'a> {
    alarms: &'a Arc<Alarms>,
    alarm: Alarm,
}

impl Drop for Limit<'_> {
    fn drop(&mut self) {
        self.alarms.stop(&mut self.alarm);
    }
}

fn unnumbered() -> NodeError {
    let reason = "it draws no fencing tokens; use a node that does, or switch fencing off for this lock";
    NodeError::Unfit { reason: reason.into() }
}

fn unanswered(waited: Duration) -> Said {
    Said::Failed(NodeError::Unanswered { waited })
}
