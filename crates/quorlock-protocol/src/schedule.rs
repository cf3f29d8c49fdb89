//! How long waiters wait: the constants, and [`Backoff`], the random pause.

use std::time::Duration;

/// The longest that a waiter relies on notifications, plus or minus half of it at random. Hints are
/// lost with a broken connection that has not been noticed yet.
pub const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long a node keeps new readers out for a writer that does not ask again, as one that was killed: two of the longest
/// heartbeats of the first in a queue, and a quarter of a second for the answers.
pub const INTENT_PATIENCE: Duration = Duration::from_secs(3);
/// The age at which a writer repeats its intent: at each of these heartbeats, and as often where no node keeps a queue.
pub const INTENT_AGE: Duration = Duration::from_millis(800);
/// Nodes expire a key at slightly different times, and waiters should not all ask at the same time.
pub const EXPIRY_JITTER: Duration = Duration::from_millis(5);
/// How long a process pauses after it had the lock while others want it: a few round trips, in
/// which they are notified and ask. Without it, a holder that releases and asks again immediately
/// would always be first.
pub const COOLDOWN: Duration = Duration::from_millis(3);

/// Pauses between retries: full jitter under a ceiling that doubles.
///
/// Full jitter (any time from zero to the ceiling) spreads contenders best. The ceiling is bounded,
/// because a lock or a node that has become available should be noticed soon.
#[derive(Clone, Debug)]
pub struct Backoff {
    ceiling: Duration,
    highest: Duration,
}

impl Backoff {
    /// Creates pauses of which the first is at most `first`, and none is longer than `highest`.
    #[must_use]
    pub fn new(first: Duration, highest: Duration) -> Backoff {
        Backoff { ceiling: first.min(highest), highest }
    }

    /// Returns the next pause. `random` is uniform over all of `u64`.
    pub fn next(&mut self, random: u64) -> Duration {
        self.next_within(Duration::MAX, random)
    }

    /// Returns the next pause, which is no longer than that.
    pub(crate) fn next_within(&mut self, longest: Duration, random: u64) -> Duration {
        let wait = fraction(self.ceiling.min(longest), random);
        self.ceiling = self.ceiling.saturating_mul(2).min(self.highest);
        wait
    }
}

/// Returns a part of `whole`, from zero to all of it, chosen by a uniform `random`.
#[must_use]
pub fn fraction(whole: Duration, random: u64) -> Duration {
    let nanos = whole.as_nanos().min(u128::from(u64::MAX)) * u128::from(random) / u128::from(u64::MAX);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
