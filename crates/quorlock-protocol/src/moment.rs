use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point in time on one process's clock, which advances during suspend.
///
/// Only moments of the same `quorlock::runtime::Clock` can be compared: the origin is arbitrary and differs
/// between machines. Arithmetic saturates, because a deadline far in the future must not turn into
/// one in the past.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment {
    nanos: u64,
}

impl Moment {
    /// The origin of the clock.
    pub const ORIGIN: Moment = Moment { nanos: 0 };
    /// Later than every other moment: no deadline.
    pub const NEVER: Moment = Moment { nanos: !0 };

    /// Returns the moment this long after the origin of the clock.
    #[must_use]
    #[inline]
    pub fn since_origin(elapsed: Duration) -> Moment {
        Moment { nanos: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is in fact later.
    #[must_use]
    #[inline]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos))
    }

    /// Returns the moment this much earlier; at least the origin.
    #[must_use]
    #[inline]
    pub fn back(self, by: Duration) -> Moment {
        Moment { nanos: self.nanos.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)) }
    }

    /// Returns the moment `nanos` nanoseconds after the origin of its clock.
    #[must_use]
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Moment {
        Moment { nanos }
    }

    /// Returns the nanoseconds since the origin of its clock.
    #[must_use]
    #[inline]
    pub fn nanos(self) -> u64 {
        self.nanos
    }
}

/// Returns the time in microseconds, as stores keep it; the largest number if it is longer than that.
#[must_use]
#[inline]
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, later: Duration) -> Moment {
        let later = u64::try_from(later.as_nanos()).unwrap_or(u64::MAX);
        Moment { nanos: self.nanos.saturating_add(later) }
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.nanos))
    }
}
