//! What a run of the model may meet, and the rules of offers.

use quorlock_protocol::{Drift, Moment};

use crate::clock::{self, moment, span};
use crate::common::Detail;

/// The rules: those of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    /// As the library does it.
    Quorlock,
    /// A node stores an offer also where nothing stands. No rule is broken by that, as it turns out.
    AbsentToo,
    /// A node stores an offer whatever stands there.
    WhateverStands,
    /// Validity counts from the last push, and not from the question.
    FromPush,
    /// All questions of a waiter have one token, and validity counts from the last of them.
    OneToken,
    /// A waiter counts pushes about the tokens of other waiters as well.
    AnyOffer,
    /// The votes for two tokens of one waiter are added, and validity counts from the newer question.
    TwoTokens,
    /// The holder believes in its lease until its offers are answered.
    UntilAnswered,
    /// A push for a token that was given back counts.
    Reuse,
    /// A renewal counts where it has stored the key anew. Alone that breaks nothing, as for the lock.
    RestoredCounts,
    /// The same for what was taken up, and also after the end that the lease had before.
    RestoredLate,
    /// Offers count also from a process that is too young.
    YoungVotes,
    /// Two pushes of one node are two votes.
    Twice,
    /// One vote less than a quorum is enough.
    Minority,
    /// An offer is taken up without a look at the clock.
    NoDeadline,
    /// A node takes the releaser's number and one more, wherever its counter stands.
    NotRaised,
    /// A node draws above the releaser's number, and does not know what the waiter's calendar showed. A
    /// releaser may be of long ago, from before others whose numbers a node has forgotten.
    ReleasersHint,
    /// A node draws above what the waiter's calendar showed, and does not know the releaser's number.
    WaitersHint,
    /// The largest number is handed out, however few nodes carry it.
    NoWriteBack,
}

/// Whether there is time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clocks {
    /// Time goes on.
    Running,
    /// Each key may vanish at any time, and all believe for as long as they like: what still holds rests on
    /// no clock.
    None,
}

/// Whether nodes draw numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fencing {
    /// They do not.
    Without,
    /// They do, and those who ask bring no hint.
    Numbers,
    /// They do, and those who ask, in the plain way or with a question, bring the time of their calendars as a
    /// hint. These agree: it is no less than any number that was drawn before.
    Calendars,
}

/// How it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// The first attempt holds the lock.
    Held,
    /// No attempt has asked.
    Free,
}

/// The bounds of a model, in ticks. They say what may happen, not what does.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// How it starts.
    pub(crate) start: Start,
    /// For how long a lock is asked for, and renewed.
    pub(crate) ttl: u8,
    /// For how long an offer is stored.
    pub(crate) offer: u8,
    /// The share of a life that is given up.
    pub(crate) drift: f64,
    /// By how many ticks each node's clock may run ahead.
    pub(crate) nodes_ahead: u8,
    /// How many ticks the clock of each attempt may miss.
    pub(crate) attempts_behind: u8,
    /// How often a node restarts and has forgotten everything.
    pub(crate) restarts: u8,
    /// How often a node restarts with its data.
    pub(crate) reminders: u8,
    /// For how long after a restart a node's votes do not count.
    pub(crate) quarantine: u8,
    /// How often each lease is renewed.
    pub(crate) renewals: u8,
    /// Whether there is time.
    pub(crate) clocks: Clocks,
    /// Whether nodes draw numbers.
    pub(crate) fencing: Fencing,
    /// What has a step of its own.
    pub(crate) detail: Detail,
}

impl World {
    /// Clocks agree, no node forgets, and nothing is renewed.
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

    /// The same with so many renewals, to a TTL that is longer than the life of an offer.
    pub(crate) fn renewing(renewals: u8) -> World {
        World { ttl: 3, quarantine: 3, renewals, ..World::calm() }
    }

    /// Nodes restart and forget, so often.
    pub(crate) fn forgetful(restarts: u8) -> World {
        World { restarts, ..World::calm() }
    }

    /// Clocks that run at different rates, within what the allowance covers: it is a tick of each TTL.
    pub(crate) fn drifting(nodes_ahead: u8, attempts_behind: u8) -> World {
        let (ttl, offer, quarantine) = (3, 3, 3);
        World { ttl, offer, quarantine, drift: 0.34, nodes_ahead, attempts_behind, ..World::calm() }
    }

    /// Nodes draw numbers.
    pub(crate) fn fenced() -> World {
        World { fencing: Fencing::Numbers, ..World::calm() }
    }

    /// And the calendars of clients agree, while a node restarts: an offer lives for half of the quarantine.
    pub(crate) fn calendars(restarts: u8) -> World {
        World { restarts, quarantine: 4, fencing: Fencing::Calendars, ..World::calm() }
    }

    /// Nodes draw numbers, and there is no clock.
    pub(crate) fn timeless() -> World {
        World { clocks: Clocks::None, ..World::fenced() }
    }

    /// Without the model's shortcuts.
    pub(crate) fn literally(self) -> World {
        World { detail: Detail::Literal, ..self }
    }

    pub(super) fn is_literal(&self) -> bool {
        self.detail == Detail::Literal
    }

    /// Until when a key may be trusted that was asked for at `sent`, for so many ticks.
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
