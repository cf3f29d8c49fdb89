use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: nanoseconds since an origin that the whole history shares.
///
/// Clocks of several hosts agree only roughly. [`What::Clocks`](crate::What::Clocks) bounds the
/// error, and every check allows for it. Arithmetic saturates, because a deadline far in the future
/// must not turn into one in the past.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stamp {
    nanos: u64,
}

impl Stamp {
    /// Later than any event: the return of an operation that never returned.
    pub(crate) const NEVER: Stamp = Stamp { nanos: u64::MAX };

    /// Creates a stamp from nanoseconds since the origin.
    #[must_use]
    pub fn from_nanos(nanos: u64) -> Stamp {
        Stamp { nanos }
    }

    /// Returns the nanoseconds since the origin.
    #[must_use]
    pub fn nanos(self) -> u64 {
        self.nanos
    }

    /// Returns the time elapsed since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Stamp) -> Duration {
        Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos))
    }

    /// Returns the stamp this much later, saturating at the largest one.
    #[must_use]
    pub fn plus(self, later: Duration) -> Stamp {
        Stamp { nanos: self.nanos.saturating_add(whole_nanos(later)) }
    }

    /// Returns the stamp this much earlier, saturating at the origin.
    #[must_use]
    pub fn minus(self, earlier: Duration) -> Stamp {
        Stamp { nanos: self.nanos.saturating_sub(whole_nanos(earlier)) }
    }
}

/// Converts the time since the origin, so that `moment.since(Moment::ORIGIN).into()` is a stamp.
impl From<Duration> for Stamp {
    fn from(since_origin: Duration) -> Stamp {
        Stamp { nanos: whole_nanos(since_origin) }
    }
}

/// Prints seconds with at least three decimals and without trailing zeros after them.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.nanos / 1_000_000_000, self.nanos % 1_000_000_000);
        let digits = format!("{nanos:09}");
        let (millis, finer) = digits.split_at(3);
        write!(f, "{seconds}.{millis}{}s", finer.trim_end_matches('0'))
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn whole_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Serializes durations as nanoseconds, like stamps.
pub(crate) mod nanos {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(super::whole_nanos(*duration))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_nanos)
    }
}
