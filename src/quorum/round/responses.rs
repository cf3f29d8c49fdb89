//! The requests and responses of a round, by node.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use smallvec::SmallVec;

use super::{Expect, OnSettled, USUAL};
use crate::node::{NodeError, Response, Vote};
use quorlock_protocol::KeyState;
use quorlock_protocol::machine::KeyStates;
use quorlock_protocol::{Moment, Quorum, Verdict};

/// What each node was asked, and its response.
#[derive(Debug)]
pub(super) struct Responses {
    pub(super) nodes: SmallVec<[Slot; USUAL]>,
    /// How many have responded or are not asked.
    responded: u8,
    /// Whether any two responses came from the same server process, which is rare.
    have_duplicates: bool,
    /// Whether any response counts from an earlier moment than its request.
    pub(super) have_earlier_starts: bool,
    /// The earliest timeout.
    first_limit: Moment,
    /// Whether the timeouts of silent nodes have been shortened.
    pub(super) limits_shortened: bool,
    /// The verdict, once no response can change it.
    pub(super) verdict: Option<Verdict>,
    /// Notified of the key states once all nodes have responded.
    pub(super) on_settled: Option<Arc<dyn OnSettled>>,
    pub(super) waiting: Waiting,
}

impl Responses {
    pub(super) fn new(nodes: SmallVec<[Slot; USUAL]>) -> Responses {
        let responded = nodes.iter().filter(|slot| matches!(slot.state, State::Skipped)).map(|_| 1).sum();
        let first_limit = nodes.iter().map(|slot| slot.limit).min().unwrap_or_default();
        Responses {
            nodes,
            responded,
            have_duplicates: false,
            have_earlier_starts: false,
            first_limit,
            limits_shortened: false,
            verdict: None,
            on_settled: None,
            waiting: Waiting::default(),
        }
    }

    /// Records that the node at `index` is `asked` now, and times out at `limit`.
    pub(super) fn asked(&mut self, index: usize, asked: Moment, limit: Moment) {
        if let Some(slot) = self.nodes.get_mut(index) {
            debug_assert!(matches!(slot.state, State::Unasked), "a node was asked twice in a round");
            *slot = Slot { limit, state: State::Pending { asked } };
            // It may be earlier than when the round was prepared: its round trips were measured in between.
            self.first_limit = self.first_limit.min(limit);
        }
    }

    /// Sets the timeout of all nodes.
    pub(super) fn wait_until(&mut self, limit: Moment) {
        self.nodes.iter_mut().for_each(|slot| slot.limit = limit);
        self.first_limit = limit;
    }

    /// Shortens the timeouts of silent nodes to the moments that `soon` returns.
    pub(super) fn shorten_limits(&mut self, soon: impl Fn(usize) -> Moment) {
        debug_assert!(!self.limits_shortened, "the timeouts were shortened twice");
        self.limits_shortened = true;
        for (index, slot) in self.nodes.iter_mut().enumerate() {
            if matches!(slot.state, State::Pending { .. }) {
                slot.limit = slot.limit.min(soon(index));
                self.first_limit = self.first_limit.min(slot.limit);
            }
        }
    }

    /// Returns when the node at `index` was asked, if it has not responded.
    pub(super) fn asked_at(&self, index: usize) -> Option<Moment> {
        match self.nodes.get(index)?.state {
            State::Pending { asked } => Some(asked),
            State::Answered { .. } | State::Unasked | State::Skipped => None,
        }
    }

    /// Whether the node at `index` was asked, or is not to be: otherwise it never responds.
    pub(super) fn may_respond(&self, index: usize) -> bool {
        self.nodes.get(index).is_none_or(|slot| !matches!(slot.state, State::Unasked))
    }

