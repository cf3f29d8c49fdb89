//! An attempt whose votes are offered by the holder: what becomes of its token. The states are at the head of
//! [`OfferRequests`](crate::machine::wait::OfferRequests).

use std::time::Duration;

use super::{Attempt, Deployment, Heard, KeyState, Moment, Response, Round, Stage, Wanted, expect};
use crate::node::Vote;
use crate::{Token, offer_renamed_after};

/// What is known of a token to which the lock may be offered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offer {
    /// Whether the waiter has taken up what was offered.
    is_taken_up: bool,
    /// Whether a coming offer would count from too long ago.
    is_stale: bool,
    /// Whether it was sent again.
    is_repeated: bool,
}

/// What becomes of a vote that comes without a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Offered {
    /// It counts.
    Counts(Heard),
    /// The node has voted before.
    Again,
    /// It is to be taken back on its node: the token was given up, or the offer is shorter than its terms. It would keep
    /// other clients out until it expires (rule O-6).
    GiveBack,
}

impl Attempt {
    /// Waits for votes that come [without a request](Attempt::handle_offer).
    #[must_use]
    pub fn offered(nodes: &impl Deployment, now: Moment, wanted: Wanted) -> Attempt {
        let votes = Round::offered(nodes, expect(wanted.fence_hint), now, wanted.ttl);
        let mut attempt = Attempt::new(wanted.claim, votes);
        attempt.offer = Some(Offer::default());
        attempt
    }

    /// Whether its votes are offered: the lease has less than its TTL until it is renewed.
    #[must_use]
    pub fn is_offered(&self) -> bool {
        self.offer.is_some()
    }

    /// Records an unasked vote, which the node keeps for `life`.
    pub fn handle_offer(
        &mut self,
        nodes: &impl Deployment,
        node: usize,
        vote: Response,
        life: Duration,
        now: Moment,
    ) -> Offered {
        debug_assert!(self.is_offered(), "a vote that was asked for came twice");
        if matches!(self.stage, Stage::GivenUp(_)) || life < self.votes.ttl() {
            return Offered::GiveBack;
        }
        self.votes.handle_offer(nodes, node, vote, now).map_or(Offered::Again, Offered::Counts)
    }

    /// Records that an offer is about to come. Returns whether the waiter is to ask again first: the offer would count from
    /// too long ago.
    pub fn handle_soon(&mut self, now: Moment) -> bool {
        let is_stale = now.since(self.votes.sent()) >= offer_renamed_after(self.votes.ttl());
        if let Some(offer) = &mut self.offer {
            offer.is_stale |= is_stale;
        }
        is_stale
    }

    /// Takes up what was offered. Returns whether it may be: not once the token was given up (rule O-6).
    pub fn take_up(&mut self) -> bool {
        let Some(offer) = self.offer.as_mut().filter(|_| !matches!(self.stage, Stage::GivenUp(_))) else {
            return false;
        };
        debug_assert!(!offer.is_taken_up, "an offer was taken up twice");
        offer.is_taken_up = true;
        true
    }

    /// Gives the token up, unless its offer was taken up: an offer that comes from now on is given back. Returns whether it
    /// did.
    pub fn withdraw(&mut self) -> bool {
        let is_open = self.is_open();
        if is_open {
            self.give_up();
        }
        is_open
    }

    /// Whether no lease has come of it, so that an offer may still come for nothing.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.offer.is_some_and(|offer| !offer.is_taken_up)
    }

    /// Returns when every offer for it has expired on the nodes, too: a message may be in flight for as long again.
    #[must_use]
    pub fn forgotten_at(&self) -> Moment {
        self.votes.sent() + self.votes.ttl().saturating_mul(2)
    }

    /// Whether any node has offered the lock.
    #[must_use]
    pub fn has_offers(&self) -> bool {
        self.votes.count_votes(|_, vote| *vote == Vote::Granted) > 0
    }

    /// Whether a node holds the lock for this token, and its message was lost.
    pub(in crate::machine) fn is_unheard(&self, node: usize, holder: &Token) -> bool {
        self.claim.token() == holder && self.votes.key_states().get(node) != KeyState::Holds
    }

    /// Names the token once more in a request at `now`, if that is recent and no node has answered it. Returns whether it is.
    pub(in crate::machine) fn repeat(&mut self, now: Moment) -> bool {
        let is_recent = now.since(self.votes.sent()) < offer_renamed_after(self.votes.ttl());
        let has_offers = self.has_offers();
        let Some(offer) = &mut self.offer else { return false };
        let repeats = is_recent && !offer.is_stale && !has_offers;
        offer.is_repeated |= repeats;
        repeats
    }

    pub(in crate::machine) fn is_repeated(&self) -> bool {
        self.offer.is_some_and(|offer| offer.is_repeated)
    }

    /// Whether to ask again, because an offer is about to come; once.
    pub(in crate::machine) fn turned_stale(&mut self) -> bool {
        self.offer.as_mut().is_some_and(|offer| std::mem::take(&mut offer.is_stale))
    }
}
