//! The restart guard: a server that may have lost keys does not vote until every lock that it can have granted has
//! expired.
//!
//! It is one idea in six steps, over several files:
//!
//! 1. *How old is the process?* Its handshake reads `run_id`, uptime and event loop turns (`redis/process.rs` of
//!    `quorlock`), and what other clients have noted of its start (`redis/start.rs`); [`believed`] combines them (I-24).
//! 2. *Since when is it master?* A promotion loses keys as a restart does. The first client that sees the promoted
//!    master leaves a note, which dates it for all others (`redis/promotion.rs`, I-17).
//! 3. *[`age`]* takes the smallest of what is known, also from the last reply of the process before. The connection
//!    has it in its `Identity`, and from then on it grows by the client's own clock (`redis/handshake.rs`).
//! 4. *How old must it be?* [`Quarantine`] is as long as the longest TTL of any client, plus drift (I-13).
//! 5. *Which TTL is the longest?* Clients note theirs on the nodes. If enough nodes report a larger one than our own,
//!    the quarantine grows (`node/max_ttls.rs`, I-37).
//! 6. *Does the vote count?* `Round::read` compares age and quarantine, where a grant is to count, at the moment at which
//!    the round was sent. A vote that is too young is reported as quarantined, and is no vote (`quorum/round/votes.rs`, I-12).
//!
//! Stores of other kinds do steps 1 to 3 in their own way and report the result in the same `Identity`; one that
//! remembers across a restart is old, and so is a Redis that does by its operator's word (`?forgets=never`, I-53).

use std::time::Duration;

use super::{Drift, Moment};

/// How long a node must have been up before its vote counts.
///
/// A node that restarted without its keys would grant a lock that another client still holds. The
/// Redis documentation asks for a delayed restart: keep the node down for the longest TTL. Since
/// that is rarely done by hand, every client does it here: it does not count the votes of a process
/// that is too young (rule I-12).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Quarantine {
    length: Duration,
}

impl Quarantine {
    /// Returns a quarantine after which every key that the node may have lost has expired, provided
    /// that no client of the deployment uses a TTL above `max_ttl` (rule I-13).
    #[must_use]
    #[inline]
    pub fn new(max_ttl: Duration, drift: Drift) -> Quarantine {
        Quarantine { length: drift.stretch(max_ttl) }
    }

    /// Returns no quarantine: for servers that the caller started itself, or that cannot lose keys.
    #[must_use]
    #[inline]
    pub const fn none() -> Quarantine {
        Quarantine { length: Duration::ZERO }
    }

    /// Returns its length.
    #[must_use]
    #[inline]
    pub fn length(self) -> Duration {
        self.length
    }

    /// Returns how much longer a process of this age has to wait; zero when its vote counts.
    #[must_use]
    #[inline]
    pub fn left(self, age: Duration) -> Duration {
        self.length.saturating_sub(age)
    }
}

/// How long an answer of Sentinels is valid: votes are sent to a master for this long after a
/// majority of them named it (rule T-1).
pub const SENTINELS_WORD: Duration = Duration::from_secs(3);

/// The time within which Sentinels notify each other of a failover. They do so every two seconds,
/// and immediately after one.
const FAILOVER_GOSSIP: Duration = Duration::from_secs(5);

/// How long the predecessor of a promoted master may still be asked for votes. The new master's
/// time counts from then on (rule T-2).
pub const SUCCESSION: Duration = SENTINELS_WORD.saturating_add(FAILOVER_GOSSIP);

/// The history of a server process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a master has been a replica or it has not")]
pub enum Past {
    /// A master since its start.
    Master,
    /// A replica until its promotion. It may lack what its master granted, so its age counts from
    /// the promotion (rule I-17).
    Promoted {
        /// How long it has been known as master: a lower bound.
        master_since: Duration,
    },
}

/// Returns how long a server process has been running, as far as that is credible (rule I-24).
///
/// `uptime` is reported by the server from its wall clock, and is too large if that was set forward
/// after the start. It is `None` if that was set back to before the start: then only clients know. `turns` is the number of its event loop iterations: ten per second by default
/// and at least one, so a process with fewer than half a turn per second has not been running for
/// that long. `known` is for how long clients have known it. A process that is
/// not credible and that no client has recorded has age zero.
#[must_use]
pub fn believed(uptime: Option<Duration>, turns: Option<u64>, known: Option<Duration>) -> Duration {
    match (uptime, known, turns) {
        (Some(uptime), Some(known), _) => uptime.min(known),
        (None, known, _) => known.unwrap_or_default(),
        (Some(uptime), None, Some(turns)) if turns < uptime.as_secs() / 2 => Duration::ZERO,
        (Some(uptime), None, _) => uptime,
    }
}

/// Returns the least age of a server process as a master, from what is known at `now`.
///
/// `uptime` is reported in whole seconds of a wall clock, up to one second too much, so one second
/// is subtracted. `last_seen` is when another process last answered at this address: the new one
/// started after that, so a clock that was set forward cannot make it look old. A promotion counts
/// like a restart, because both may have lost keys.
#[must_use]
pub fn age(uptime: Duration, past: Past, last_seen: Option<Moment>, now: Moment) -> Duration {
    let mut age = uptime.saturating_sub(Duration::from_secs(1));
    if let Past::Promoted { master_since } = past {
        age = age.min(master_since);
    }
    match last_seen {
        Some(seen) => age.min(now.since(seen)),
        None => age,
    }
}
