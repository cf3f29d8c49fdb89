//! The bounds of the model, and the rules of the lock.

use std::time::Duration;

use quorlock_protocol::{Drift, Moment};

use crate::clock;
use crate::common::Detail;

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// One vote less than a quorum is enough.
    SmallQuorum,
    /// Validity counts from the last vote (rule I-1).
    LateStart,
    /// One process counts for each address that leads to it (I-2).
    TwinsCount,
    /// The second attempt reuses the token of the first, and begins after it has given up (I-4).
    TokenReuse,
    /// A renewal shortens the remaining TTL of the key (I-6).
    Shrinking,
    /// A renewal counts from its last acknowledgement (I-7).
    FromReply,
    /// One acknowledgement is enough for a renewal (I-8).
    MinorityRenews,
    /// Acknowledgements count after the old deadline (I-9).
    LateAcks,
    /// Acknowledgements count after the old deadline, also those that stored the key again.
    LateRepairs,
    /// A key stored again by a renewal counts. This is safe.
    RepairsCount,
    /// It counts even if the process is too young (I-12).
    YoungRepairs,
    /// A lease may be renewed after a check has observed its end (I-10).
    Revival,
    /// Requests in flight when a node restarts are sent again, and count (I-14).
    SilentResend,
    /// A release deletes any key.
    BlindRelease,
    /// The second attempt is a copy of the first's process, and draws the same token at any time (I-42).
    CopiedToken,
    /// A process is as old as its own clock says, whatever clients have noted (I-24).
    NoNote,
    /// A node that declares that it keeps its data has lost it after a restart (I-12).
    FalseMemory,
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

/// How far a calendar clock steps.
const FAR: Duration = Duration::from_secs(60);

/// The bounds of the model, in ticks. They limit what may happen.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) tick: Duration,
    pub(crate) ttl: u8,
    /// The drift allowance, as a share of the TTL.
    pub(crate) drift: f64,
    /// How far each node's clock runs ahead.
    pub(crate) nodes_ahead: u8,
    /// How many ticks each attempt's clock misses.
    pub(crate) attempts_behind: u8,
    /// How often a node restarts without its data.
    pub(crate) restarts: u8,
    /// How many nodes keep their data across restarts, and vote immediately.
    pub(crate) remembering: u8,
    /// How long after a restart the votes of the others do not count.
    pub(crate) quarantine: u8,
    /// How often the calendar clock of a restarted node steps far forwards.
    pub(crate) puts_forward: u8,
    pub(crate) meeting: Meeting,
    pub(crate) turns: Turns,
    /// How often a node's clock jumps past the expiry of its key.
    pub(crate) jumps: u8,
    pub(crate) jumps_at: JumpsAt,
    /// How often each lease is renewed.
    pub(crate) renewals: u8,
    pub(crate) pauses: Pauses,
    pub(crate) addresses: Addresses,
    pub(crate) detail: Detail,
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
    Told,
}

/// Which clocks may jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JumpsAt {
    Any,
    /// Those of nodes whose key is stored on more than a quorum.
    MoreThanAQuorum,
}

impl World {
    /// Clocks agree, no node loses data, and no lease is renewed.
    ///
    /// A tick is so long that the margin of [`Drift`] costs nothing: it falls between two ticks.
    pub(crate) fn calm() -> World {
        World {
            tick: Duration::from_secs(1),
            ttl: 2,
            drift: 0.0,
            nodes_ahead: 0,
            attempts_behind: 0,
            restarts: 0,
            remembering: 0,
            quarantine: 2,
            puts_forward: 0,
            meeting: Meeting::AtOnce,
            turns: Turns::Untold,
            jumps: 0,
            jumps_at: JumpsAt::MoreThanAQuorum,
            renewals: 0,
            pauses: Pauses::Never,
            addresses: Addresses::Right,
            detail: Detail::Reduced,
        }
    }

    /// The same with this many renewals.
    pub(crate) fn renewing(renewals: u8) -> World {
        World { renewals, ..World::calm() }
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
        World { ttl: 3, quarantine: 3, drift: 0.34, nodes_ahead, attempts_behind, ..World::calm() }
    }

    /// Without the reductions.
    pub(crate) fn literally(self) -> World {
        World { detail: Detail::Literal, ..self }
    }

    pub(super) fn is_literal(&self) -> bool {
        self.detail == Detail::Literal
    }

    pub(super) fn wall(&self, ticks: u8) -> Duration {
        self.tick * u32::from(ticks)
    }

    /// Returns an attempt's clock after this many ticks.
    pub(super) fn moment(&self, clock: u8) -> Moment {
        Moment::since_origin(self.wall(clock))
    }

    /// Returns until when a key requested at `sent` may be relied on.
    pub(super) fn deadline(&self, sent: u8) -> Moment {
        self.drift().deadline(self.moment(sent), self.wall(self.ttl))
    }

    /// Whether a process of this age is too young to vote.
    pub(super) fn is_quarantined(&self, age: u8) -> bool {
        self.is_quarantined_at(self.wall(age))
    }

    /// Returns the uptime that a process of this age reports.
    pub(super) fn uptime(&self, age: u8, forward: bool) -> Duration {
        self.wall(age) + if forward { FAR } else { Duration::ZERO }
    }

    pub(super) fn is_quarantined_at(&self, age: Duration) -> bool {
        clock::is_quarantined(self.wall(self.quarantine), self.drift(), age)
    }

    fn drift(&self) -> Drift {
        clock::drift(self.drift)
    }
}
