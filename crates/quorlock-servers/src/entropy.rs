//! Random numbers that are the same in every run.

use std::sync::atomic::{AtomicU64, Ordering};

use quorlock::runtime::Entropy;

/// Random numbers that depend only on a seed: the same on every machine, with every version of every crate,
/// so that the seed of an old test failure still reproduces it.
///
/// `SplitMix64`, which is completely defined below. Never for real locks: a client that guesses a token can
/// release the lock.
#[derive(Debug)]
pub struct SeededEntropy {
    state: AtomicU64,
}

impl SeededEntropy {
    /// Creates the sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> SeededEntropy {
        SeededEntropy { state: AtomicU64::new(seed) }
    }

    fn word(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut word = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

impl Entropy for SeededEntropy {
    fn next_u128(&self) -> u128 {
        (u128::from(self.word()) << 64) | u128::from(self.word())
    }

    fn next_u64(&self) -> u64 {
        self.word()
    }
}
