//! When a lease is renewed.

use std::time::Duration;

use crate::{Backoff, Moment, fraction};

/// The usual time between two renewals: a third of the TTL, so that two may fail before the lease
/// is lost.
#[must_use]
#[inline]
pub fn renewal_every(ttl: Duration) -> Duration {
    ttl / 3
}

/// Pauses before a renewal that was not confirmed is tried again: soon, and ever less eagerly.
#[must_use]
#[inline]
pub fn renewal_backoff(ttl: Duration) -> Backoff {
    Backoff::new(ttl / 100, ttl / 10)
}

/// A renewal is put off by no more than this part of the TTL, however many are on their way and whatever
/// the nodes do: 1 s of 30, where it is due after 10 s and the lease ends after 30.
const LONGEST_DELAY: u32 = 30;
/// And by at most this part at a time: at random, so that those that were due together are not for ever.
const DELAY: u32 = 100;

/// When the next renewal of a lease is due.
#[derive(Clone, Debug)]
pub struct RenewalSchedule {
    ttl: Duration,
    /// `None` where the holder renews it.
    every: Option<Duration>,
    /// When the latest round was sent that asked for a full TTL.
    sent: Moment,
    due: Option<Moment>,
    /// In a box, since nearly no lease has one.
    retry: Option<Box<Backoff>>,
}

impl RenewalSchedule {
    /// Of a lease that was asked for at `sent` and is renewed this often; `None` if its holder does that.
    #[must_use]
    #[inline]
    pub fn new(every: Option<Duration>, ttl: Duration, sent: Moment) -> RenewalSchedule {
        RenewalSchedule { ttl, every, sent, due: every.map(|every| sent + every), retry: None }
    }

    /// The lease begins with less than its TTL: the first renewal is due at `due`, unless it would be sooner.
    pub fn begin_at(&mut self, due: Moment) {
        self.due = self.due.map(|usual| usual.min(due));
    }

    /// When the next one is due; never for a lease that its holder renews.
    #[must_use]
    #[inline]
    pub fn due(&self) -> Option<Moment> {
        self.due
    }

    /// Whether it is due at `now`.
    #[must_use]
    #[inline]
    pub fn is_due(&self, now: Moment) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    /// Whether the latest renewal was not confirmed.
    #[must_use]
    #[inline]
    pub fn is_failing(&self) -> bool {
        self.retry.is_some()
    }

    /// A renewal is sent.
    #[inline]
    pub fn send(&mut self, sent: Moment) {
        self.sent = sent;
    }

    /// It was confirmed: the next one counts from when it was sent.
    #[inline]
    pub fn confirm(&mut self) {
        self.due = self.usually_due();
        self.retry = None;
    }

    /// It was not: tried again soon. One that the holder asked for is not tried again by itself.
    #[inline]
    pub fn fail(&mut self, now: Moment, random: u64) {
        let retry = self.retry.get_or_insert_with(|| Box::new(renewal_backoff(self.ttl)));
        let pause = retry.next(random);
        self.due = self.due.map(|_| now + pause);
    }

    /// Puts off what is due, because many other renewals are on their way, and says whether it has. One that
    /// follows another that was not confirmed is late enough. `random` is uniform over all of `u64`.
    pub fn put_off(&mut self, now: Moment, random: impl FnOnce() -> u64) -> bool {
        let Some(usual) = self.usually_due().filter(|_| !self.is_failing()) else { return false };
        if self.due.is_some_and(|due| due < usual) {
            // It begins with less than its TTL.
            return false;
        }
        let latest = usual + self.ttl / LONGEST_DELAY;
        let puts_off = now < latest;
        if puts_off {
            self.due = Some(latest.min(now + fraction(self.ttl / DELAY, random())));
        }
        puts_off
    }

    /// The lease has another holder, who wants it renewed this often. What is due sooner stays.
    #[inline]
    pub fn handoff(&mut self, every: Option<Duration>) {
        self.every = every;
        self.due = self.due.into_iter().chain(self.usually_due()).min();
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
    fn one_that_fails_is_tried_again_until_one_is_confirmed() {
        let mut schedule = automatic();
        schedule.send(second(110));
        for random in [0, u64::MAX] {
            schedule.fail(second(111), random);
            let due = schedule.due().unwrap();
            assert!(second(111) <= due && due <= second(112), "{due:?}");
        }
        for _ in 0..100 {
            schedule.fail(second(111), u64::MAX);
        }
        assert_eq!(schedule.due(), Some(second(114)), "no pause is longer than a tenth of the TTL");
        assert!(schedule.is_failing() && !schedule.put_off(second(111), || 0), "it is late enough");
        schedule.send(second(112));
        schedule.confirm();
        assert!(!schedule.is_failing());
        assert_eq!(schedule.due(), Some(second(122)));
    }

    #[test]
    fn one_is_put_off_again_and_again_but_by_a_thirtieth_of_the_ttl_at_most() {
        let mut schedule = automatic();
        let mut now = second(110);
        while schedule.put_off(now, || u64::MAX / 2) {
            assert!(schedule.due().unwrap() > now);
            now = schedule.due().unwrap();
        }
        assert_eq!(now, second(111));
    }

    #[test]
    fn a_lease_that_its_holder_renews_is_never_due() {
        let mut schedule = RenewalSchedule::new(None, TTL, second(100));
        schedule.fail(second(101), 0);
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
        assert_eq!(schedule.due(), Some(second(105)), "of the round that was sent last");
    }
}
