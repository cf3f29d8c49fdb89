//! Chance that comes out the same in every run.

use std::time::Duration;

use quorlock::runtime::Entropy;
use quorlock_testkit::SeededEntropy;

/// What chance decides, from a seed.
#[derive(Debug)]
pub(crate) struct Dice {
    source: SeededEntropy,
}

impl Dice {
    /// The sequence number `stream` of those that belong to `seed`: so that one more throw here
    /// does not change the fate of something else.
    pub(crate) fn new(seed: u64, stream: u64) -> Dice {
        let mixed = SeededEntropy::new(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93)).next_u64();
        Dice { source: SeededEntropy::new(mixed) }
    }

    pub(crate) fn word(&self) -> u64 {
        self.source.next_u64()
    }

    /// One of `0..sides`.
    pub(crate) fn below(&self, sides: usize) -> usize {
        let sides = u64::try_from(sides.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.word() % sides).unwrap_or(0)
    }

    pub(crate) fn percent(&self, chance: u64) -> bool {
        self.word() % 100 < chance
    }

    pub(crate) fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Any time from `least` to `most`.
    pub(crate) fn between(&self, least: Duration, most: Duration) -> Duration {
        Duration::from_nanos(self.nanos(nanos(least), nanos(most)))
    }

    /// Any number from `least` to `most`.
    pub(crate) fn nanos(&self, least: u64, most: u64) -> u64 {
        least + self.word() % (most.saturating_sub(least) + 1)
    }
}

/// The nanoseconds of a duration, as simulated time counts them.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
