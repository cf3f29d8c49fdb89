//! Chance that follows from a seed.

use std::time::Duration;

use quorlock::runtime::{Entropy as _, SystemEntropy};
use quorlock_testkit::SeededEntropy;

/// What chance decides: the same for the same seed, on every machine.
#[derive(Debug)]
pub(crate) struct Dice {
    source: SeededEntropy,
}

impl Dice {
    /// Those of `seed` for one purpose: a throw for one changes nothing for another.
    pub(crate) fn new(seed: u64, purpose: &str) -> Dice {
        // FNV-1a, which no new version of anything changes.
        let purpose = purpose.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mixed = SeededEntropy::new(seed ^ purpose).next_u64();
        Dice { source: SeededEntropy::new(mixed) }
    }

    /// Any time from `least` to `most`.
    pub(crate) fn between(&self, least: Duration, most: Duration) -> Duration {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let width = nanos(most).saturating_sub(nanos(least)).saturating_add(1);
        Duration::from_nanos(nanos(least).saturating_add(self.source.next_u64() % width))
    }

    /// A number for whoever has a choice.
    pub(crate) fn luck(&self) -> u64 {
        self.source.next_u64()
    }

    /// One of `0..sides`; 0 if there is none.
    pub(crate) fn below(&self, sides: usize) -> usize {
        let sides = u64::try_from(sides.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.source.next_u64() % sides).unwrap_or(0)
    }

    /// Which of the entries, each as likely as its weight says; `None` if all weigh nothing.
    pub(crate) fn weighted<T: Copy>(&self, entries: &[(u32, T)]) -> Option<T> {
        let sum: u64 = entries.iter().map(|&(weight, _)| u64::from(weight)).sum();
        let mut left = self.source.next_u64().checked_rem(sum)?;
        entries.iter().find_map(|&(weight, entry)| {
            let weight = u64::from(weight);
            if left < weight {
                return Some(entry);
            }
            left -= weight;
            None
        })
    }

    /// So many of `from`, in random order; fewer if there are not as many.
    pub(crate) fn fence_hint(&self, count: usize, from: &[usize]) -> Vec<usize> {
        let mut left = from.to_vec();
        (0..count.min(from.len())).map(|_| left.swap_remove(self.below(left.len()))).collect()
    }
}

/// A seed that no run has had; short enough to be typed.
pub(crate) fn fresh_seed() -> u64 {
    SystemEntropy::default().next_u64() % 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_throws_the_same_and_purposes_differ() {
        let throw = |seed, purpose| {
            let dice = Dice::new(seed, purpose);
            (0..8).map(|_| dice.below(1_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(throw(7, "schedule"), throw(7, "schedule"));
        assert_ne!(throw(7, "schedule"), throw(8, "schedule"));
        assert_ne!(throw(7, "schedule"), throw(7, "load"));
    }

    #[test]
    fn what_weighs_nothing_never_comes() {
        let dice = Dice::new(1, "weights");
        assert!((0..1000).all(|_| dice.weighted(&[(0, 'a'), (3, 'b'), (1, 'c')]) != Some('a')));
        assert_eq!(dice.weighted::<char>(&[(0, 'a')]), None);
    }
}
