//! One request to all nodes, and the verdict on their votes.
//!
//! A round has one [`Slot`] for each node.
//!
//! ```text
//!             ask                   response or error
//!  Unasked ─────────► Pending ───────────────────────────► Answered
//!                        │
//!  Skipped               │ the clock reaches the slot's limit
//!  (never asked)         ▼
//!                     still Pending, but counted as unknown; a later response counts after all
//! ```
//!
//! # Events
//!
//! | event | effect |
//! |---|---|
//! | a node is [asked](Round::ask) | Its timeout begins. |
//! | [response or error](Machine::handle_response) of a node | The slot becomes `Answered`, and the votes are counted if that can decide. It is news if the verdict is certain, if timeouts were shortened, if a node has timed out before, and if it is the last. |
//! | vote [without a request](Round::handle_offer) | The same, for the votes of an offer. A second vote of the node is ignored. |
//! | timeout of a node | Changes no slot: from then on the silent node counts as unknown. |
//! | enough votes to exclude *unavailable* | The timeouts of the silent nodes are shortened. |
//! | a quorum has granted, by a vote that counts from an [earlier moment](Response::counting_from) | If more than a tenth of the lease is missing by it, there is no verdict while a node is in time whose vote could make it a later moment. |
//!
//! A round continues after its verdict. Late nodes still carry out the request, so a release that
//! follows must know the state of the key on each of them: see [`Round::key_states`].
//!
//! # Invariants
//!
//! - `sent` is read before the first byte is sent, and every deadline counts from it or from an
//!   earlier moment that the votes name (I-1, I-7).
//! - A slot is answered once. Of several responses from one server process one counts (I-2, I-26).
//! - A node without a usable response is unknown: it has neither granted nor refused. A node that
//!   need not be asked counts as granted: it has what the round wants.
//! - The age of a server process counts as of `sent`, not as of its response (I-12).
//! - A verdict that is stored never changes. It is stored only while no node has timed out:
//!   otherwise a late response may still change it, and the verdict is computed again.
//! - The timeouts of silent nodes are only shortened, and only once the verdict cannot be
//!   *unavailable* (I-47).
//! - A node that was asked is `InFlight` until it responds. Only a node that was not asked, refused,
//!   or failed before it sent anything is `Without` the key (I-5).

#[cfg(test)]
mod tests;
mod votes;

pub use votes::Number;

use std::time::Duration;

use smallvec::SmallVec;

use super::{Deployment, KeyStates, Machine, NodeSet};
use crate::node::{NodeError, Request, Response, SharedRequest, Vote};
use crate::{KeyState, Moment, Tally, Verdict};

/// The shortest time to wait for a node whose answer is optional: far more than a round trip within
/// a region, and too short for a person to notice.
pub const LEAST_PATIENCE: Duration = Duration::from_millis(25);

/// Like [`LEAST_PATIENCE`], for an inspection, which is not urgent.
pub const INSPECT_PATIENCE: Duration = Duration::from_millis(250);

/// The number of nodes for which a round needs no second allocation.
const USUAL: usize = 5;

/// One request to all or some nodes, and their responses.
///
/// Votes are counted only when the result can matter: not before enough have arrived, and not after
/// the verdict is stored. Once a node has timed out, every response is counted.
#[derive(Clone, Debug)]
pub struct Round {
    /// Read before the first byte was sent (rule I-1).
    sent: Moment,
    question: Question,
    slots: SmallVec<[Slot; USUAL]>,
    /// How many have responded or are not asked.
    responded: u8,
    /// Whether any two responses came from the same server process, which is rare.
    have_duplicates: bool,
    /// Whether any response counts from an earlier moment than its request.
    have_earlier_starts: bool,
    /// The earliest timeout.
    first_limit: Moment,
    /// Whether the timeouts of silent nodes have been shortened.
    limits_shortened: bool,
    /// The verdict, once no response can change it.
    verdict: Option<Verdict>,
}

/// What a round asks, as far as its votes depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the engine asks by it")]
pub struct Question {
    /// Which votes count as granted: a release wants the key gone.
    pub expect: Expect,
    /// Whether a node that had lost the key counts, as for a lock that is passed on or retained.
    pub takes_free: bool,
    /// The upper bound of the nodes' timeouts.
    pub ttl: Duration,
}

impl Question {
    /// The question of this request, which expects these votes.
    #[must_use]
    pub fn by(request: Option<&Request>, expect: Expect, ttl: Duration) -> Question {
        // A node that had lost the key excludes others from then on; the lease before has ended.
        Question { expect, takes_free: matches!(request, Some(Request::Transfer { .. })), ttl }
    }
}

