//! Offers that a waiter gets from the holder before it.
//!
//! An offer passes a lock from holder to holder in one trip. The holder releases the lock by a
//! request that replaces its token by the waiter's, in one step on each node. Each node then sends
//! the waiter its vote. A waiter with such votes from a quorum holds the lock, and has asked no node.
//!
//! ```text
//!  waiter          home node         holder          all nodes
//!    │ place, terms  │                 │                 │
//!    ├──────────────►│ who is next     │                 │
//!    │               ├────────────────►│                 │
//!    │               │                 │ Offer (release) │
//!    │               │                 ├────────────────►│ token replaced
//!    │◄────────────────────────────────┼─────────────────┤ vote of each node
//!    │ a quorum: holds the lock
//! ```
//!
//! It is safe because an offer is a vote like any other that comes late. The request is that for a
//! place in the queue: it names a token that is new or recent, and validity counts from before the
//! first request with that token was sent. The token says which request a vote answers. Each request is an
//! [`Attempt`] whose votes come unasked.
//!
//! # States of a request
//!
//! | state | meaning | left by |
//! |---|---|---|
//! | open | The token is sent with each request for a place, until it is an eighth of its life old. Then a new token takes its place, and the old one stays open. | a vote, a withdrawal, [`forgotten_at`](Attempt::forgotten_at) |
//! | with votes | A node has offered the lock. The waiter waits one turn for the votes of the others. | a quorum, the end of that turn |
//! | taken up | A quorum has offered, and a lease comes of it. | its end, which gives the token up |
//! | given up | The token was withdrawn. A vote that arrives now is released on its node. | |
//! | forgotten | Two lives after the request no vote can arrive any more. | |
//!
//! # Events
//!
//! | event | effect |
//! |---|---|
//! | a place is asked for ([`OfferRequests::repeat`]) | The last token is repeated while that is recent; otherwise the driver draws a new one, and [adds](OfferRequests::push) it. |
//! | a vote arrives ([`Attempt::handle_offer`]) | Counted, or given back if the token was given up or the offer is shorter than its terms. |
//! | the node says that we are first soon ([`Attempt::handle_soon`]) | The waiter asks again, so that the offer counts from a recent request. |
//! | there are votes ([`OfferRequests::next`]) | Taken up, if a quorum has offered, and enough of the validity is left (O-5); given back, if too few have for a turn. |
//! | the home names one of our tokens as the holder, but its vote has not come ([`OfferRequests::unheard`]) | The message was lost, so the lock is given back. |
//! | the wait ends ([`OfferRequests::give_back`]) | All are given up, and those with votes given back. |
//! | the coordinator closes ([`Attempt::withdraw`]) | All open tokens are withdrawn on all nodes. |
//!
//! # Invariants
//!
//! - A vote counts for the token that it names, once for each node (O-2), from before the first
//!   request with that token was sent (O-3).
//! - A token that was given up never counts again, and what is stored under it is released (O-6): a vote is
//!   either counted before the token is given up, or is given back. A token is either taken up by its waiter or
//!   withdrawn by a coordinator that closes.
//! - The terms name the life of an offer: no longer than the TTL and half of `max_ttl` (O-7). A shorter
//!   offer is given back.
//! - Offers are asked for only where messages arrive from the home and from a quorum (O-8).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::machine::{Attempt, Deployment, Machine as _};
use crate::{Drift, Moment, RoundTrip, Token, Verdict, least_left, turn};

/// An attempt that the messages of nodes reach while its waiter waits.
pub trait SharedAttempt {
    /// Reads or changes it.
    fn with<T>(&self, work: impl FnOnce(&mut Attempt) -> T) -> T;
}

impl<T: SharedAttempt> SharedAttempt for Arc<T> {
    fn with<U>(&self, work: impl FnOnce(&mut Attempt) -> U) -> U {
        (**self).with(work)
    }
}

/// The requests of one wait that an offer may answer, newest last.
#[derive(Clone, Debug)]
pub struct OfferRequests<R> {
    open: VecDeque<R>,
    /// When the first vote without a quorum arrived.
    since: Option<Moment>,
}

/// What to do about offers.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum OfferStep<R> {
    /// This one is taken up. If it `is_latest`, and was sent once, the nodes that have offered know no other request.
    Take {
        /// The attempt that a quorum has offered.
        request: R,
        /// Whether no request came after it.
        is_latest: bool,
    },
    /// Wait for the votes of other nodes, until this moment.
    Wait(Moment),
    /// They are too few or too late: what these have is to be taken back, and the next waiter gets it.
    GiveBack(Vec<R>),
}

