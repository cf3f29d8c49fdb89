use std::time::Duration;

/// How long at most a waiter relies on being told, give or take half of it at random. Hints may be
/// lost with a connection that nobody has noticed yet.
pub const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long a node keeps new readers out for a writer that does not ask again: three heartbeats.
pub const INTENT_PATIENCE: Duration = Duration::from_secs(6);
/// How old an intent may become before it is said anew. With the longest heartbeat after that, it is
/// said again in time.
pub const INTENT_AGE: Duration = Duration::from_secs(2);
/// After an expiry, nodes drop the key at their own time; and waiters should not come all at once.
pub const EXPIRY_JITTER: Duration = Duration::from_millis(5);
/// How long a process stays back that has just had the lock while others want it: a few round
/// trips, in which they are told and ask. Without it, whoever releases and asks again at once would
/// always be first.
pub const COURTESY: Duration = Duration::from_millis(3);

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
