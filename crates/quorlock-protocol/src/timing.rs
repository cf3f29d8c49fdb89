//! When a lease is renewed, when a program that must not outlive it is asked to end, and below which validity a warning is
//! due: for all kinds of node, from what a renewal leaves at least.
//!
//! ```text
//!  renewal sent                  next renewal due    warning   last notice          end of validity
//!  │── grant age ──│──────────── interval ──────│───────│─────────│────────────────────────│
//!                  left by a renewal            left when due     longest notice
//! ```
//!
//! A server that answers each renewal itself proves the lock from the moment at which it was asked. A cluster that ties
//! locks to a session proves no more than the session's last heartbeat, and keeps a lock no longer than the session. Both are
//! in one number, the *grant age*: by how much the time that a renewal confirms may begin before the renewal was sent, while
//! the servers are sound.

use std::time::Duration;

use super::Drift;

/// The parts into which the time that a renewal proves is divided: after one of them the next renewal is due, with two left,
/// so that renewals can be repeated in one of them, and the last is for a program to end.
const PARTS: u32 = 3;
/// The most of the validity left when a renewal is due that a program gets to end. The rest is for late renewals.
const MOST_NOTICE: f64 = 0.6;

/// The timing of leases with one TTL, on nodes of one kind.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use quorlock_protocol::{Drift, LeaseTiming};
///
/// let seconds = Duration::from_secs;
/// let redis = LeaseTiming::new(seconds(30), Drift::default(), Duration::ZERO);
/// assert_eq!(redis.renewal_every(), seconds(10));
/// // A session of 10 s, of which heartbeats prove what is up to 3 s old.
/// let session = LeaseTiming::new(seconds(30), Drift::default(), seconds(23));
/// assert!(session.left_by_renewal() < seconds(7) && session.renewal_every() < seconds(3));
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LeaseTiming {
    ttl: Duration,
    drift: Drift,
    grant_age: Duration,
}

impl LeaseTiming {
    /// Returns the timing of leases whose grants and renewals count from up to `grant_age` before they were asked for.
    #[must_use]
    #[inline]
    pub fn new(ttl: Duration, drift: Drift, grant_age: Duration) -> LeaseTiming {
        LeaseTiming { ttl, drift, grant_age }
    }

    /// Returns for how long a renewal proves the lock at least, from when it was sent and by the clocks of the nodes.
    #[must_use]
    #[inline]
    pub fn proven(&self) -> Duration {
        self.ttl.saturating_sub(self.grant_age)
    }

    /// Returns how much of the TTL the drift allowance takes.
    #[must_use]
    #[inline]
    pub fn drift_allowance(&self) -> Duration {
        self.ttl.saturating_sub(self.drift.validity(self.ttl))
    }

    /// Returns the validity that a renewal leaves at least, from when it was sent.
    #[must_use]
    #[inline]
    pub fn left_by_renewal(&self) -> Duration {
        self.drift.validity(self.ttl).saturating_sub(self.grant_age)
    }

    /// Returns whether the drift allowance leaves half of what a renewal proves, as [`Drift::MAX_FACTOR`] does of a TTL: enough
    /// for two renewals before the notice to the program.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.drift_allowance().saturating_sub(Drift::MARGIN) <= self.proven() / 2
    }

    /// Returns the default interval of renewals: a third of what a renewal proves, so that two may fail before the lease is
    /// lost.
    #[must_use]
    #[inline]
    pub fn renewal_every(&self) -> Duration {
        self.proven() / PARTS
    }

    /// Limits an interval to half of what a renewal proves.
    #[must_use]
    #[inline]
    pub fn at_most(&self, every: Duration) -> Duration {
        every.min(self.proven() / 2)
    }

    /// Returns the validity that is left at least when a renewal is due, with this interval. With less, one is due sooner.
    #[must_use]
    #[inline]
    pub fn left_when_due(&self, every: Duration) -> Duration {
        self.left_by_renewal().saturating_sub(every)
    }

    /// Returns how long before the end of validity a program may be asked to end, at the earliest: a third of what a renewal
    /// proves, and less if the drift allowance is large. A renewal that is merely late must not end it.
    #[must_use]
    #[inline]
    pub fn longest_notice(&self) -> Duration {
        self.renewal_every().min(self.left_when_due(self.renewal_every()).mul_f64(MOST_NOTICE))
    }

    /// Returns the validity below which renewals that only confirm what is known already are worth a warning: half-way from
    /// where one is due to the longest notice.
    #[must_use]
    #[inline]
    pub fn warned_below(&self, every: Duration) -> Duration {
        let notice = self.longest_notice();
        notice + self.left_when_due(every).saturating_sub(notice) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn timings() -> impl Iterator<Item = LeaseTiming> {
        let ttls = [20, 300, 3000, 5000, 10_000, 30_000, 150_000].map(Duration::from_millis);
        let drifts = [0.0, 0.01, 0.2, 0.5].map(|factor| Drift::of(factor).unwrap());
        let ages = [0.0, 0.1, 0.3, 0.5, 0.8, 1.0];
        ttls.into_iter().flat_map(move |ttl| {
            drifts.into_iter().flat_map(move |drift| {
                ages.into_iter().map(move |age| LeaseTiming::new(ttl, drift, ttl.mul_f64(age)))
            })
        })
    }

    #[test]
    fn with_room_a_renewal_is_due_well_before_the_program_is_asked_to_end() {
        let mut refused = 0;
        for timing in timings() {
            if !timing.has_room() {
                refused += 1;
                continue;
            }
            for every in [timing.renewal_every(), timing.at_most(Duration::MAX)] {
                let due = timing.left_when_due(timing.renewal_every());
                assert!(timing.longest_notice() <= due.mul_f64(MOST_NOTICE), "{timing:?}");
                assert!(timing.left_when_due(every) <= timing.left_by_renewal(), "{timing:?}");
                assert!(timing.warned_below(timing.renewal_every()) <= due, "{timing:?}");
            }
            let parts = [timing.left_by_renewal(), timing.left_when_due(timing.renewal_every())];
            assert!(
                parts.into_iter().all(|left| left > Duration::ZERO) || timing.proven() < SECOND / 10,
                "{timing:?}"
            );
        }
        assert!(refused > 10, "{refused} were refused");
    }

    #[test]
    fn a_server_that_answers_each_renewal_leaves_two_thirds_when_the_next_is_due() {
        let redis = LeaseTiming::new(30 * SECOND, Drift::default(), Duration::ZERO);
        assert_eq!((redis.renewal_every(), redis.longest_notice()), (10 * SECOND, 10 * SECOND));
        assert_eq!(redis.left_when_due(redis.renewal_every()), Duration::from_millis(19_698));
        assert_eq!(redis.at_most(20 * SECOND), 15 * SECOND);
    }

    #[test]
    fn a_drift_that_takes_more_than_half_of_what_is_proven_leaves_no_room() {
        let session = |ttl| LeaseTiming::new(ttl * SECOND, Drift::default(), (ttl - 4) * SECOND);
        assert!(session(4).has_room() && session(200).has_room());
        assert!(!session(201).has_room() && !session(3600).has_room());
        let most = Drift::of(Drift::MAX_FACTOR).unwrap();
        assert!(LeaseTiming::new(30 * SECOND, most, Duration::ZERO).has_room(), "as it was accepted");
    }
}
