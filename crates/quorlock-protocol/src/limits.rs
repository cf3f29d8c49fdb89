//! How long to wait for a node: round trip times, timeouts, and requests in flight.

use std::time::Duration;

/// The round trip time to a node and its deviation, estimated as in TCP (RFC 6298).
///
/// Every answer is a sample, so it is stored as integers that are cheap to update.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundTrip {
    smoothed_nanos: u64,
    deviation_nanos: u64,
}

impl RoundTrip {
    /// Starts with a first sample; the deviation is half of it.
    #[must_use]
    #[inline]
    pub fn first(sample: Duration) -> RoundTrip {
        let sample = nanos(sample);
        RoundTrip { smoothed_nanos: sample, deviation_nanos: sample / 2 }
    }

    /// Adds a sample: moves an eighth of the way to it, and the deviation by a quarter.
    #[must_use]
    pub fn then(self, sample: Duration) -> RoundTrip {
        let sample = nanos(sample);
        let off = self.smoothed_nanos.abs_diff(sample);
        RoundTrip {
            smoothed_nanos: part(self.smoothed_nanos, sample, 8),
            deviation_nanos: part(self.deviation_nanos, off, 4),
        }
    }

    /// Restores a stored estimate: the smoothed round trip time and the deviation.
    #[must_use]
    #[inline]
    pub fn of_nanos([smoothed_nanos, deviation_nanos]: [u64; 2]) -> RoundTrip {
        RoundTrip { smoothed_nanos, deviation_nanos }
    }

    /// Returns the estimate for storage.
    #[must_use]
    #[inline]
    pub fn nanos(self) -> [u64; 2] {
        [self.smoothed_nanos, self.deviation_nanos]
    }

    /// Returns the smoothed round trip time.
    #[must_use]
    #[inline]
    pub fn smoothed(self) -> Duration {
        Duration::from_nanos(self.smoothed_nanos)
    }

    /// Returns the deviation.
    #[must_use]
    #[inline]
    pub fn deviation(self) -> Duration {
        Duration::from_nanos(self.deviation_nanos)
    }

    /// Returns the time for four slow round trips. A vote takes one of them, a refusal two.
    #[must_use]
    #[inline]
    pub fn several(self) -> Duration {
        Duration::from_nanos(self.smoothed_nanos.saturating_add(self.deviation_nanos).saturating_mul(4))
    }
}

/// Returns how many requests may be in flight to a node, where `near` are enough in the same
/// datacenter: a distant node answers as many per second, with more of them in flight.
#[must_use]
pub fn most_in_flight(near: u64, round_trip: Duration) -> u64 {
    near.saturating_mul((nanos(round_trip) / nanos(NEAR)).clamp(1, FARTHEST))
}

/// Up to this round trip time a node is near.
const NEAR: Duration = Duration::from_millis(25);
/// The largest multiple: a node that hung executes all of them when it resumes.
const FARTHEST: u64 = 16;

/// Moves an `nth` of the way from one value to the other.
fn part(from: u64, to: u64, nth: u64) -> u64 {
    (from - from / nth).saturating_add(to / nth)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The shortest default timeout of a node: as long as a connection may be silent before it counts
/// as stalled. A machine with ten times its capacity of work delays a program by tens of
/// milliseconds at each step of an answer.
const LEAST_LIMIT: Duration = Duration::from_secs(1);

/// Returns how long a node may take to answer before the round continues without it: the number
/// that was `set`, or else a second, and more for a node with a long `measured` round trip time. At
/// most a quarter of the TTL.
///
/// While a quorum answers, the verdict does not depend on it: it determines how soon a round
/// without a quorum is given up. So it is generous: too short, and a free lock is not acquired; too
/// long, and an outage is reported late. See `docs/adr/0007-leases-and-timeouts.md`.
#[must_use]
#[inline]
pub fn node_timeout(set: Option<Duration>, measured: Option<RoundTrip>, ttl: Duration) -> Duration {
    let by_itself = || LEAST_LIMIT.max(measured.map_or(Duration::ZERO, RoundTrip::several));
    set.unwrap_or_else(by_itself).min(ttl / 4)
}

/// Returns when a node is overdue, if there is an alternative to waiting for it: after a few of its
/// round trips, but at `least` this long.
#[must_use]
#[inline]
pub fn overdue_after(measured: Option<RoundTrip>, least: Duration, limit: Duration) -> Duration {
    measured.map_or(least, |trip| trip.several().max(least)).min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_estimated_as_tcp_does() {
        let ms = Duration::from_millis;
        let first = RoundTrip::first(ms(80));
        assert_eq!(
            (first.smoothed(), first.deviation()),
            (ms(80), ms(40)),
            "the first sample counts in full"
        );
        let then = first.then(ms(160));
        assert_eq!((then.smoothed(), then.deviation()), (ms(90), ms(50)));
        let steady = (0..100).fold(first, |trip, _| trip.then(ms(80)));
        assert_eq!(steady.several().as_millis(), 320, "four round trips if there is no deviation");
    }

    #[test]
    fn a_node_timeout_is_a_second_four_round_trips_or_set() {
        let (ms, ttl) = (Duration::from_millis, Duration::from_secs(30));
        let far = Some(RoundTrip::first(ms(300)));
        assert_eq!(node_timeout(None, None, ttl), ms(1_000));
        assert_eq!(node_timeout(None, Some(RoundTrip::first(ms(1))), ttl), ms(1_000));
        assert_eq!(node_timeout(None, far, ttl), ms(1_800));
        assert_eq!(node_timeout(None, far, ms(2_000)), ms(500), "a quarter of the TTL");
        assert_eq!(node_timeout(Some(ms(70)), far, ttl), ms(70), "a configured timeout is used as it is");
        assert_eq!(overdue_after(far, ms(25), ms(3_000)), ms(1_800));
        assert_eq!(overdue_after(far, ms(25), ms(70)), ms(70), "never later than the timeout");
        assert_eq!(overdue_after(None, ms(25), ms(1_000)), ms(25));
    }

    #[test]
    fn a_round_trip_up_to_a_tenth_of_the_ttl_is_in_time() {
        let ttl = Duration::from_secs(30);
        for tenths in 1..=100 {
            let trip = ttl / 1_000 * tenths;
            assert!(node_timeout(None, Some(RoundTrip::first(trip)), ttl) >= trip * 2, "{trip:?}");
        }
    }
}
