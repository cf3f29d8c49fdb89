//! When the next renewal of a lease is due, by its [`LeaseTiming`], and when an unconfirmed one is tried again. Whether the
//! lease is lost instead is decided by `Keep::count`.

use std::mem;
use std::time::Duration;

use crate::{Backoff, LeaseTiming, Moment, fraction};

/// Returns the pauses before an unconfirmed renewal is retried, for a lease that has this much `left`: from a hundredth of
/// that up to a tenth.
#[must_use]
#[inline]
pub fn renewal_backoff(left: Duration) -> Backoff {
    Backoff::new(left / 100, left / 10)
}

/// The pauses of a series of retries. Each is limited by a tenth of what is left then, and is random below that, since many
/// leases may fail together.
///
/// They follow from what is left at the first failure, since a lease from an offer begins with little of its TTL.
#[derive(Clone, Debug)]
pub(crate) struct RetryPauses {
    backoff: Backoff,
    /// The limit does not fall below that, so that the retries become no more frequent shortly before the end.
    least: Duration,
}

impl RetryPauses {
    /// Begins a series, with this much left.
    pub(crate) fn new(left: Duration) -> RetryPauses {
        RetryPauses { backoff: renewal_backoff(left), least: left / 30 }
    }

    /// Returns the next pause, with this much left.
    pub(crate) fn next(&mut self, left: Duration, random: u64) -> Duration {
        self.backoff.next_within(self.least.max(left / 10), random)
    }
}

/// The most by which a renewal is postponed in total, as a fraction of the TTL, however many are in
/// flight: 1 s of 30, where it is due after 10 s and the lease expires after 30.
const LONGEST_DELAY: u32 = 30;
/// The most by which it is postponed at a time, chosen at random so that renewals due together
/// spread out.
const DELAY: u32 = 100;

/// The least time from one renewal to the next after many hints, as a fraction of the TTL: 1 s of 30. A server that pushes
/// each key soon after it was read makes a lease cost ten times as much, and not more.
const HINTED: u32 = 30;

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
    retry: Option<Box<Retries>>,
}

/// The retries of a renewal that was not confirmed, or that has proven too little.
#[derive(Clone, Debug)]
struct Retries {
    pauses: RetryPauses,
    /// Whether a warning was given.
    reported: bool,
}

impl RenewalSchedule {
    /// Creates the schedule of a lease that was asked for at `sent`, with this renewal interval;
    /// `None` if its holder renews.
    #[must_use]
    #[inline]
    pub fn new(every: Option<Duration>, ttl: Duration, sent: Moment) -> RenewalSchedule {
        RenewalSchedule { ttl, every, sent, due: every.map(|every| sent + every), retry: None }
    }

    /// Moves the next renewal forward to where `deadline` leaves no more than the timing wants when one is due: for a grant
    /// that counts from long before it was asked for.
    #[inline]
    pub fn begin_with(&mut self, timing: &LeaseTiming, deadline: Moment) {
        if let Some(every) = self.every {
            // The default is often enough, also for a lease that is renewed more often.
            let every = every.max(timing.renewal_every());
            self.begin_at(deadline.back(timing.left_when_due(every)));
        }
    }

    /// Moves the next renewal forward to `due`, for a lease that has less than its TTL.
    pub fn begin_at(&mut self, due: Moment) {
        self.due = self.due.map(|usual| usual.min(due));
    }

    /// Moves the next renewal forward to `now`, after `many` hints to a thirtieth of the TTL after the last one: a node says
    /// that the key has changed (rule I-52). Returns whether it was due later. A lease that its holder renews stays as it is.
    pub fn begin_for_hint(&mut self, now: Moment, many: bool) -> bool {
        let before = self.due;
        self.begin_at(if many { now.max(self.sent + self.ttl / HINTED) } else { now });
        self.due < before
    }

    /// Returns whether the next renewal was moved forward.
    #[must_use]
    pub fn is_early(&self) -> bool {
        self.due < self.usually_due()
    }

