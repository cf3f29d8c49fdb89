//! When a lease is renewed, and when an unconfirmed renewal is tried again. Whether the lease is lost instead is decided by
//! `Keeper::apply_verdict` in the engine.

use std::time::Duration;

use crate::{Backoff, Moment, fraction};

/// Returns the default renewal interval: a third of the TTL, so that two renewals may fail before
/// the lease is lost.
#[must_use]
#[inline]
pub fn renewal_every(ttl: Duration) -> Duration {
    ttl / 3
}

/// Returns the pauses before an unconfirmed renewal is retried: from a hundredth of the TTL up to a
/// tenth.
#[must_use]
#[inline]
pub fn renewal_backoff(ttl: Duration) -> Backoff {
    Backoff::new(ttl / 100, ttl / 10)
}

/// The most by which a renewal is postponed in total, as a fraction of the TTL, however many are in
/// flight: 1 s of 30, where it is due after 10 s and the lease expires after 30.
const LONGEST_DELAY: u32 = 30;
/// The most by which it is postponed at a time, chosen at random so that renewals due together
/// spread out.
const DELAY: u32 = 100;

/// When the next renewal of a lease is due.
#[derive(Clone, Debug)]
pub struct RenewalSchedule {
    ttl: Duration,
    /// `None` if the holder renews.
    every: Option<Duration>,
    /// When the latest round that asked for a full TTL was sent.
    sent: Moment,
    due: Option<Moment>,
    /// Boxed, since few leases have one.
    retry: Option<Box<Backoff>>,
}

impl RenewalSchedule {
    /// Creates the schedule of a lease that was asked for at `sent`, with this renewal interval;
    /// `None` if its holder renews.
    #[must_use]
    #[inline]
    pub fn new(every: Option<Duration>, ttl: Duration, sent: Moment) -> RenewalSchedule {
        RenewalSchedule { ttl, every, sent, due: every.map(|every| sent + every), retry: None }
    }

    /// Moves the next renewal forward to `due`, for a lease that has less than its TTL.
    pub fn begin_at(&mut self, due: Moment) {
        self.due = self.due.map(|usual| usual.min(due));
    }

    /// Returns when the next renewal is due; never for a lease that its holder renews.
    #[must_use]
    #[inline]
    pub fn due(&self) -> Option<Moment> {
        self.due
    }

    /// Returns whether one is due at `now`.
    #[must_use]
    #[inline]
    pub fn is_due(&self, now: Moment) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    /// Returns whether the latest renewal was not confirmed.
    #[must_use]
    #[inline]
    pub fn is_failing(&self) -> bool {
        self.retry.is_some()
    }

    /// Records that a renewal was sent.
    #[inline]
    pub fn send(&mut self, sent: Moment) {
        debug_assert!(sent >= self.sent, "a renewal was sent before the one that precedes it");
        self.sent = sent;
    }

    /// Records its confirmation: the next one counts from when it was sent.
    #[inline]
    pub fn confirm(&mut self) {
        self.due = self.usually_due();
        self.retry = None;
    }

    /// Schedules a retry of an unconfirmed renewal, for a lease that has this much `left`: within a tenth of that, or a
    /// hundredth of the TTL if that is more, as a lease from an offer may begin with little. One that the holder asked for is not retried automatically.
    #[inline]
    pub fn fail(&mut self, now: Moment, left: Duration, random: u64) {
        let retry = self.retry.get_or_insert_with(|| Box::new(renewal_backoff(self.ttl)));
        let pause = retry.next(random).min((left / 10).max(self.ttl / 100));
        self.due = self.due.map(|_| now + pause);
    }

