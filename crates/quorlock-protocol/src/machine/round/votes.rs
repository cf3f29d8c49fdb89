//! Interprets the responses of a round.

use std::num::NonZeroU64;
use std::time::Duration;

use smallvec::SmallVec;

use super::{Deployment, Expect, Round, Slot, State, USUAL};
use crate::node::{NodeError, NodeErrorKind, QueueListing, Response, Vote};
use crate::votes::{NodeVote, QuarantineCause, VoteOutcome, VoteReport};
use crate::{Drift, FenceVotes, FencingToken, LoggedHold, Moment, Verdict};

/// The part (a tenth) of what a grant proves that may be missing without a wait for other nodes: the next renewal
/// is due that much earlier.
const BEARABLE: u32 = 10;

/// The fencing token of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Number {
    /// That which was drawn; none if fencing is off, or the round was not won.
    Drawn(Option<FencingToken>),
    /// This one, once a quorum has raised its counters to it.
    WriteBack(FencingToken),
}

impl Round {
    /// Returns the outcome of a node; `None` while it may still respond.
    pub(super) fn outcome_of(
        &self,
        nodes: &impl Deployment,
        node: usize,
        now: Moment,
    ) -> Option<VoteOutcome> {
        let slot = self.slots.get(node)?;
        let response = match &slot.state {
            State::Skipped => return Some(VoteOutcome::Skipped),
            State::Unasked => return None,
            State::Pending { .. } if now < slot.limit => return None,
            State::Pending { asked } => return Some(unanswered(slot.limit.since(*asked))),
            State::Answered { result: Err(error), .. } => return Some(VoteOutcome::Failed(error.clone())),
            State::Answered { result: Ok(response), .. } => response,
        };
        if let Some(duplicate) = self.counts_instead(nodes, node, response) {
            return Some(VoteOutcome::Duplicate { of: nodes.name(duplicate) });
        }
        Some(self.read(nodes, response))
    }

    /// Returns the node whose vote counts for the server process of `response`, if that is not this
    /// node. A node that granted takes precedence, so that one which merely reports
    /// another's identity takes no vote away. A node that had to store the key again comes before
    /// all others: the other then found that key.
    fn counts_instead(&self, nodes: &impl Deployment, node: usize, response: &Response) -> Option<usize> {
        // Every vote is counted again with each response; only here is it compared with all the others.
        if !self.have_duplicates {
            return None;
        }
        let rank = |response: &Response| match self.read(nodes, response) {
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
            | VoteOutcome::Skipped => 2,
        };
        let mut duplicates = self.same_as(node, response).peekable();
        duplicates.peek()?;
        let own = (rank(response), node);
        duplicates
            .map(|(duplicate, theirs)| (rank(theirs), duplicate))
            .min()
            .filter(|first| *first < own)
            .map(|(_, duplicate)| duplicate)
    }

