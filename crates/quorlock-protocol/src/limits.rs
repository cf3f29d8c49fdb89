use std::time::Duration;

/// The round trip to a node and how much it varies, estimated as TCP does (RFC 6298).
///
/// Each answer is a sample, so it is kept as numbers that cost little to compute with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundTrip {
    smoothed_nanos: u64,
    deviation_nanos: u64,
}

impl RoundTrip {
    /// After the first sample, which may be half as long again the next time.
    #[must_use]
    #[inline]
    pub fn first(sample: Duration) -> RoundTrip {
        let sample = nanos(sample);
        RoundTrip { smoothed_nanos: sample, deviation_nanos: sample / 2 }
    }

    /// After one more sample: an eighth of the way to it, and a quarter to how far it was off.
    #[must_use]
    pub fn then(self, sample: Duration) -> RoundTrip {
        let sample = nanos(sample);
        let off = self.smoothed_nanos.abs_diff(sample);
        RoundTrip {
            smoothed_nanos: part(self.smoothed_nanos, sample, 8),
            deviation_nanos: part(self.deviation_nanos, off, 4),
        }
    }

    /// As it was stored: the smoothed round trip and the deviation.
    #[must_use]
    #[inline]
    pub fn of_nanos([smoothed_nanos, deviation_nanos]: [u64; 2]) -> RoundTrip {
        RoundTrip { smoothed_nanos, deviation_nanos }
    }

    /// To be stored.
    #[must_use]
    #[inline]
    pub fn nanos(self) -> [u64; 2] {
        [self.smoothed_nanos, self.deviation_nanos]
    }

    /// The smoothed round trip.
    #[must_use]
    #[inline]
    pub fn smoothed(self) -> Duration {
        Duration::from_nanos(self.smoothed_nanos)
    }

    /// By how much it varies.
    #[must_use]
    #[inline]
    pub fn deviation(self) -> Duration {
        Duration::from_nanos(self.deviation_nanos)
    }

    /// Four round trips that all are late. A vote takes one of them, a refusal two.
    #[must_use]
    #[inline]
    pub fn several(self) -> Duration {
        Duration::from_nanos(self.smoothed_nanos.saturating_add(self.deviation_nanos).saturating_mul(4))
    }
}

/// How many requests may be on their way to a node simultaneously, where `near` are enough for one in the same
/// datacenter: a node that is far answers as many a second, and has more on their way meanwhile.
#[must_use]
pub fn most_in_flight(near: u64, round_trip: Duration) -> u64 {
    near.saturating_mul((nanos(round_trip) / nanos(NEAR)).clamp(1, FARTHEST))
}

/// A round trip up to which a node is near.
const NEAR: Duration = Duration::from_millis(25);
/// No node may have more than this many times as many: a node that hangs carries all of them out when it goes on.
const FARTHEST: u64 = 16;

/// An nth of the way from one to the other.
fn part(from: u64, to: u64, nth: u64) -> u64 {
    (from - from / nth).saturating_add(to / nth)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
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
#[inline]
pub fn node_timeout(set: Option<Duration>, measured: Option<RoundTrip>, ttl: Duration) -> Duration {
    let by_itself = || LEAST_LIMIT.max(measured.map_or(Duration::ZERO, RoundTrip::several));
    set.unwrap_or_else(by_itself).min(ttl / 4)
}

/// After how long without its answer a node is overdue, where something else can be done than to wait for
/// it: some of its own round trips, but at `least` this.
#[must_use]
#[inline]
pub fn overdue_after(measured: Option<RoundTrip>, least: Duration, limit: Duration) -> Duration {
    measured.map_or(least, |trip| trip.several().max(least)).min(limit)
}