    /// Postpones a due renewal because many others are in flight, and returns whether it did. A
    /// retry is late enough already. `random` is uniform over all of `u64`.
    pub fn put_off(&mut self, now: Moment, random: impl FnOnce() -> u64) -> bool {
        let Some(usual) = self.usually_due().filter(|_| !self.is_failing()) else { return false };
        if self.due.is_some_and(|due| due < usual) {
            // It begins with less than its TTL.
            return false;
        }
        let latest = usual + self.ttl / LONGEST_DELAY;
        let puts_off = now < latest;
        if puts_off {
            let due = latest.min(now + fraction(self.ttl / DELAY, random()));
            debug_assert!(now <= due && due <= latest, "a renewal was postponed by too much");
            self.due = Some(due);
        }
        puts_off
    }

    /// Applies the interval of the next holder. An earlier due time stays.
    #[inline]
    pub fn handoff(&mut self, every: Option<Duration>) {
        self.every = every;
        let before = self.due;
        self.due = before.into_iter().chain(self.usually_due()).min();
        debug_assert!(before.is_none_or(|before| self.due <= Some(before)), "a handoff postponed a renewal");
    }

    fn usually_due(&self) -> Option<Moment> {
        self.every.map(|every| self.sent + every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn second(second: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(second))
    }

    fn automatic() -> RenewalSchedule {
        RenewalSchedule::new(Some(renewal_every(TTL)), TTL, second(100))
    }

    #[test]
    fn a_renewal_is_due_a_third_of_the_ttl_after_the_last_one_was_sent() {
        let mut schedule = automatic();
        assert!(!schedule.is_due(second(109)) && schedule.is_due(second(110)));
        schedule.send(second(111));
        schedule.confirm();
        assert_eq!(schedule.due(), Some(second(121)));
    }

    #[test]
    fn a_failed_renewal_is_retried_until_confirmed() {
        let mut schedule = automatic();
        schedule.send(second(110));
        for random in [0, u64::MAX] {
            schedule.fail(second(111), TTL, random);
            let due = schedule.due().unwrap();
            assert!(second(111) <= due && due <= second(112), "{due:?}");
        }
        for _ in 0..100 {
            schedule.fail(second(111), TTL, u64::MAX);
        }
        assert_eq!(schedule.due(), Some(second(114)), "no pause is longer than a tenth of the TTL");
        schedule.fail(second(111), Duration::from_secs(10), u64::MAX);
        assert_eq!(schedule.due(), Some(second(112)), "nor than a tenth of what is left");
        assert!(schedule.is_failing() && !schedule.put_off(second(111), || 0), "a retry is not postponed");
        schedule.send(second(112));
        schedule.confirm();
        assert!(!schedule.is_failing());
        assert_eq!(schedule.due(), Some(second(122)));
    }

    #[test]
    fn a_renewal_is_postponed_by_a_thirtieth_of_the_ttl_at_most() {
        let mut schedule = automatic();
        let mut now = second(110);
        while schedule.put_off(now, || u64::MAX / 2) {
            assert!(schedule.due().unwrap() > now);
            now = schedule.due().unwrap();
        }
        assert_eq!(now, second(111));
    }

    #[test]
    fn the_first_renewal_of_a_lease_from_an_offer_is_not_postponed() {
        let mut schedule = automatic();
        schedule.begin_at(second(102));
        assert!(schedule.is_due(second(102)) && !schedule.put_off(second(102), || 0));
    }

    #[test]
    fn a_lease_that_its_holder_renews_is_never_due() {
        let mut schedule = RenewalSchedule::new(None, TTL, second(100));
        schedule.fail(second(101), TTL, 0);
        schedule.confirm();
        assert!(schedule.due().is_none() && !schedule.put_off(second(200), || 0));
    }

    #[test]
    fn the_next_holder_waits_no_longer_than_the_one_before() {
        let mut schedule = automatic();
        schedule.handoff(Some(Duration::from_secs(15)));
        assert_eq!(schedule.due(), Some(second(110)));
        schedule.handoff(Some(Duration::from_secs(5)));
        assert_eq!(schedule.due(), Some(second(105)));
        schedule.confirm();
        assert_eq!(schedule.due(), Some(second(105)), "counted from the latest round");
    }
}