/// The vote that a request expects from a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a request stores a token, removes it, or reads")]
pub enum Expect {
    /// The key holds the token.
    Hold,
    /// It still does, as of a lease: whether it is lost is decided later than that it is not renewed (rule I-11).
    Kept,
    /// The same, with a number for the fencing token.
    Number,
    /// The key does not hold the token.
    Released,
    /// Any answer.
    AnyAnswer,
    /// Who holds the key. That none does counts only from a node that may vote: another may have lost the key of a lease
    /// that is still valid.
    Holder,
}

impl Expect {
    /// Whether the answers are for a person or a waiter, and no lease depends on how soon they come.
    pub(super) fn inspects(self) -> bool {
        matches!(self, Expect::AnyAnswer | Expect::Holder)
    }

    fn stores(self) -> bool {
        matches!(self, Expect::Hold | Expect::Kept | Expect::Number)
    }
}

/// When a node is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Asked {
    /// As the round begins.
    Now,
    /// By [`Round::ask`].
    Later,
    /// Never.
    Never,
}

#[derive(Clone, Debug)]
struct Slot {
    /// When this node times out.
    limit: Moment,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
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

/// What a response has changed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the engine takes it apart")]
pub struct Heard {
    /// Whether who waits for the round may have something to do.
    pub is_news: bool,
    /// Whether the node had timed out.
    pub is_late: bool,
    /// Whether a renewal has found as many nodes without the key as another client needs (rule I-11), before or after its
    /// verdict.
    pub is_lost: bool,
}

impl Round {
    /// Begins a round at `sent`, of which `asked` says when each node is asked.
    pub fn new(
        nodes: &impl Deployment,
        question: Question,
        sent: Moment,
        asked: impl Fn(usize) -> Asked,
    ) -> Round {
        let slot = |node| {
            let state = match asked(node) {
                Asked::Now => State::Pending { asked: sent },
                Asked::Later => State::Unasked,
                Asked::Never => State::Skipped,
            };
            Slot { limit: sent + nodes.timeout(node, question.ttl), state }
        };
        let slots: SmallVec<[Slot; USUAL]> = (0..nodes.quorum().nodes()).map(slot).collect();
        let responded = slots.iter().filter(|slot| matches!(slot.state, State::Skipped)).map(|_| 1).sum();
        let first_limit = slots.iter().map(|slot| slot.limit).min().unwrap_or_default();
        Round {
            sent,
            question,
            slots,
            responded,
            have_duplicates: false,
            have_earlier_starts: false,
            first_limit,
            limits_shortened: false,
            verdict: None,
        }
    }

    /// Begins a round that asks no node: votes arrive [unasked](Round::handle_offer), for `life` at most.
    #[must_use]
    pub fn offered(nodes: &impl Deployment, expect: Expect, sent: Moment, life: Duration) -> Round {
        let question = Question { expect, takes_free: false, ttl: life };
        let mut round = Round::new(nodes, question, sent, |_| Asked::Now);
        round.slots.iter_mut().for_each(|slot| slot.limit = sent + life);
        round.first_limit = sent + life;
        round
    }

    /// Returns when the round began: a moment before the first byte was sent.
    #[must_use]
    pub fn sent(&self) -> Moment {
        self.sent
    }

    /// Returns the TTL of the keys that it is about: the upper bound of its timeouts.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.question.ttl
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.slots.len()
    }

    /// Asks a node that has not been asked.
    pub fn ask(&mut self, nodes: &impl Deployment, node: usize, now: Moment) {
        if let Some(slot) = self.slots.get_mut(node) {
            debug_assert!(matches!(slot.state, State::Unasked), "a node was asked twice in a round");
            let limit = now + nodes.timeout(node, self.question.ttl);
            *slot = Slot { limit, state: State::Pending { asked: now } };
            // It may be earlier than when the round was prepared: its round trips were measured in between.
            self.first_limit = self.first_limit.min(limit);
        }
    }

    /// Records an unasked vote. Only the first of a node counts: of a later one there is nothing to hear.
    pub fn handle_offer(
        &mut self,
        nodes: &impl Deployment,
        node: usize,
        vote: Response,
        now: Moment,
    ) -> Option<Heard> {
        self.asked_at(node)?;
        Some(self.handle_response(nodes, node, Ok(vote), now))
    }

