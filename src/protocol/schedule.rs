use std::time::Duration;

/// The usual time between two renewals: a third of the TTL, so that two may fail before the lease
/// is lost.
#[must_use]
pub fn renewal_every(ttl: Duration) -> Duration {
    ttl / 3
}

/// Waiting times for repeated attempts: full jitter under a ceiling that doubles.
///
/// Full jitter (any time from zero to the ceiling) spreads competitors best; the ceiling is
/// bounded, because a lock or a node that came back should not stay unnoticed for long.
#[derive(Clone, Debug)]
pub struct Backoff {
    ceiling: Duration,
    highest: Duration,
}

impl Backoff {
    /// The first wait is at most `first`, and none is longer than `highest`.
    #[must_use]
    pub fn new(first: Duration, highest: Duration) -> Backoff {
        Backoff { ceiling: first.min(highest), highest }
    }

    /// The next wait. `random` is uniform over all of `u64`.
    pub fn next(&mut self, random: u64) -> Duration {
        let wait = fraction(self.ceiling, random);
        self.ceiling = self.ceiling.saturating_mul(2).min(self.highest);
        wait
    }
}

/// A part of `whole` between nothing and all of it, chosen by a uniform `random`.
#[must_use]
pub fn fraction(whole: Duration, random: u64) -> Duration {
    let nanos = whole.as_nanos().min(u128::from(u64::MAX)) * u128::from(random) / u128::from(u64::MAX);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
