//! What a run of the model may meet, and by which rules the lock is held in it.

use std::time::Duration;

use quorlock_protocol::{Drift, Moment};

use crate::clock;
use crate::common::Detail;

/// The rules: those of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    /// As the library does it.
    Quorlock,
    /// One vote less than a quorum is enough.
    SmallQuorum,
    /// Validity counts from when the votes are in (rule I-1).
    LateStart,
    /// One process counts for each of the addresses that lead to it (I-2).
    TwinsCount,
    /// The second attempt has the token of the first, and begins when that has given up (I-4).
    TokenReuse,
    /// A renewal asks for less time than the key has left, and gets it (I-6).
    Shrinking,
    /// A renewal counts from its last acknowledgement (I-7).
    FromReply,
    /// One acknowledgement is enough for a renewal (I-8).
    MinorityRenews,
    /// Acknowledgements count after the old deadline (I-9).
    LateAcks,
    /// The same, and a key that a renewal has stored anew counts.
    LateRepairs,
    /// A key that a renewal has stored anew counts. This one is safe.
    RepairsCount,
    /// It counts even where the process is too young (I-12).
    YoungRepairs,
    /// Whoever saw the lease end is not believed (I-10).
    Revival,
    /// What is on its way when a node restarts is sent again, and counts (I-14).
    SilentResend,
    /// A release deletes any key.
    BlindRelease,
    /// The second attempt is a copy of the first's process, and draws the same token at any time (I-42).
    CopiedToken,
    /// A process is as old as its own clock says, whatever clients have noted (I-24).
    NoNote,
    /// A node that says that it remembers has forgotten everything after a restart (I-12).
    FalseMemory,
}

/// Where the addresses of the nodes lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Addresses {
    /// Each to a process of its own, the same for everybody.
    Right,
    /// The first attempt is led to node 0 by the address of node 1 as well.
    Astray,
    /// Behind one address are two servers: the last node but one answers all attempts but the second, and
    /// the last node that one.
    Balanced,
}

/// How far a calendar clock is put forward.
const FAR: Duration = Duration::from_secs(60);

/// The bounds of a model, in ticks. They say what may happen, not what does.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// How long a tick is.
    pub(crate) tick: Duration,
    /// How long a key lives.
    pub(crate) ttl: u8,
    /// The allowance for clocks that run at different rates.
    pub(crate) drift: f64,
    /// How far each node's clock runs ahead.
    pub(crate) nodes_ahead: u8,
    /// How many ticks each attempt's clock misses.
    pub(crate) attempts_behind: u8,
    /// How often a node restarts and has forgotten everything.
    pub(crate) restarts: u8,
    /// How many of the nodes remember everything over a restart, and vote at once.
    pub(crate) remembering: u8,
    /// For how long after a restart the votes of the others do not count.
    pub(crate) quarantine: u8,
    /// How often the calendar clock of a node that has just restarted is put far forward.
    pub(crate) puts_forward: u8,
    /// When a process that has restarted meets its first client.
    pub(crate) meeting: Meeting,
    /// Whether nodes tell how often their event loop has turned.
    pub(crate) turns: Turns,
    /// How often a node's clock jumps so far that its key expires.
    pub(crate) jumps: u8,
    /// Where it may do so.
    pub(crate) jumps_at: JumpsAt,
    /// How often each lease is renewed.
    pub(crate) renewals: u8,
    /// Whether an attempt may pause between reading its clock and counting a renewal.
    pub(crate) pauses: Pauses,
    /// Where the addresses lead.
    pub(crate) addresses: Addresses,
    /// What has a step of its own.
    pub(crate) detail: Detail,
}

/// Whether an attempt may pause between reading its clock and counting a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pauses {
    /// It counts at once.
    Never,
    /// It may pause, while somebody else looks whether the lease still runs.
    Possible,
}

/// When a process that has restarted meets its first client, which notes since when it must run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meeting {
    /// At once: before its clock is put forward.
    AtOnce,
    /// When an attempt asks it.
    WhenAsked,
}

/// Whether nodes tell how often their event loop has turned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turns {
    /// Older servers do not.
    Untold,
    /// It turns once in each tick.
    Told,
}

/// Which clocks may jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JumpsAt {
    /// Any.
    Any,
    /// That of a node whose key is stored at more than a quorum of nodes.
    MoreThanAQuorum,
}

impl World {
    /// Clocks agree, no node forgets, and nothing is renewed.
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

    /// The same with so many renewals.
    pub(crate) fn renewing(renewals: u8) -> World {
        World { renewals, ..World::calm() }
    }

    /// Nodes restart and forget, so often, and leases are renewed.
    pub(crate) fn forgetful(restarts: u8, renewals: u8) -> World {
        World { restarts, ..World::renewing(renewals) }
    }

    /// The same, and so many of the nodes remember.
    pub(crate) fn remembering(nodes: u8, restarts: u8, renewals: u8) -> World {
        World { remembering: nodes, ..World::forgetful(restarts, renewals) }
    }

    /// A node restarts, forgets, and has its calendar clock put forward.
    pub(crate) fn put_forward() -> World {
        World { puts_forward: 1, ..World::forgetful(1, 0) }
    }

    /// So many clocks jump at nodes whose key is stored at more than a quorum. Nothing is renewed: a key that a
    /// renewal did not reach expires sooner than its lease, and keeps no other client out to the end.
    pub(crate) fn jumping(jumps: u8) -> World {
        World { jumps, ..World::calm() }
    }

    /// Clocks that run at different rates, within what the allowance covers: it is a tick of each TTL.
    pub(crate) fn drifting(nodes_ahead: u8, attempts_behind: u8) -> World {
        World { ttl: 3, quarantine: 3, drift: 0.34, nodes_ahead, attempts_behind, ..World::calm() }
    }

    /// Without the model's shortcuts.
    pub(crate) fn literally(self) -> World {
        World { detail: Detail::Literal, ..self }
    }

    pub(super) fn is_literal(&self) -> bool {
        self.detail == Detail::Literal
    }

    pub(super) fn wall(&self, ticks: u8) -> Duration {
        self.tick * u32::from(ticks)
    }

    /// What an attempt's clock says after so many ticks.
    pub(super) fn moment(&self, clock: u8) -> Moment {
        Moment::since_origin(self.wall(clock))
    }

    /// Until when a key may be trusted that was asked for at `sent`.
    pub(super) fn deadline(&self, sent: u8) -> Moment {
        self.drift().deadline(self.moment(sent), self.wall(self.ttl))
    }

    /// Whether a process of this age is too young to vote.
    pub(super) fn is_quarantined(&self, age: u8) -> bool {
        self.is_quarantined_at(self.wall(age))
    }

    /// For how long a process of this age says that it has been running.
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