    /// Decides what a response has changed; returns whether it is news.
    fn conclude(&mut self, nodes: &impl Deployment, now: Moment) -> bool {
        let is_news = self.all_responded()
            || !self.all_in_time(now)
            || (self.verdict.is_none() && self.decide(nodes, now).is_some());
        self.shorten_limits(nodes, now) || is_news
    }

    /// Shortens the timeouts of the remaining nodes, once enough have responded that the verdict
    /// cannot be *unavailable* (rule I-47). Returns whether it did so now.
    fn shorten_limits(&mut self, nodes: &impl Deployment, now: Moment) -> bool {
        let (needed, inspects) = (nodes.quorum().needed(), self.question.expect.inspects());
        if usize::from(self.responded) < needed
            || self.limits_shortened
            || self.all_responded()
            || (self.verdict.is_some() && !inspects)
        {
            return false;
        }
        let tally = self.tally(nodes, now);
        if tally.granted() + tally.denied() < needed {
            return false;
        }
        let least = if inspects { INSPECT_PATIENCE } else { LEAST_PATIENCE };
        self.limits_shortened = true;
        for (node, slot) in self.slots.iter_mut().enumerate() {
            if matches!(slot.state, State::Pending { .. }) {
                slot.limit = slot.limit.min(now + nodes.overdue_after(node, least, self.question.ttl));
                self.first_limit = self.first_limit.min(slot.limit);
            }
        }
        true
    }

    /// Returns the verdict, if it is certain at `now`, and the moment from which a grant counts with it: one node that
    /// names an early one must not end a lease that the others grant (rule I-7).
    pub fn decide(&mut self, nodes: &impl Deployment, now: Moment) -> Option<Verdict> {
        if self.verdict.is_some() || self.has_too_few(nodes, now) {
            return self.verdict;
        }
        let tally = self.tally(nodes, now);
        let verdict = tally.verdict();
        debug_assert!(
            verdict.is_some() || !self.all_responded(),
            "all nodes have responded without a verdict"
        );
        if verdict == Some(Verdict::Won) && self.may_count_from_later(nodes, now) {
            return None;
        }
        if self.question.expect == Expect::Kept && verdict != Some(Verdict::Won) && tally.may_reach_refusals()
        {
            return None;
        }
        // A node that timed out may have decided by its silence, and still respond.
        if self.all_in_time(now) {
            self.verdict = verdict;
        }
        verdict
    }

    /// Returns the verdict, if responses have made it certain, and not silence.
    #[must_use]
    pub fn certain(&self) -> Option<Verdict> {
        self.verdict
    }

    /// Whether the responses at `now` can decide nothing: neither a quorum nor a blocking minority.
    fn has_too_few(&self, nodes: &impl Deployment, now: Moment) -> bool {
        let quorum = nodes.quorum();
        usize::from(self.responded) < quorum.needed().min(quorum.blocking()) && self.all_in_time(now)
    }

    /// Returns the count at `now`, with nodes past their timeout as unknown.
    pub fn tally(&self, nodes: &impl Deployment, now: Moment) -> Tally {
        let mut tally = Tally::new(nodes.quorum());
        for node in 0..self.slots.len() {
            if let Some(outcome) = self.outcome_of(nodes, node, now) {
                outcome.count(&mut tally);
            }
        }
        tally
    }

    /// Whether no node has timed out at `now`.
    fn all_in_time(&self, now: Moment) -> bool {
        now < self.first_limit
    }

    /// Returns the next timeout of a silent node.
    #[must_use]
    pub fn poll_timeout(&self, now: Moment) -> Option<Moment> {
        let pending = self.slots.iter().filter(|slot| matches!(slot.state, State::Pending { .. }));
        debug_assert!(
            pending.clone().all(|slot| slot.limit >= self.first_limit),
            "a node times out too early"
        );
        pending.map(|slot| slot.limit).filter(|limit| *limit > now).min()
    }

    /// Whether no response is outstanding.
    #[must_use]
    pub fn all_responded(&self) -> bool {
        usize::from(self.responded) == self.slots.len()
    }

    /// Whether all asked nodes have responded, none with an error.
    #[must_use]
    pub fn all_voted(&self) -> bool {
        let voted =
            |slot: &Slot| matches!(slot.state, State::Skipped | State::Answered { result: Ok(_), .. });
        self.slots.iter().all(voted)
    }

    /// Returns when a node was asked, if it has not responded.
    #[must_use]
    pub fn asked_at(&self, node: usize) -> Option<Moment> {
        match self.slots.get(node)?.state {
            State::Pending { asked } => Some(asked),
            State::Answered { .. } | State::Unasked | State::Skipped => None,
        }
    }

