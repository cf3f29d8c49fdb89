//! What each node was asked in a round, and has said.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use smallvec::SmallVec;

use super::{Expect, OnSettled, USUAL};
use crate::node::{NodeError, Response, Vote};
use crate::quorum::key_states::KeyStates;
use quorlock_protocol::Standing;
use quorlock_protocol::{Moment, Quorum, Verdict};

/// What each node was asked and has said.
#[derive(Debug)]
pub(super) struct Responses {
    pub(super) nodes: SmallVec<[Slot; USUAL]>,
    /// How many have answered, or are not to be asked.
    heard: u8,
    /// Whether any two answers came from the same server process: almost never.
    have_twins: bool,
    /// Whether any answer counts from an earlier moment than when it was asked for.
    pub(super) name_moments: bool,
    /// When the time of the first node is up.
    first_limit: Moment,
    /// Whether those who have not answered are waited for no longer than they should need.
    pub(super) hastened: bool,
    /// What the answers have amounted to, whatever else is said.
    pub(super) verdict: Option<Verdict>,
    /// Is notified how each node stands, once all have answered.
    pub(super) on_settled: Option<Arc<dyn OnSettled>>,
    pub(super) waiting: Waiting,
}

impl Responses {
    pub(super) fn new(nodes: SmallVec<[Slot; USUAL]>) -> Responses {
        let heard = nodes.iter().filter(|slot| matches!(slot.state, State::Skipped)).map(|_| 1).sum();
        let first_limit = nodes.iter().map(|slot| slot.limit).min().unwrap_or_default();
        Responses {
            nodes,
            heard,
            have_twins: false,
            name_moments: false,
            first_limit,
            hastened: false,
            verdict: None,
            on_settled: None,
            waiting: Waiting::default(),
        }
    }

    /// The node at `index` is `asked` now, and waited for until `limit`.
    pub(super) fn asked(&mut self, index: usize, asked: Moment, limit: Moment) {
        if let Some(slot) = self.nodes.get_mut(index) {
            *slot = Slot { limit, state: State::Pending { asked } };
        }
    }

    /// All are waited for until `limit`.
    pub(super) fn wait_until(&mut self, limit: Moment) {
        self.nodes.iter_mut().for_each(|slot| slot.limit = limit);
        self.first_limit = limit;
    }

    /// Those that have not answered are waited for until the moment that `soon` says, and no longer.
    pub(super) fn shorten_limits(&mut self, soon: impl Fn(usize) -> Moment) {
        self.hastened = true;
        for (index, slot) in self.nodes.iter_mut().enumerate() {
            if matches!(slot.state, State::Pending { .. }) {
                slot.limit = slot.limit.min(soon(index));
                self.first_limit = self.first_limit.min(slot.limit);
            }
        }
    }

    /// When the node at `index` was asked, if it has not answered.
    pub(super) fn asked_at(&self, index: usize) -> Option<Moment> {
        match self.nodes.get(index)?.state {
            State::Pending { asked } => Some(asked),
            State::Answered { .. } | State::Unasked | State::Skipped => None,
        }
    }

    /// The node at `index` has answered. Returns until when it was waited for.
    pub(super) fn answered(
        &mut self,
        index: usize,
        result: Result<Response, NodeError>,
        took: Duration,
    ) -> Option<Moment> {
        if let Ok(answer) = &result {
            self.have_twins = self.have_twins || self.same_as(index, answer).next().is_some();
            self.name_moments |= answer.counts_from.is_some();
        }
        let slot = self.nodes.get_mut(index)?;
        debug_assert!(matches!(slot.state, State::Pending { .. }), "a node answered twice");
        slot.state = State::Answered { result, took };
        self.heard += 1;
        Some(slot.limit)
    }

    /// Whether nobody's answer is still to come.
    pub(super) fn all_heard(&self) -> bool {
        usize::from(self.heard) == self.nodes.len()
    }

    /// Whether so many have answered, or are not to be asked.
    pub(super) fn heard_of(&self, many: usize) -> bool {
        usize::from(self.heard) >= many
    }

    /// Whether no node's time is up at `now`.
    pub(super) fn in_time(&self, now: Moment) -> bool {
        now < self.first_limit
    }