    /// Returns the TTL of the lease.
    #[must_use]
    #[inline]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Asks for `ttl` from the next renewal on, unless that is shorter: no renewal shortens an expiry (rule I-6). One in
    /// flight has asked for less than it would be counted for, so it must not be counted any more.
    pub fn extend(&mut self, ttl: Duration) {
        self.ttl = self.ttl.max(ttl);
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

    /// Returns whether the latest renewal was not confirmed, or has proven too little.
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

    /// Records its confirmation, by which the lease is valid until `deadline`: the next one counts from when it was sent. If
    /// less is left than the timing wants when a renewal is due, because what this one has proven is old, it is retried as
    /// if it were unconfirmed.
    #[inline]
    pub fn confirm(
        &mut self,
        timing: &LeaseTiming,
        (deadline, now): (Moment, Moment),
        random: impl FnOnce() -> u64,
    ) {
        let usual = self.usually_due();
        self.due = usual;
        self.begin_with(timing, deadline);
        if self.due < usual && self.is_due(now) {
            self.fail(now, deadline.since(now), random());
        } else {
            self.retry = None;
        }
    }

    /// Returns whether nothing was said yet of the series of retries, and records that it is now.
    #[inline]
    pub fn begins_series(&mut self) -> bool {
        self.retry.as_mut().is_some_and(|retry| !mem::replace(&mut retry.reported, true))
    }

    /// Schedules a retry of an unconfirmed renewal, for a lease that has this much `left`. A lease that its holder renews is
    /// not renewed automatically.
    #[inline]
    pub fn fail(&mut self, now: Moment, left: Duration, random: u64) {
        let begin = || Box::new(Retries { pauses: RetryPauses::new(left), reported: false });
        let retry = self.retry.get_or_insert_with(begin);
        let pause = retry.pauses.next(left, random);
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
    use crate::Drift;

    const TTL: Duration = Duration::from_secs(30);

    fn second(second: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(second))
    }

    fn timing() -> LeaseTiming {
        LeaseTiming::new(TTL, Drift::default(), Duration::ZERO)
    }

    fn automatic() -> RenewalSchedule {
        RenewalSchedule::new(Some(timing().renewal_every()), TTL, second(100))
    }

    /// Confirms a renewal that counts from then.
    fn confirm(schedule: &mut RenewalSchedule, from: Moment, now: Moment) {
        schedule.confirm(&timing(), (Drift::default().deadline(from, TTL), now), || u64::MAX);
    }

    #[test]
    fn a_renewal_is_due_a_third_of_the_ttl_after_the_last_one_was_sent() {
        let mut schedule = automatic();
        assert!(!schedule.is_due(second(109)) && schedule.is_due(second(110)));
        schedule.send(second(111));
        confirm(&mut schedule, second(111), second(112));
        assert_eq!(schedule.due(), Some(second(121)));
    }

    #[test]
    fn i52_a_hint_moves_the_next_renewal_forward_and_many_to_a_thirtieth_of_the_ttl_after_the_last() {
        let mut schedule = automatic();
        assert!(!schedule.is_early() && schedule.begin_for_hint(second(100), true) && schedule.is_early());
        assert_eq!(schedule.due(), Some(second(101)));
        assert!(!schedule.begin_for_hint(second(105), true), "it is due already");
        schedule.send(second(101));
        confirm(&mut schedule, second(101), second(101));
        assert_eq!(schedule.due(), Some(second(111)), "once");
        assert!(schedule.begin_for_hint(second(101), false));
        assert_eq!(schedule.due(), Some(second(101)));
        let mut manual = RenewalSchedule::new(None, TTL, second(100));
        assert!(!manual.begin_for_hint(second(105), false) && manual.due().is_none());
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
        confirm(&mut schedule, second(112), second(112));
        assert!(!schedule.is_failing());
        assert_eq!(schedule.due(), Some(second(122)));
    }

    #[test]
    fn a_failed_renewal_of_a_lease_from_an_offer_is_retried_before_that_ends_however_long_the_ttl() {
        for seconds in [2, 30, 300, 3_600] {
            let ttl = Duration::from_secs(seconds);
            let (begun, left) = (second(100), Duration::from_secs(1));
            let mut schedule = RenewalSchedule::new(Some(ttl / 3), ttl, begun);
            schedule.begin_at(begun);
            let (mut now, mut tries) = (begun, 0);
            while now < begun + left {
                schedule.fail(now, (begun + left).since(now), u64::MAX);
                let due = schedule.due().unwrap();
                assert!(due.since(now) <= left / 10, "{due:?} after {now:?}, with a TTL of {ttl:?}");
                (now, tries) = (due, tries + 1);
            }
            assert!((20..50).contains(&tries), "{tries} tries with a TTL of {ttl:?}");
        }
    }

    /// Ten thousand leases of a process may fail together, and the nodes serve others.
    #[test]
    fn a_renewal_that_fails_is_retried_little_more_often_shortly_before_the_end_and_at_random_times() {
        for seconds in [3, 30, 300, 3_600] {
            let ttl = Duration::from_secs(seconds);
            let (mut now, end) = (second(100), second(100) + ttl * 2 / 3);
            let mut schedule = RenewalSchedule::new(Some(ttl / 3), ttl, now);
            let (mut tries, mut late) = (0, 0);
            while now < end {
                let mut other = schedule.clone();
                schedule.fail(now, end.since(now), u64::MAX / 2);
                other.fail(now, end.since(now), u64::MAX);
                let due = schedule.due().unwrap();
                assert!(due < other.due().unwrap(), "at random, with {:?} left", end.since(now));
                late += i32::from(end.since(now) <= ttl / 30);
                (now, tries) = (due, tries + 1);
            }
            assert!((20..60).contains(&tries), "{tries} tries with a TTL of {ttl:?}");
            assert!((1..6).contains(&late), "{late} of them in the last thirtieth of {ttl:?}");
        }
    }

    #[test]
    fn a_lease_is_extended_and_never_shortened() {
        let mut schedule = automatic();
        for (ttl, seconds) in [(TTL / 2, 30), (TTL * 2, 60), (TTL, 60)] {
            schedule.extend(ttl);
            assert_eq!(schedule.ttl(), Duration::from_secs(seconds));
        }
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
    fn a_renewal_that_has_proven_little_is_followed_by_another_before_less_is_left_than_is_wanted() {
        let mut schedule = automatic();
        schedule.send(second(110));
        confirm(&mut schedule, second(107), second(110));
        assert_eq!(schedule.due(), Some(second(117)), "as late after what it counts from as ever");
        assert!(!schedule.is_failing());
        schedule.send(second(117));
        confirm(&mut schedule, second(107), second(117));
        let due = schedule.due().unwrap();
        assert!(
            second(117) < due && due <= second(119),
            "it has added nothing, and is retried soon: {due:?}"
        );
        assert!(schedule.begins_series() && !schedule.begins_series());
        schedule.send(second(119));
        confirm(&mut schedule, second(118), second(119));
        assert_eq!(schedule.due(), Some(second(128)));
        assert!(!schedule.is_failing() && !schedule.begins_series());
    }

    #[test]
    fn a_lease_that_is_renewed_often_is_renewed_by_its_interval() {
        let mut schedule = RenewalSchedule::new(Some(Duration::from_millis(10)), TTL, second(100));
        confirm(&mut schedule, second(100), second(101));
        assert!(schedule.is_due(second(101)) && !schedule.is_failing(), "a slow answer is no old one");
    }

    #[test]
    fn a_lease_that_its_holder_renews_is_never_due() {
        let mut schedule = RenewalSchedule::new(None, TTL, second(100));
        schedule.fail(second(101), TTL, 0);
        confirm(&mut schedule, second(80), second(101));
        assert!(schedule.due().is_none() && !schedule.put_off(second(200), || 0));
    }

    #[test]
    fn the_next_holder_waits_no_longer_than_the_one_before() {
        let mut schedule = automatic();
        schedule.handoff(Some(Duration::from_secs(15)));
        assert_eq!(schedule.due(), Some(second(110)));
        schedule.handoff(Some(Duration::from_secs(5)));
        assert_eq!(schedule.due(), Some(second(105)));
        confirm(&mut schedule, second(100), second(101));
        assert_eq!(schedule.due(), Some(second(105)), "counted from the latest round");
    }
}
