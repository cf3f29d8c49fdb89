//! Interprets the responses of a round.

use std::num::NonZeroU64;
use std::time::Duration;

use super::responses::{Responses, Slot, State};
use super::{Expect, Round};
use crate::node::{NodeError, NodeErrorKind, QueueListing, Reach, Response, Vote};
use crate::runtime::clock::Clock;
use quorlock_protocol::votes::{NodeVote, QuarantineCause, VoteOutcome, VoteReport};
use quorlock_protocol::{FenceVotes, FencingToken, Moment};

impl Round {
    /// Returns the outcome of the node at `index`; `None` while it may still respond.
    pub(super) fn outcome_of(&self, slots: &Responses, index: usize, now: Moment) -> Option<VoteOutcome> {
        let slot = slots.nodes.get(index)?;
        let answer = match &slot.state {
            State::Skipped => return Some(VoteOutcome::Skipped),
            State::Unasked => return None,
            State::Pending { .. } if now < slot.limit => return None,
            State::Pending { asked } => return Some(unanswered(slot.limit.since(*asked))),
            State::Answered { result: Err(error), .. } => return Some(VoteOutcome::Failed(error.clone())),
            State::Answered { result: Ok(answer), .. } => answer,
        };
        if let Some(duplicate) = self.counts_instead(slots, index, answer) {
            return Some(VoteOutcome::Duplicate { of: self.nodes.name(duplicate) });
        }
        Some(self.read(answer))
    }

    /// Returns the node whose vote counts for the server process of `answer`, if that is not the
    /// node at `index`. A node that granted takes precedence, so that one which merely reports
    /// another's identity takes no vote away. A node that had to store the key again comes before
    /// all others: the other then found that key.
    fn counts_instead(&self, slots: &Responses, index: usize, answer: &Response) -> Option<usize> {
        let rank = |answer: &Response| match self.read(answer) {
            VoteOutcome::Restored => 0,
            VoteOutcome::Granted => 1,
            VoteOutcome::Held(_)
            | VoteOutcome::NotYourTurn
            | VoteOutcome::FenceAhead
            | VoteOutcome::Free
            | VoteOutcome::Quarantined { .. }
            | VoteOutcome::Duplicate { .. }
            | VoteOutcome::Pending
            | VoteOutcome::Failed(_)
            | VoteOutcome::Skipped
            | _ => 2,
        };
        let mut duplicates = slots.duplicates(index, answer)?.peekable();
        duplicates.peek()?;
        let own = (rank(answer), index);
        duplicates
            .map(|(duplicate, theirs)| (rank(theirs), duplicate))
            .min()
            .filter(|first| *first < own)
            .map(|(_, duplicate)| duplicate)
    }

    /// Interprets a single response.
    fn read(&self, answer: &Response) -> VoteOutcome {
        let counts = self.takes_free && answer.vote == Vote::Restored;
        let vote = if counts { &Vote::Granted } else { &answer.vote };
        match (vote, self.expect) {
            (Vote::Granted, Expect::Number) if answer.fencing_token.is_none() => {
                VoteOutcome::Failed(unnumbered())
            }
            (Vote::Granted, Expect::Number) if self.is_implausible(answer) => {
                VoteOutcome::Failed(implausible(answer.fencing_token))
            }
            (Vote::Granted | Vote::ReleasedContended | Vote::Notified, Expect::Hold | Expect::Number) => {
                // The age counts as of sending the request: what the node lost before that, it
                // cannot know (rule I-12).
                let left = answer.identity.quarantine_left(self.nodes.quarantine(), self.sent);
                let cause = if answer.identity.clock_set_back {
                    QuarantineCause::ClockSetBack
                } else {
                    QuarantineCause::Recent
                };
                if left.is_zero() { VoteOutcome::Granted } else { VoteOutcome::Quarantined { left, cause } }
            }
            (_, Expect::Released)
            | (
                Vote::Granted | Vote::ReleasedContended | Vote::Notified | Vote::Waiters(_),
                Expect::AnyAnswer,
            ) => VoteOutcome::Granted,
            (Vote::Restored, _) => VoteOutcome::Restored,
            (Vote::Held(holding), _) => VoteOutcome::Held((**holding).clone()),
            (Vote::Queued(queued), _) => {
                queued.holding.clone().map_or(VoteOutcome::NotYourTurn, VoteOutcome::Held)
            }
            (Vote::NotYourTurn, _) => VoteOutcome::NotYourTurn,
            (Vote::FenceAhead, _) => VoteOutcome::FenceAhead,
            // A listing grants nothing.
            (Vote::Free | Vote::Waiters(_) | _, _) => VoteOutcome::Free,
        }
    }

    /// Whether no clock explains the fencing token (rule F-11). Those of a store of one host were drawn by the clock of this
    /// host, which may have been set since, and a user that may write there may take the locks away anyway.
    fn is_implausible(&self, answer: &Response) -> bool {
        let number = answer.fencing_token.filter(|_| self.nodes.capabilities.reach != Reach::OneHost);
        number.is_some_and(|number| number.is_implausible(|| self.nodes.clock.wall()))
    }

