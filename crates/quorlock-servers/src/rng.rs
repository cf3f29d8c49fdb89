//! A seeded random number generator with the choices that fault injection needs.

use std::time::Duration;

use quorlock::runtime::Entropy as _;

use crate::entropy::SeededEntropy;

/// A random number generator that depends only on a seed and the name of a stream.
///
/// Streams of one seed are independent: an additional number drawn from one changes no other.
#[derive(Debug)]
pub struct SeededRng {
    entropy: SeededEntropy,
}

impl SeededRng {
    /// Creates the generator of one stream of `seed`.
    #[must_use]
    pub fn new(seed: u64, stream: &str) -> SeededRng {
        // FNV-1a: the hashers of std may change with the version of Rust.
        let stream = stream.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mixed = SeededEntropy::new(seed ^ stream).next_u64();
        SeededRng { entropy: SeededEntropy::new(mixed) }
    }

    /// Returns any number.
    pub fn next_u64(&self) -> u64 {
        self.entropy.next_u64()
    }

    /// Returns a number of `0..end`; 0 if that is empty.
    pub fn below(&self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next_u64() % end).unwrap_or(0)
    }

    /// Returns a number from `least` to `most`, both included.
    pub fn number(&self, least: u64, most: u64) -> u64 {
        let width = most.saturating_sub(least).saturating_add(1);
        least.saturating_add(self.next_u64() % width)
    }

    /// Returns a duration from `least` to `most`, both included, in nanoseconds.
    pub fn between(&self, least: Duration, most: Duration) -> Duration {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.number(nanos(least), nanos(most)))
    }

    /// Returns `true` with a probability of `chance` percent.
    pub fn percent(&self, chance: u64) -> bool {
        self.next_u64() % 100 < chance
    }

    /// Returns one of `from`.
    ///
    /// # Panics
    ///
    /// If `from` is empty.
    #[expect(clippy::indexing_slicing, reason = "panics as documented")]
    pub fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns one of the entries with a probability in proportion to its weight; `None` if all
    /// weights are zero.
    pub fn weighted<T: Copy>(&self, entries: &[(u32, T)]) -> Option<T> {
        let sum: u64 = entries.iter().map(|&(weight, _)| u64::from(weight)).sum();
        let mut left = self.next_u64().checked_rem(sum)?;
        entries.iter().find_map(|&(weight, entry)| {
            let weight = u64::from(weight);
            if left < weight {
                return Some(entry);
            }
            left -= weight;
            None
        })
    }

    /// Returns `count` distinct elements of `from` in random order, or all if there are fewer.
    pub fn sample<T: Copy>(&self, count: usize, from: &[T]) -> Vec<T> {
        let mut left = from.to_vec();
        (0..count.min(from.len())).map(|_| left.swap_remove(self.below(left.len()))).collect()
    }
}
