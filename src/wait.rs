//! Waiting for a lock that others hold.

use std::time::Duration;

use crate::protocol::{Backoff, Moment};

/// How long to wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wait {
    /// Ask once.
    Never,
    /// Ask until so much time has passed.
    UpTo(Duration),
    /// Ask until the lock is there.
    Forever,
}

/// What is left of a caller's will to wait, and how long to pause between two attempts.
#[derive(Debug)]
pub(crate) struct Patience {
    until: Option<Moment>,
    backoff: Backoff,
}

/// The first pause is at most this: a few round trips in one datacenter, so that competitors which
/// split the vote come apart.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// And none is longer: a lock that was given back is noticed that soon.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

impl Patience {
    pub(crate) fn new(wait: Wait, now: Moment) -> Patience {
        let until = match wait {
            Wait::Never => Some(now),
            Wait::UpTo(longest) => Some(now + longest),
            Wait::Forever => None,
        };
        Patience { until, backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE) }
    }

    /// How long to pause before the next attempt; `None` when patience is at an end. The last
    /// attempt is made when the time is up.
    pub(crate) fn pause(&mut self, now: Moment, random: u64) -> Option<Duration> {
        let pause = self.backoff.next(random);
        match self.until {
            Some(until) if now >= until => None,
            Some(until) => Some(pause.min(until.since(now))),
            None => Some(pause),
        }
    }
}