    /// Interprets a single response.
    fn read(&self, nodes: &impl Deployment, response: &Response) -> VoteOutcome {
        let counts = self.question.takes_free && response.vote == Vote::Restored;
        let vote = if counts { &Vote::Granted } else { &response.vote };
        match (vote, self.question.expect) {
            (Vote::Granted, Expect::Number) if response.fencing_token.is_none() => {
                VoteOutcome::Failed(unnumbered())
            }
            (Vote::Granted, Expect::Number) if is_implausible(nodes, response) => {
                VoteOutcome::Failed(implausible(response.fencing_token))
            }
            (
                Vote::Granted | Vote::ReleasedContended | Vote::Notified,
                Expect::Hold | Expect::Kept | Expect::Number | Expect::Holder,
            ) => self.unless_too_young(nodes, response, VoteOutcome::Granted),
            (Vote::Free, Expect::Holder) => self.unless_too_young(nodes, response, VoteOutcome::Free),
            (_, Expect::Released)
            | (
                Vote::Granted | Vote::ReleasedContended | Vote::Notified | Vote::Waiters(_) | Vote::Log(_),
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
            (Vote::Free | Vote::Waiters(_) | Vote::Log(_), _) => VoteOutcome::Free,
        }
    }

    /// Returns `outcome` for a node whose vote counts. The age counts as of sending the request: what the node lost before
    /// that, it cannot know (rule I-12).
    fn unless_too_young(
        &self,
        nodes: &impl Deployment,
        response: &Response,
        outcome: VoteOutcome,
    ) -> VoteOutcome {
        let left = response.identity.quarantine_left(nodes.quarantine(), self.sent);
        if left.is_zero() {
            return outcome;
        }
        let set_back = response.identity.clock_set_back;
        let cause = if set_back { QuarantineCause::ClockSetBack } else { QuarantineCause::Recent };
        VoteOutcome::Quarantined { left, cause }
    }

    /// Whether a node has refused; `None` while it may still respond.
    pub fn refuses(&self, nodes: &impl Deployment, node: usize, now: Moment) -> Option<bool> {
        Some(match self.outcome_of(nodes, node, now)? {
            VoteOutcome::Held(_) | VoteOutcome::NotYourTurn | VoteOutcome::FenceAhead | VoteOutcome::Free => {
                true
            }
            VoteOutcome::Granted
            | VoteOutcome::Restored
            | VoteOutcome::Quarantined { .. }
            | VoteOutcome::Duplicate { .. }
            | VoteOutcome::Pending
            | VoteOutcome::Failed(_)
            | VoteOutcome::Skipped => false,
        })
    }

    /// Returns the responses whose votes count as granted.
    fn granted<'a>(&'a self, nodes: &'a impl Deployment) -> impl Iterator<Item = &'a Response> {
        let counts = |node| self.outcome_of(nodes, node, self.sent) == Some(VoteOutcome::Granted);
        self.responses().filter(move |(node, _)| counts(*node)).map(|(_, response)| response)
    }

    /// Returns from when a grant of this round counts at a quorum (rule I-7): from before the nodes
    /// were asked, or from the earlier moment that the votes name.
    pub fn counts_from(&self, nodes: &impl Deployment) -> Moment {
        if !self.have_earlier_starts {
            return self.sent;
        }
        let needed = nodes.quorum().needed();
        let from = self.grants_count_from(nodes).get(needed - 1).copied().unwrap_or(Moment::ORIGIN);
        debug_assert!(from <= self.sent, "a grant counts from after it was asked for");
        from
    }

    /// Whether a grant counts from so early a moment that it would shorten the lease, and from a later one if the nodes
    /// that are still in time granted as well, so that a quorum had no need of the earliest moment that a vote names.
    pub(super) fn may_count_from_later(&self, nodes: &impl Deployment, now: Moment) -> bool {
        if !self.have_earlier_starts || !self.question.expect.stores() {
            return false;
        }
        let is_expected = |slot: &&Slot| matches!(slot.state, State::Pending { .. }) && now < slot.limit;
        let expected = self.slots.iter().filter(is_expected).count();
        let moments = self.grants_count_from(nodes);
        let planned = nodes.grant_age(self.question.ttl);
        let bearable = planned + self.question.ttl.saturating_sub(planned) / BEARABLE;
        // Those that are expected count from when the round was sent, so come first.
        let place = |more: usize| nodes.quorum().needed().checked_sub(1 + more);
        let best = place(expected).map_or(Some(self.sent), |place| moments.get(place).copied());
        let at_hand = place(0).and_then(|place| moments.get(place).copied());
        best > at_hand && at_hand.is_none_or(|from| self.sent.since(from) > bearable)
    }

    /// Returns from when each grant counts, the latest first.
    fn grants_count_from(&self, nodes: &impl Deployment) -> SmallVec<[Moment; USUAL]> {
        let named =
            |response: &Response| response.counts_from.map_or(self.sent, |named| named.min(self.sent));
        let mut moments: SmallVec<[Moment; USUAL]> = self.granted(nodes).map(named).collect();
        moments.sort_unstable_by(|one, other| other.cmp(one));
        moments
    }

    /// Returns the store's own number of this grant. Those of several stores have nothing to do with each other.
    #[must_use]
    pub fn store_revision(&self) -> Option<NonZeroU64> {
        let mut responses = self.responses();
        if self.slots.len() == 1 { responses.next()?.1.store_revision } else { None }
    }

    /// Returns the number of an attempt with this verdict: the largest among the votes that count. If fewer than a quorum
    /// of them carry it, it is the next number, to which a quorum of nodes must raise its counter in a second round: they
    /// must still hold the claim's key, with a counter below (rules F-4 and F-5).
    pub fn number(&self, nodes: &impl Deployment, verdict: Verdict) -> Number {
        if self.question.expect != Expect::Number || verdict != Verdict::Won {
            return Number::Drawn(None);
        }
        match FenceVotes::of(self.granted(nodes).filter_map(|response| response.fencing_token)) {
            None => Number::Drawn(None),
            Some(drawn) if drawn.stands(nodes.quorum()) => Number::Drawn(Some(drawn.token())),
            Some(drawn) => Number::WriteBack(drawn.next()),
        }
    }

    /// Returns until when a lease from this round may be trusted (I-1).
    pub fn deadline(&self, nodes: &impl Deployment, drift: Drift) -> Moment {
        drift.deadline(self.counts_from(nodes), self.question.ttl)
    }

    /// Whether an attempt in this round is decided in time at `now` (rules I-3 and F-9).
    ///
    /// A fencing token is at least as large as the clocks were when the attempt ended. If the nodes
    /// then lose their counters and return after a quarantine of `max_ttl` or more, the next token is
    /// larger, provided that the clocks agree within `clock_bound`, half of `max_ttl`, and attempts take no longer than
    /// the other half.
    pub fn is_in_time(
        &self,
        nodes: &impl Deployment,
        drift: Drift,
        clock_bound: Duration,
        now: Moment,
    ) -> bool {
        let deadline = self.deadline(nodes, drift);
        let latest = match self.question.expect {
            Expect::Number => deadline.min(self.sent + clock_bound),
            Expect::Hold | Expect::Kept | Expect::Released | Expect::AnyAnswer | Expect::Holder => deadline,
        };
        now < latest
    }

    /// Returns the largest fencing token that a node has reported.
    pub fn largest_number(&self, nodes: &impl Deployment) -> Option<FencingToken> {
        let plausible = self.responses().filter(|(_, response)| !is_implausible(nodes, response));
        plausible.filter_map(|(_, response)| response.fencing_token).max()
    }

    /// Returns the queue listings of the nodes.
    #[must_use]
    pub fn listings(&self) -> Vec<QueueListing> {
        let listing = |(_, response): (usize, &Response)| {
            if let Vote::Waiters(listing) = &response.vote { Some((**listing).clone()) } else { None }
        };
        self.responses().filter_map(listing).collect()
    }

    /// Returns the logs of the nodes.
    #[must_use]
    pub fn logs(&self) -> Vec<Vec<LoggedHold>> {
        let log = |(_, response): (usize, &Response)| {
            if let Vote::Log(holds) = &response.vote { Some(holds.to_vec()) } else { None }
        };
        self.responses().filter_map(log).collect()
    }

    /// Counts the votes so far that `is_counted` selects by the index of the node and its vote.
    pub fn count_votes(&self, is_counted: impl Fn(usize, &Vote) -> bool) -> usize {
        self.responses().filter(|(node, response)| is_counted(*node, &response.vote)).count()
    }

    /// Returns all responses so far, for people and for what a refused waiter does next.
    pub fn report(&self, nodes: &impl Deployment, now: Moment) -> VoteReport {
        let vote = |node: usize| {
            let state = self.slots.get(node).map(|slot| &slot.state);
            let outcome = match state {
                Some(State::Unasked) => VoteOutcome::Failed(NodeError::NotAsked),
                _ => self.outcome_of(nodes, node, now).unwrap_or(VoteOutcome::Pending),
            };
            let took = match state {
                Some(State::Answered { took, .. }) => *took,
                Some(State::Pending { asked }) => now.since(*asked),
                Some(State::Unasked | State::Skipped) | None => now.since(self.sent),
            };
            let fencing_token = match state {
                Some(State::Answered { result: Ok(response), .. }) => {
                    response.holder_number(self.question.expect.inspects())
                }
                _ => None,
            };
            NodeVote { node: nodes.name(node), outcome, took, fencing_token }
        };
        VoteReport::new(nodes.quorum(), (0..self.slots.len()).map(vote).collect())
    }
}

/// Whether no clock explains the fencing token (rule F-11). Those of a store of one host were drawn by the clock of this
/// host, which may have been set since, and a user that may write there may take the locks away anyway.
fn is_implausible(nodes: &impl Deployment, response: &Response) -> bool {
    let number = response.fencing_token.filter(|_| !nodes.is_on_one_host());
    number.is_some_and(|number| number.is_implausible(|| nodes.wall()))
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
