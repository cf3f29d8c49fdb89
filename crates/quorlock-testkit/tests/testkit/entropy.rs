//! Seeded randomness never changes.

use quorlock::runtime::Entropy;
use quorlock_testkit::SeededEntropy;

#[test]
fn a_seed_gives_the_published_sequence() {
    // The first words of SplitMix64 from 1234567, as its authors publish them.
    let entropy = SeededEntropy::new(1_234_567);
    let words: Vec<u64> = (0..3).map(|_| entropy.next_u64()).collect();
    assert_eq!(words, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
}

#[test]
fn different_seeds_give_different_tokens() {
    assert_ne!(SeededEntropy::new(1).next_u128(), SeededEntropy::new(2).next_u128());
    let one = SeededEntropy::new(1);
    assert_ne!(one.next_u128(), one.next_u128());
}