    /// Records a response of the node at `index`. Returns when it would have timed out.
    pub(super) fn answered(
        &mut self,
        index: usize,
        result: Result<Response, NodeError>,
        took: Duration,
    ) -> Option<Moment> {
        if let Ok(answer) = &result {
            self.have_duplicates = self.have_duplicates || self.same_as(index, answer).next().is_some();
            self.have_earlier_starts |= answer.counts_from.is_some();
        }
        let slot = self.nodes.get_mut(index)?;
        debug_assert!(matches!(slot.state, State::Pending { .. }), "a node answered twice");
        slot.state = State::Answered { result, took };
        let limit = slot.limit;
        self.responded += 1;
        debug_assert!(usize::from(self.responded) <= self.nodes.len(), "more nodes responded than there are");
        Some(limit)
    }

    /// Whether no response is outstanding.
    pub(super) fn all_responded(&self) -> bool {
        usize::from(self.responded) == self.nodes.len()
    }

    /// Whether at least `many` nodes have responded or are not asked.
    pub(super) fn has_responses(&self, many: usize) -> bool {
        usize::from(self.responded) >= many
    }

    /// Whether no node has timed out at `now`.
    pub(super) fn in_time(&self, now: Moment) -> bool {
        now < self.first_limit
    }

    /// Whether the responses at `now` can decide nothing: neither a quorum nor a blocking minority.
    pub(super) fn too_few(&self, quorum: Quorum, now: Moment) -> bool {
        usize::from(self.responded) < quorum.needed().min(quorum.blocking()) && self.in_time(now)
    }

    /// Returns the next timeout of a silent node.
    pub(super) fn next_limit(&self, now: Moment) -> Option<Moment> {
        let pending = self.nodes.iter().filter(|slot| matches!(slot.state, State::Pending { .. }));
        debug_assert!(
            pending.clone().all(|slot| slot.limit >= self.first_limit),
            "a node times out too early"
        );
        pending.map(|slot| slot.limit).filter(|limit| *limit > now).min()
    }

    /// Returns the other nodes whose responses came from the same server process as `answer`, by
    /// the identity that they report. Returns `None` if no two did.
    pub(super) fn duplicates<'a>(
        &'a self,
        index: usize,
        answer: &'a Response,
    ) -> Option<impl Iterator<Item = (usize, &'a Response)>> {
        // Every vote is counted again with each response; only here is it compared with all the
        // others.
        self.have_duplicates.then(|| self.same_as(index, answer))
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

    /// Returns the key state of each node.
    pub(super) fn key_states(&self, expect: Expect) -> KeyStates {
        let key_state = |slot: &Slot| match &slot.state {
            State::Pending { .. } => KeyState::InFlight,
            State::Answered { result: Err(error), .. } if error.may_have_acted() => KeyState::Unknown,
            State::Answered { result: Ok(answer), .. } => match answer.vote {
                Vote::Granted | Vote::ReleasedContended | Vote::Notified | Vote::Restored
                    if matches!(expect, Expect::Hold | Expect::Number) =>
                {
                    KeyState::Holds
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
                | Vote::Free
                | _ => KeyState::Without,
            },
            State::Answered { result: Err(_), .. } | State::Skipped | State::Unasked => KeyState::Without,
        };
        KeyStates::of(self.nodes.iter().map(key_state))
    }

    /// Takes the listener, if all nodes have responded. The caller must notify it without the lock.
    pub(super) fn settled(&mut self) -> Option<Arc<dyn OnSettled>> {
        if self.all_responded() { self.on_settled.take() } else { None }
    }
}

/// Tasks that wait for the round: nearly always one.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    tasks: SmallVec<[Waker; 1]>,
    /// Whether one of them waits for a certain node, so that it must see every response.
    for_each_answer: bool,
}

impl Waiting {
    /// Wakes the task of `context` at the next news.
    pub(super) fn join(&mut self, context: &Context<'_>) {
        if !self.tasks.iter().any(|task| task.will_wake(context.waker())) {
            self.tasks.push(context.waker().clone());
        }
    }

    /// Treats each response as news until the tasks are woken.
    pub(super) fn for_each_answer(&mut self) {
        self.for_each_answer = true;
    }

    /// Takes the tasks to wake for a response, which may be news to only some of them.
    pub(super) fn leave(&mut self, is_news: bool) -> SmallVec<[Waker; 1]> {
        if is_news || self.for_each_answer { mem::take(self).tasks } else { SmallVec::new() }
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    /// When this node times out.
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
