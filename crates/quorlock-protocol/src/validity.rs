//! How long a lease may be trusted: the TTL minus the drift allowance, counted from before the
//! request was sent.

use std::time::Duration;

use super::Moment;

/// The allowance for clocks that run at different rates, subtracted from the TTL.
///
/// A holder may trust its lease until `t0 + ttl * (1 - factor) - margin`, with `t0` read before the
/// first byte was sent (rule I-1). `factor` must cover how much slower than real time the holder's
/// clock runs, plus how much faster than real time a node's clock runs, including corrections
/// (docs/trust.md).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drift {
    factor: f64,
}

impl Drift {
    /// The cost of expiry in whole milliseconds: Redis rounds to 1 ms, and so does this library.
    pub const MARGIN: Duration = Duration::from_millis(2);

    /// The largest factor accepted. If half of the TTL is not enough, use a longer TTL.
    pub const MAX_FACTOR: f64 = 0.5;

    /// Returns the allowance for a factor between 0 and [`Drift::MAX_FACTOR`], otherwise `None`.
    #[must_use]
    #[inline]
    pub fn of(factor: f64) -> Option<Drift> {
        (0.0..=Drift::MAX_FACTOR).contains(&factor).then_some(Drift { factor })
    }

    /// Returns the fraction of the TTL that is given up.
    #[must_use]
    #[inline]
    pub fn factor(self) -> f64 {
        self.factor
    }

    /// Returns for how long after `t0` a key set with this TTL may be trusted; zero if nothing
    /// remains.
    #[must_use]
    #[inline]
    pub fn validity(self, ttl: Duration) -> Duration {
        scaled(ttl, 1.0 - self.factor).min(ttl).saturating_sub(Drift::MARGIN)
    }

    /// Returns until when a key may be trusted whose SET was sent no earlier than `sent`.
    #[must_use]
    #[inline]
    pub fn deadline(self, sent: Moment, ttl: Duration) -> Moment {
        sent + self.validity(ttl)
    }

    /// Returns the longest that a key with this TTL can outlive its client: what a restarted node
    /// must have waited (rule I-12).
    #[must_use]
    #[inline]
    pub fn stretch(self, ttl: Duration) -> Duration {
        scaled(ttl, 1.0 + self.factor).max(ttl).saturating_add(Drift::MARGIN)
    }
}

impl Default for Drift {
    /// One per cent, as is conventional among Redlock clients. It is not proven: a clock that is
    /// being slewed may run faster. See the guide "choosing".
    fn default() -> Drift {
        Drift { factor: 0.01 }
    }
}

/// Like `mul_f64`, which panics if the product exceeds the longest duration.
fn scaled(time: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}
