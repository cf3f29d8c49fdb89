//! For how long a lease may be trusted: the TTL without the allowance for drift, from before the request was sent.

use std::time::Duration;

use super::Moment;

/// The allowance for clocks that run at different rates, taken off the TTL.
///
/// A holder may trust its lease until `t0 + ttl * (1 - factor) - margin`, with `t0` read before
/// the first byte was sent (rule I-1). `factor` must cover how much slower than real time the
/// holder's clock runs, plus how much faster than real time a node's clock runs, corrections
/// included (docs/safety.md).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drift {
    factor: f64,
}

impl Drift {
    /// What expiry in whole milliseconds costs: Redis rounds to 1 ms, and so do we.
    pub const MARGIN: Duration = Duration::from_millis(2);

    /// The largest factor accepted. Beyond half of the TTL a longer TTL is the better answer.
    pub const MAX_FACTOR: f64 = 0.5;

    /// A factor between 0 and [`Drift::MAX_FACTOR`], or `None`.
    #[must_use]
    #[inline]
    pub fn of(factor: f64) -> Option<Drift> {
        (0.0..=Drift::MAX_FACTOR).contains(&factor).then_some(Drift { factor })
    }

    /// The part of the TTL that is given up.
    #[must_use]
    #[inline]
    pub fn factor(self) -> f64 {
        self.factor
    }

    /// For how long after `t0` a key set with this TTL may be trusted. Zero when nothing remains.
    #[must_use]
    #[inline]
    pub fn validity(self, ttl: Duration) -> Duration {
        scaled(ttl, 1.0 - self.factor).min(ttl).saturating_sub(Drift::MARGIN)
    }

    /// The moment until which a key may be trusted whose SET was sent no earlier than `sent`.
    #[must_use]
    #[inline]
    pub fn deadline(self, sent: Moment, ttl: Duration) -> Moment {
        sent + self.validity(ttl)
    }

    /// The longest that a key with this TTL can outlive the one who set it: what a restarted node
    /// must have waited (rule I-12).
    #[must_use]
    #[inline]
    pub fn stretch(self, ttl: Duration) -> Duration {
        scaled(ttl, 1.0 + self.factor).max(ttl).saturating_add(Drift::MARGIN)
    }
}

impl Default for Drift {
    /// One per cent, as Redlock clients agree on. It is a convention and no proof: a clock that is
    /// being slewed may run faster. The guide "choosing" says how to choose it.
    fn default() -> Drift {
        Drift { factor: 0.01 }
    }
}

/// As `mul_f64`, which panics where the product is longer than a duration can be.
fn scaled(time: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}