impl<R> OfferStep<R> {
    /// Turns its requests into what the driver has for them.
    pub fn map<T>(self, turn: impl Fn(R) -> T) -> OfferStep<T> {
        match self {
            OfferStep::Take { request, is_latest } => OfferStep::Take { request: turn(request), is_latest },
            OfferStep::Wait(until) => OfferStep::Wait(until),
            OfferStep::GiveBack(requests) => OfferStep::GiveBack(requests.into_iter().map(turn).collect()),
        }
    }
}

/// Nodes that answer sooner are near: the trip that an offer saves is shorter than the work that it adds.
const NEAR: Duration = Duration::from_millis(1);

/// Whether a waiter asks for offers of this `life` (rule O-8): not if the node is near, nor if a lease from one would be too
/// short at this round trip. A near one that is busy answers late, but at very different times.
#[must_use]
pub fn asks_for_offers(life: Duration, trip: RoundTrip) -> bool {
    let is_near = trip.smoothed() < NEAR + trip.deviation();
    !is_near && life >= least_left(life, trip.smoothed()).saturating_mul(2)
}

impl<R> Default for OfferRequests<R> {
    fn default() -> OfferRequests<R> {
        OfferRequests { open: VecDeque::new(), since: None }
    }
}

impl<R: SharedAttempt> OfferRequests<R> {
    /// Returns the request whose token is named again in a request for a place at `now`; `None` if a new one is needed.
    pub fn repeat(&mut self, now: Moment) -> Option<&R> {
        self.forget(now);
        self.open.back().filter(|last| last.with(|last| last.repeat(now)))
    }

    /// Drops those to which no offer can come any more.
    pub fn forget(&mut self, now: Moment) {
        self.open.retain(|request| request.with(|request| now < request.forgotten_at()));
    }

    /// Adds a request with a new token.
    pub fn push(&mut self, request: R) {
        let is_newest = self.open.back().is_none_or(|last| sent(last) <= sent(&request));
        debug_assert!(is_newest, "the newest request is not the last");
        self.open.push_back(request);
    }

    /// Whether any node has offered the lock.
    #[must_use]
    pub fn has_offers(&self) -> bool {
        self.open.iter().any(|request| request.with(|request| request.has_offers()))
    }

    /// Whether the latest request is too old for an offer that is about to come. Returns `true`
    /// once only: there may be no newer request.
    #[must_use]
    pub fn turned_stale(&self) -> bool {
        self.open.back().is_some_and(|request| request.with(Attempt::turned_stale))
    }

    /// Decides what to do about the offers so far, of nodes to which a `round_trip` takes this long.
    pub fn next(
        &mut self,
        nodes: &impl Deployment,
        round_trip: Duration,
        drift: Drift,
        now: Moment,
    ) -> OfferStep<R> {
        let is_won = |request: &R| {
            request.with(|request| request.round().tally(nodes, now).verdict()) == Some(Verdict::Won)
        };
        let Some(request) = self.open.iter().position(is_won).and_then(|won| self.open.remove(won)) else {
            let until = *self.since.get_or_insert(now) + turn(round_trip);
            return if now < until { OfferStep::Wait(until) } else { OfferStep::GiveBack(self.give_back()) };
        };
        self.since = None;
        let takes_up = request.with(|won| {
            let left = won.round().deadline(nodes, drift).since(now);
            left >= least_left(won.round().ttl(), round_trip) && won.take_up()
        });
        if takes_up {
            let is_repeated = request.with(|won| won.is_repeated());
            let is_newest = self.open.back().is_none_or(|other| sent(other) <= sent(&request));
            return OfferStep::Take { request, is_latest: is_newest && !is_repeated };
        }
        request.with(Attempt::withdraw);
        let others = self.give_back();
        OfferStep::GiveBack([request].into_iter().chain(others).collect())
    }

    /// Takes out the request for which `home` has this `holder`, if its message was lost: it would have come before the
    /// answer that says so. It is to be taken back.
    pub fn unheard(&mut self, home: usize, holder: &Token) -> Option<R> {
        let is_unheard = |request: &R| request.with(|request| request.is_unheard(home, holder));
        self.open.remove(self.open.iter().position(is_unheard)?)
    }

    /// Gives all up. Returns those that are to be taken back.
    #[must_use]
    pub fn give_back(&mut self) -> Vec<R> {
        self.since = None;
        // Before the votes are looked at: one that arrives in between would not be given back.
        let is_offered = |request: &R| request.with(|request| request.withdraw() && request.has_offers());
        self.open.drain(..).filter(is_offered).collect()
    }
}

fn sent<R: SharedAttempt>(request: &R) -> Moment {
    request.with(|request| request.round().sent())
}

#[cfg(test)]
mod tests;
