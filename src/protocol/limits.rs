use std::time::Duration;

/// The round trip to a node and how much it varies, estimated as TCP does (RFC 6298).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundTrip {
    smoothed: Duration,
    deviation: Duration,
}

impl RoundTrip {
    /// After the first sample, which may be half as long again the next time.
    #[must_use]
    pub fn first(sample: Duration) -> RoundTrip {
        RoundTrip { smoothed: sample, deviation: sample / 2 }
    }

    /// After one more sample: an eighth of the way to it, and a quarter to how far it was off.
    #[must_use]
    pub fn then(self, sample: Duration) -> RoundTrip {
        let off = self.smoothed.abs_diff(sample);
        RoundTrip { smoothed: part(self.smoothed, sample, 8), deviation: part(self.deviation, off, 4) }
    }

    /// As it was stored.
    #[must_use]
    pub fn of(smoothed: Duration, deviation: Duration) -> RoundTrip {
        RoundTrip { smoothed, deviation }
    }

    /// The smoothed round trip.
    #[must_use]
    pub fn smoothed(self) -> Duration {
        self.smoothed
    }

    /// By how much it varies.
    #[must_use]
    pub fn deviation(self) -> Duration {
        self.deviation
    }

    /// Four round trips that all are late. A vote takes one of them, a refusal two.
    #[must_use]
    pub fn several(self) -> Duration {
        self.smoothed.saturating_add(self.deviation).saturating_mul(4)
    }
}

/// An nth of the way from one to the other.
fn part(from: Duration, to: Duration, nth: u32) -> Duration {
    from.saturating_sub(from / nth).saturating_add(to / nth)
}

/// The least time that a node has for its answer, unless a number is set: as long as a connection may
/// say nothing before it counts as stalled. A machine that has ten times too much to do lets a program
/// wait for tens of milliseconds, at each of the turns that an answer takes.
const LEAST_LIMIT: Duration = Duration::from_secs(1);

/// How long one node may take to answer before the round goes on without it: the number that was `set`,
/// or else a second, and more for a node whose round trip was `measured` to be long. At most a quarter of
/// the TTL.
///
/// The verdict does not wait for it while a quorum answers: it says how soon a round is given up in which
/// none does. So it is generous: too short, and a free lock is not had; too long, and an outage is told
/// late. See `docs/adr/0022-time-limits.md`.
#[must_use]
pub fn node_limit(set: Option<Duration>, measured: Option<RoundTrip>, ttl: Duration) -> Duration {
    let by_itself = || LEAST_LIMIT.max(measured.map_or(Duration::ZERO, RoundTrip::several));
    set.unwrap_or_else(by_itself).min(ttl / 4)
}

/// After how long without its answer a node is overdue, where something else can be done than to wait for
/// it: some of its own round trips, but at `least` this.
#[must_use]
pub fn overdue_after(measured: Option<RoundTrip>, least: Duration, limit: Duration) -> Duration {
    measured.map_or(least, |trip| trip.several().max(least)).min(limit)
}