    /// Whether a node is still to be asked.
    #[must_use]
    pub fn is_unasked(&self, node: usize) -> bool {
        self.slots.get(node).is_some_and(|slot| matches!(slot.state, State::Unasked))
    }

    /// Returns the response of a node, once it has one.
    #[must_use]
    pub fn response_of(&self, node: usize) -> Option<&Result<Response, NodeError>> {
        match &self.slots.get(node)?.state {
            State::Answered { result, .. } => Some(result),
            State::Pending { .. } | State::Unasked | State::Skipped => None,
        }
    }

    /// Returns the state of the claim's key on each node, as far as known.
    #[must_use]
    pub fn key_states(&self) -> KeyStates {
        let stores = self.question.expect.stores();
        let key_state = |slot: &Slot| match &slot.state {
            State::Pending { .. } => KeyState::InFlight,
            State::Answered { result: Err(error), .. } if error.may_have_acted() => KeyState::Unknown,
            State::Answered { result: Ok(response), .. } => match response.vote {
                Vote::Granted | Vote::ReleasedContended | Vote::Notified | Vote::Restored if stores => {
                    KeyState::Holds
                }
                Vote::Granted
                | Vote::ReleasedContended
                | Vote::Notified
                | Vote::Restored
                | Vote::Held(_)
                | Vote::Queued(_)
                | Vote::Waiters(_)
                | Vote::Log(_)
                | Vote::NotYourTurn
                | Vote::FenceAhead
                | Vote::Free => KeyState::Without,
            },
            State::Answered { result: Err(_), .. } | State::Skipped | State::Unasked => KeyState::Without,
        };
        KeyStates::of(self.slots.iter().map(key_state))
    }

    /// Returns the nodes that say that they had lost the key when this request about it arrived, of those that had it
    /// `before`.
    #[must_use]
    pub fn had_lost(&self, before: KeyStates) -> NodeSet {
        let says_so = |vote: &Vote| matches!(vote, Vote::Held(_) | Vote::Restored | Vote::Free);
        let had_lost = |(node, response): &(usize, &Response)| {
            before.get(*node) == KeyState::Holds && says_so(&response.vote)
        };
        self.responses().filter(had_lost).map(|(node, _)| node).collect()
    }

    fn responses(&self) -> impl Iterator<Item = (usize, &Response)> {
        self.slots.iter().enumerate().filter_map(|(node, slot)| match &slot.state {
            State::Answered { result: Ok(response), .. } => Some((node, response)),
            State::Answered { .. } | State::Pending { .. } | State::Unasked | State::Skipped => None,
        })
    }

    /// Returns the other nodes whose responses came from the same server process as `response`, by the
    /// identity that they report.
    fn same_as<'a>(
        &'a self,
        node: usize,
        response: &'a Response,
    ) -> impl Iterator<Item = (usize, &'a Response)> {
        self.responses()
            .filter(move |(other, theirs)| *other != node && theirs.identity.is_one_with(&response.identity))
    }
}

impl Machine for Round {
    fn round(&self) -> &Round {
        self
    }

    fn round_mut(&mut self) -> &mut Round {
        self
    }

    fn handle_response(
        &mut self,
        nodes: &impl Deployment,
        node: usize,
        result: Result<Response, NodeError>,
        now: Moment,
    ) -> Heard {
        if let Ok(response) = &result {
            self.have_duplicates = self.have_duplicates || self.same_as(node, response).next().is_some();
            self.have_earlier_starts |= response.counts_from.is_some();
        }
        let lacks = self.question.expect == Expect::Kept
            && result.as_ref().is_ok_and(|response| response.vote != Vote::Granted);
        let Some(slot) = self.slots.get_mut(node) else { return Heard::default() };
        debug_assert!(matches!(slot.state, State::Pending { .. }), "a node answered twice");
        let took =
            if let State::Pending { asked } = slot.state { now.since(asked) } else { now.since(self.sent) };
        slot.state = State::Answered { result, took };
        let is_late = now >= slot.limit;
        self.responded += 1;
        debug_assert!(usize::from(self.responded) <= self.slots.len(), "more nodes responded than there are");
        let is_lost = lacks && self.tally(nodes, now).denied() >= nodes.quorum().needed();
        Heard { is_news: self.conclude(nodes, now), is_late, is_lost }
    }

    /// Its owner has the requests, and sends each as it asks a node.
    fn poll_request(&mut self, _: &impl Deployment, _: Moment) -> Option<(usize, SharedRequest)> {
        None
    }

    fn is_settled(&self) -> bool {
        self.all_responded()
    }
}
