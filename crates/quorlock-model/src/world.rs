//! The bounds of the models of the lock and of offers.

use std::time::Duration;

use quorlock_protocol::{Drift, Moment};

use crate::clock;
use crate::common::Detail;

/// The bounds of a model, in ticks. They limit what may happen.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) tick: Duration,
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
    /// How long after a restart a node's votes do not count.
    pub(crate) quarantine: u8,
    /// How often each lease is renewed.
    pub(crate) renewals: u8,
    /// How many nodes keep their data across restarts, and vote immediately.
    pub(crate) remembering: u8,
    /// How often a node restarts with its data, and notifies a waiter again.
    pub(crate) reminders: u8,
    /// How often the calendar clock of a restarted node steps far forwards.
    pub(crate) puts_forward: u8,
    pub(crate) meeting: Meeting,
    pub(crate) turns: Turns,
    /// How often a node's clock jumps past the expiry of its key.
    pub(crate) jumps: u8,
    pub(crate) jumps_at: JumpsAt,
    pub(crate) pauses: Pauses,
    pub(crate) addresses: Addresses,
    pub(crate) start: Start,
    pub(crate) clocks: Clocks,
    pub(crate) fencing: Fencing,
    pub(crate) detail: Detail,
}

/// Where the addresses of the nodes lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Addresses {
    /// Each to a separate process, the same for every client.
    Right,
    /// The address of node 1 leads the first attempt to node 0 as well.
    Astray,
    /// One address is balanced over two servers: the last node but one answers all attempts but the
    /// second, and the last node that one.
    Balanced,
}

/// Whether an attempt may pause between reading its clock and counting a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pauses {
    /// It counts immediately.
    Never,
    /// It may pause while a caller checks whether the lease is valid.
    Possible,
}

/// When a restarted process meets its first client, which notes its uptime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meeting {
    /// Immediately: before its clock steps.
    AtOnce,
    /// When an attempt asks it.
    WhenAsked,
}

/// Whether nodes report how often their event loop has turned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turns {
    /// They do not, like older servers.
    Untold,
    /// It turns once per tick.
    Notified,
}

/// Which clocks may jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JumpsAt {
    Any,
    /// Those of nodes whose key is stored on more than a quorum.
    MoreThanAQuorum,
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

/// How far a calendar clock steps.
const FAR: Duration = Duration::from_secs(60);

impl World {
    /// Clocks agree, no node loses data, and no lease is renewed.
    ///
    /// A tick is so long that the margin of [`Drift`] costs nothing: it falls between two ticks.
    pub(crate) fn calm() -> World {
        World {
            tick: Duration::from_secs(1),
            ttl: 2,
            offer: 2,
            drift: 0.0,
            nodes_ahead: 0,
            attempts_behind: 0,
            restarts: 0,
            quarantine: 2,
            renewals: 0,
            remembering: 0,
            reminders: 0,
            puts_forward: 0,
            meeting: Meeting::AtOnce,
            turns: Turns::Untold,
            jumps: 0,
            jumps_at: JumpsAt::MoreThanAQuorum,
            pauses: Pauses::Never,
            addresses: Addresses::Right,
            start: Start::Held,
            clocks: Clocks::Running,
            fencing: Fencing::Without,
            detail: Detail::Reduced,
        }
    }

    /// The same with this many renewals.
    pub(crate) fn renewing(renewals: u8) -> World {
        World { renewals, ..World::calm() }
    }

    /// The same, to a TTL longer than the life of an offer.
    pub(crate) fn prolonging(renewals: u8) -> World {
        World { ttl: 3, quarantine: 3, ..World::renewing(renewals) }
    }

    /// Nodes restart without their data this often, and leases are renewed.
    pub(crate) fn forgetful(restarts: u8, renewals: u8) -> World {
        World { restarts, ..World::renewing(renewals) }
    }

    /// The same, but this many nodes keep their data.
    pub(crate) fn remembering(nodes: u8, restarts: u8, renewals: u8) -> World {
        World { remembering: nodes, ..World::forgetful(restarts, renewals) }
    }

    /// A node restarts without its data, and its calendar clock steps forwards.
    pub(crate) fn put_forward() -> World {
        World { puts_forward: 1, ..World::forgetful(1, 0) }
    }

    /// This many clocks jump on nodes whose key is stored on more than a quorum. Leases are not renewed: a
    /// key missed by a renewal expires before its lease, and keeps no other client out until the end.
    pub(crate) fn jumping(jumps: u8) -> World {
        World { jumps, ..World::calm() }
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

    pub(crate) fn is_literal(&self) -> bool {
        self.detail == Detail::Literal
    }

    pub(crate) fn wall(&self, ticks: u8) -> Duration {
        self.tick * u32::from(ticks)
    }

    /// Returns an attempt's clock after this many ticks.
    pub(crate) fn moment(&self, clock: u8) -> Moment {
        Moment::since_origin(self.wall(clock))
    }

    /// Returns until when a key requested at `sent` for `ttl` may be relied on.
    pub(crate) fn deadline(&self, sent: u8, ttl: u8) -> Moment {
        self.drift().deadline(self.moment(sent), self.wall(ttl))
    }

    /// Returns the uptime that a process of this age reports.
    pub(crate) fn uptime(&self, age: u8, forward: bool) -> Duration {
        self.wall(age) + if forward { FAR } else { Duration::ZERO }
    }

    /// Whether a process with this uptime is too young to vote.
    pub(crate) fn is_quarantined(&self, uptime: Duration) -> bool {
        clock::is_quarantined(self.wall(self.quarantine), self.drift(), uptime)
    }

    /// Whether a node is too young to vote, where that still matters.
    pub(crate) fn is_young(&self, age: Option<u8>) -> bool {
        age.is_some_and(|age| self.is_quarantined(self.wall(age)))
    }

    fn drift(&self) -> Drift {
        clock::drift(self.drift)
    }
}
