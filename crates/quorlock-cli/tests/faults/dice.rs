//! A seeded random source.

use quorlock::runtime::{Entropy as _, SystemEntropy};
use quorlock_testkit::SeededEntropy;

pub(crate) struct Dice {
    entropy: SeededEntropy,
}

impl Dice {
    pub(crate) fn seed() -> u64 {
        SystemEntropy::default().next_u64()
    }

    pub(crate) fn new(seed: u64) -> Dice {
        Dice { entropy: SeededEntropy::new(seed) }
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.entropy.next_u64() % end
    }

    pub(crate) fn index(&self, length: usize) -> usize {
        usize::try_from(self.below(u64::try_from(length).unwrap())).unwrap()
    }
}