    /// Whether so few have answered that nothing can be decided at `now`: neither grant enough, nor do
    /// so many not grant that the others are too few.
    pub(super) fn too_few(&self, quorum: Quorum, now: Moment) -> bool {
        usize::from(self.heard) < quorum.needed().min(quorum.blocking()) && self.in_time(now)
    }

    /// When the next node runs out of time that is waited for.
    pub(super) fn next_limit(&self, now: Moment) -> Option<Moment> {
        let pending = self.nodes.iter().filter(|slot| matches!(slot.state, State::Pending { .. }));
        pending.map(|slot| slot.limit).filter(|limit| *limit > now).min()
    }

    /// The other nodes than that at `index` whose answers came from the same server process as its `answer`,
    /// by the names that they give themselves. `None` where no two did.
    pub(super) fn twins<'a>(
        &'a self,
        index: usize,
        answer: &'a Response,
    ) -> Option<impl Iterator<Item = (usize, &'a Response)>> {
        // Each vote is counted again with each that comes, and compared with all the others only here.
        self.have_twins.then(|| self.same_as(index, answer))
    }

    fn same_as<'a>(
        &'a self,
        index: usize,
        answer: &'a Response,
    ) -> impl Iterator<Item = (usize, &'a Response)> {
        self.nodes.iter().enumerate().filter_map(move |(other, slot)| match &slot.state {
            State::Answered { result: Ok(theirs), .. }
                if other != index && theirs.identity.is_one_with(&answer.identity) =>
            {
                Some((other, theirs))
            }
            State::Answered { .. } | State::Pending { .. } | State::Unasked | State::Skipped => None,
        })
    }

    /// How each node stands.
    pub(super) fn standings(&self, expect: Expect) -> KeyStates {
        let standing = |slot: &Slot| match &slot.state {
            State::Pending { .. } => Standing::InFlight,
            State::Answered { result: Err(error), .. } if error.may_have_acted() => Standing::Unknown,
            State::Answered { result: Ok(answer), .. } => match answer.vote {
                Vote::Granted | Vote::ReleasedContended | Vote::Notified | Vote::Restored
                    if matches!(expect, Expect::Hold | Expect::Number) =>
                {
                    Standing::Holds
                }
                Vote::Granted
                | Vote::ReleasedContended
                | Vote::Notified
                | Vote::Restored
                | Vote::Held(_)
                | Vote::Queued(_)
                | Vote::Waiters(_)
                | Vote::NotYourTurn
                | Vote::FenceAhead
                | Vote::Free => Standing::Without,
            },
            State::Answered { result: Err(_), .. } | State::Skipped | State::Unasked => Standing::Without,
        };
        KeyStates::of(self.nodes.iter().map(standing))
    }

    /// The listener, if all have answered: it is to be notified by a caller that does not hold the lock.
    pub(super) fn settled(&mut self) -> Option<Arc<dyn OnSettled>> {
        if self.all_heard() { self.on_settled.take() } else { None }
    }
}

/// Those who wait for what comes of a round: nearly always one task.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    tasks: SmallVec<[Waker; 1]>,
    /// Whether one of them waits for a certain node, so that any answer may be the one.
    for_each_answer: bool,
}

impl Waiting {
    /// Wakes the task of `context` at the next news.
    pub(super) fn join(&mut self, context: &Context<'_>) {
        if !self.tasks.iter().any(|task| task.will_wake(context.waker())) {
            self.tasks.push(context.waker().clone());
        }
    }

    /// From now until those who wait are woken, each answer is news.
    pub(super) fn for_each_answer(&mut self) {
        self.for_each_answer = true;
    }

    /// Who is to be woken by an answer. It is news, or is not to all of them.
    pub(super) fn leave(&mut self, is_news: bool) -> SmallVec<[Waker; 1]> {
        if is_news || self.for_each_answer { mem::take(self).tasks } else { SmallVec::new() }
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    /// Until when the round waits for this node.
    pub(super) limit: Moment,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    /// Not to be asked.
    Skipped,
    /// Not asked yet.
    Unasked,
    Pending {
        asked: Moment,
    },
    Answered {
        result: Result<Response, NodeError>,
        took: Duration,
    },
}