    /// Returns from when a grant of this round counts at a quorum (rule I-7): from before the nodes
    /// were asked, or from the earlier moment that the votes name.
    pub(crate) fn counts_from(&self) -> Moment {
        let slots = self.slots.lock();
        if !slots.have_earlier_starts {
            return self.sent;
        }
        let named = |(index, slot): (usize, &Slot)| match &slot.state {
            State::Answered { result: Ok(answer), .. }
                if self.outcome_of(&slots, index, self.sent) == Some(VoteOutcome::Granted) =>
            {
                Some(answer.counts_from.map_or(self.sent, |named| named.min(self.sent)))
            }
            State::Answered { .. } | State::Pending { .. } | State::Unasked | State::Skipped => None,
        };
        let mut moments: Vec<Moment> = slots.nodes.iter().enumerate().filter_map(named).collect();
        moments.sort_unstable_by(|one, other| other.cmp(one));
        let from = moments.get(self.nodes.quorum.needed() - 1).copied().unwrap_or(Moment::ORIGIN);
        debug_assert!(from <= self.sent, "a grant counts from after it was asked for");
        from
    }

    /// Returns the store's own number of this grant. Those of several stores have nothing to do with each other.
    pub(crate) fn store_revision(&self) -> Option<NonZeroU64> {
        match &*self.slots.lock().nodes {
            [Slot { state: State::Answered { result: Ok(answer), .. }, .. }] => answer.store_revision,
            _ => None,
        }
    }

    /// Returns the fencing tokens of the nodes whose votes count.
    pub(crate) fn drawn(&self) -> Option<FenceVotes> {
        if self.expect != Expect::Number {
            return None;
        }
        let slots = self.slots.lock();
        let number = |(index, slot): (usize, &Slot)| match &slot.state {
            State::Answered { result: Ok(answer), .. }
                if self.outcome_of(&slots, index, self.sent) == Some(VoteOutcome::Granted) =>
            {
                answer.fencing_token
            }
            State::Answered { .. } | State::Pending { .. } | State::Unasked | State::Skipped => None,
        };
        FenceVotes::of(slots.nodes.iter().enumerate().filter_map(number))
    }

    /// Returns the largest fencing token that a node has reported.
    pub(crate) fn largest_number(&self) -> Option<FencingToken> {
        let number = |slot: &Slot| match &slot.state {
            State::Answered { result: Ok(answer), .. } if !self.is_implausible(answer) => {
                answer.fencing_token
            }
            State::Answered { .. } | State::Pending { .. } | State::Unasked | State::Skipped => None,
        };
        self.slots.lock().nodes.iter().filter_map(number).max()
    }

    /// Returns the queue listings of the nodes.
    pub(crate) fn listings(&self) -> Vec<QueueListing> {
        let listing = |slot: &Slot| match &slot.state {
            State::Answered { result: Ok(Response { vote: Vote::Waiters(listing), .. }), .. } => {
                Some((**listing).clone())
            }
            State::Answered { .. } | State::Pending { .. } | State::Unasked | State::Skipped => None,
        };
        self.slots.lock().nodes.iter().filter_map(listing).collect()
    }

    /// Whether a node has cast this vote.
    pub(crate) fn has_vote(&self, vote: &Vote) -> bool {
        self.count_votes(|_, cast| cast == vote) > 0
    }

    /// Counts the votes so far that `is_counted` selects by the index of the node and its vote.
    pub(crate) fn count_votes(&self, is_counted: impl Fn(usize, &Vote) -> bool) -> usize {
        let counts = |(index, slot): &(usize, &Slot)| match &slot.state {
            State::Answered { result: Ok(answer), .. } => is_counted(*index, &answer.vote),
            State::Answered { result: Err(_), .. }
            | State::Pending { .. }
            | State::Unasked
            | State::Skipped => false,
        };
        self.slots.lock().nodes.iter().enumerate().filter(counts).count()
    }

    /// Returns all responses so far, for people and for what a refused waiter does next.
    pub(crate) fn report(&self) -> VoteReport {
        let now = self.nodes.clock.now();
        let slots = self.slots.lock();
        let vote = |(index, slot): (usize, &Slot)| {
            let outcome = match slot.state {
                State::Unasked => VoteOutcome::Failed(NodeError::NotAsked),
                State::Skipped | State::Pending { .. } | State::Answered { .. } => {
                    self.outcome_of(&slots, index, now).unwrap_or(VoteOutcome::Pending)
                }
            };
            let took = match slot.state {
                State::Answered { took, .. } => took,
                State::Pending { asked } => now.since(asked),
                State::Unasked | State::Skipped => now.since(self.sent),
            };
            let fencing_token = if let State::Answered { result: Ok(answer), .. } = &slot.state {
                answer.holder_number(self.expect == Expect::AnyAnswer)
            } else {
                None
            };
            NodeVote::new(self.nodes.name(index), outcome, took, fencing_token)
        };
        VoteReport::new(self.nodes.quorum, slots.nodes.iter().enumerate().map(vote).collect())
    }
}

fn unnumbered() -> NodeError {
    let reason = "it does not issue fencing tokens; use a node that does, or turn fencing off for this lock";
    NodeError::Unfit { kind: NodeErrorKind::Unsupported, reason: reason.into() }
}

fn implausible(number: Option<FencingToken>) -> NodeError {
    let number = number.unwrap_or(FencingToken::MAX);
    let reason = format!(
        "its fencing token {number} is more than ten years ahead of the clock: set the clocks, or delete the \
         counter with this number on that server, which another program has written to"
    );
    NodeError::Unfit { kind: NodeErrorKind::WrongData, reason: reason.into() }
}

fn unanswered(waited: Duration) -> VoteOutcome {
    VoteOutcome::Failed(NodeError::Unanswered { waited })
}
