use std::time::Duration;

use super::{Drift, Moment};

/// For how long a node must have been up before its vote counts.
///
/// A node that restarted without its keys would grant a lock that somebody still holds. The
/// Redis documentation asks for a delayed restart: keep the node down for the longest TTL. Nobody
/// does that by hand, so every client does it here: it reads the age of the server process on the
/// very connection that carries its votes (rules I-12 and I-14), and does not count votes of a
/// process that is too young.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Quarantine {
    length: Duration,
}

impl Quarantine {
    /// Long enough that every key which the node may have forgotten has run out, given that no
    /// client of the deployment asks for more than `max_ttl` (rule I-13).
    #[must_use]
    #[inline]
    pub fn new(max_ttl: Duration, drift: Drift) -> Quarantine {
        Quarantine { length: drift.stretch(max_ttl) }
    }

    /// No quarantine: for servers that the caller started itself, or that cannot forget.
    #[must_use]
    #[inline]
    pub fn none() -> Quarantine {
        Quarantine { length: Duration::ZERO }
    }

    /// How long it lasts.
    #[must_use]
    #[inline]
    pub fn length(self) -> Duration {
        self.length
    }

    /// How much longer a process of this age has to wait; zero when its vote counts.
    #[must_use]
    #[inline]
    pub fn left(self, age: Duration) -> Duration {
        self.length.saturating_sub(age)
    }
}

/// For how long the word of Sentinels is good: no vote is sent to a master later than that after most
/// of them were asked and named it (rule T-1).
pub const SENTINELS_WORD: Duration = Duration::from_secs(3);

/// Within which Sentinels must tell each other of a failover. They do so every two seconds, and at once
/// after one.
const TOLD: Duration = Duration::from_secs(5);

/// How long the predecessor of a master that Sentinels promoted may still be asked for votes. The reign
/// counts from then on (rule T-2).
pub const SUCCESSION: Duration = SENTINELS_WORD.saturating_add(TOLD);

/// What a server process has been.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a master has been a replica or it has not")]
pub enum Past {
    /// A master since its start.
    Master,
    /// A replica, until it was promoted. It may lack what its master had granted, and so it is no
    /// older than its reign (rule I-17).
    Promoted {
        /// For how long it has been known as the master that it is. It reigns for at least as long.
        reign: Duration,
    },
}

/// For how long a server process has been running, as far as it can be believed (rule I-24).
///
/// `uptime` is what it says of itself, by its calendar clock: where that was put forward after the start, it
/// says too much. `turns` is how often its event loop has turned, which it does once a second at the very
/// least, and ten times unless set: one that has not turned half as often has not been running for so long.
/// `known` is for how long clients have known it, by their own clocks. A process that nobody has noted
/// and that cannot be believed is as young as can be.
#[must_use]
pub fn believed(uptime: Duration, turns: Option<u64>, known: Option<Duration>) -> Duration {
    match (known, turns) {
        (Some(known), _) => uptime.min(known),
        (None, Some(turns)) if turns < uptime.as_secs() / 2 => Duration::ZERO,
        (None, _) => uptime,
    }
}

/// The least age of a server process as a master, from what is known of it at `now`.
///
/// `uptime` is what it says of itself: whole seconds of a wall clock, up to a second too long, so
/// one second is taken off. `last_seen` is when another process last answered at this address:
/// the new one started after that, whatever its wall clock says, so a clock that was put forward
/// cannot make it look old. A promotion makes another process of it, for all that it may have
/// forgotten.
#[must_use]
pub fn age(uptime: Duration, past: Past, last_seen: Option<Moment>, now: Moment) -> Duration {
    let mut age = uptime.saturating_sub(Duration::from_secs(1));
    if let Past::Promoted { reign } = past {
        age = age.min(reign);
    }
    match last_seen {
        Some(seen) => age.min(now.since(seen)),
        None => age,
    }
}
