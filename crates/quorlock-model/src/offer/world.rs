//! The bounds of the model, and the rules of offers.

use quorlock_protocol::{Drift, Moment};

use crate::clock::{self, moment, span};
use crate::common::Detail;

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// A node stores an offer even if it has no key. This is safe.
    AbsentToo,
    /// A node stores an offer whatever key it has.
    AnyKey,
    /// Validity counts from the last push instead of the question.
    FromPush,
    /// All questions of a waiter have one token, and validity counts from the last of them.
    OneToken,
    /// A waiter also counts pushes that no node has sent.
    Forged,
    /// A waiter also counts pushes about the tokens of other waiters.
    AnyOffer,
    /// The votes for two tokens of one waiter are added, and validity counts from the newer question.
    TwoTokens,
    /// The holder asserts its lease until its offers are answered.
    UntilAnswered,
    /// A push for a released token counts.
    Reuse,
    /// A renewal counts even if it stored the key again. This alone is safe, as for the lock.
    RestoredCounts,
    /// The same for a lease from an offer, and also after its previous deadline.
    RestoredLate,
    /// Offers by a process that is too young count.
    YoungVotes,
    /// Two pushes of one node are two votes.
    Twice,
    /// One vote less than a quorum is enough.
    Minority,
    /// An offer is taken up without checking the clock.
    NoDeadline,
    /// A node issues the releaser's number plus one, whatever its counter.
    NotRaised,
    /// A node draws above the releaser's number, but does not know the waiter's calendar. The
    /// releaser may date from before others whose numbers a node has lost.
    ReleasersHint,
    /// A node draws above the waiter's calendar, but does not know the releaser's number.
    WaitersHint,
    /// The largest number is issued, however few nodes carry it.
    NoWriteBack,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clocks {
    Running,
    /// Keys may vanish at any time, and leases never end: what still holds depends on no clock.
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fencing {
    /// Nodes draw no numbers.
    Without,
    /// Nodes draw numbers without hints.
    Numbers,
    /// Nodes draw numbers with the clients' calendars as hints. These agree: no calendar is behind
    /// a number drawn before.
    Calendars,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// The first attempt holds the lock.
    Held,
    /// No attempt has asked.
    Free,
}

/// The bounds of the model, in ticks. They limit what may happen.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) start: Start,
    /// The TTL of votes and renewals.
    pub(crate) ttl: u8,
    /// The TTL of an offer.
    pub(crate) offer: u8,
    /// The drift allowance, as a share of the TTL.
    pub(crate) drift: f64,
    /// By how many ticks each node's clock may run ahead.
    pub(crate) nodes_ahead: u8,
    /// How many ticks the clock of each attempt may miss.
    pub(crate) attempts_behind: u8,
    /// How often a node restarts without its data.
    pub(crate) restarts: u8,
    /// How often a node restarts with its data.
    pub(crate) reminders: u8,
    /// How long after a restart a node's votes do not count.
    pub(crate) quarantine: u8,
    /// How often each lease is renewed.
    pub(crate) renewals: u8,
    pub(crate) clocks: Clocks,
    pub(crate) fencing: Fencing,
    pub(crate) detail: Detail,
}

impl World {
    /// Clocks agree, no node loses data, and no lease is renewed.
    pub(crate) fn calm() -> World {
        World {
            start: Start::Held,
            ttl: 2,
            offer: 2,
            drift: 0.0,
            nodes_ahead: 0,
            attempts_behind: 0,
            restarts: 0,
            reminders: 0,
            quarantine: 2,
            renewals: 0,
            clocks: Clocks::Running,
            fencing: Fencing::Without,
            detail: Detail::Reduced,
        }
    }

    /// The same with this many renewals, to a TTL longer than the life of an offer.
    pub(crate) fn renewing(renewals: u8) -> World {
        World { ttl: 3, quarantine: 3, renewals, ..World::calm() }
    }

    /// Nodes restart without their data this often.
    pub(crate) fn forgetful(restarts: u8) -> World {
        World { restarts, ..World::calm() }
    }

    /// Clocks run at different rates, within the allowance, which is one tick of each TTL.
    pub(crate) fn drifting(nodes_ahead: u8, attempts_behind: u8) -> World {
        let (ttl, offer, quarantine) = (3, 3, 3);
        World { ttl, offer, quarantine, drift: 0.34, nodes_ahead, attempts_behind, ..World::calm() }
    }

    /// Nodes draw numbers.
    pub(crate) fn fenced() -> World {
        World { fencing: Fencing::Numbers, ..World::calm() }
    }

    /// Nodes draw numbers, calendars agree, and a node restarts: an offer lives for half of the quarantine.
    pub(crate) fn calendars(restarts: u8) -> World {
        World { restarts, quarantine: 4, fencing: Fencing::Calendars, ..World::calm() }
    }

    /// Nodes draw numbers, and there are no clocks.
    pub(crate) fn timeless() -> World {
        World { clocks: Clocks::None, ..World::fenced() }
    }

    /// Without the reductions.
    pub(crate) fn literally(self) -> World {
        World { detail: Detail::Literal, ..self }
    }

    pub(super) fn is_literal(&self) -> bool {
        self.detail == Detail::Literal
    }

    /// Returns until when a key requested at `sent` for `ticks` may be relied on.
    pub(super) fn deadline(&self, sent: u8, ticks: u8) -> Moment {
        self.drift().deadline(moment(sent), span(ticks))
    }

    /// Whether a process of this age is too young to vote.
    pub(super) fn is_quarantined(&self, age: u8) -> bool {
        clock::is_quarantined(span(self.quarantine), self.drift(), span(age))
    }

    fn drift(&self) -> Drift {
        clock::drift(self.drift)
    }
}
