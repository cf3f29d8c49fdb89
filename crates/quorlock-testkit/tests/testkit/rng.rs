//! The seeded random number generator.

use quorlock_testkit::SeededRng;

#[test]
fn the_same_seed_and_stream_repeat_and_others_differ() {
    let draw = |seed, stream| {
        let rng = SeededRng::new(seed, stream);
        (0..8).map(|_| rng.below(1_000_000)).collect::<Vec<_>>()
    };
    assert_eq!(draw(7, "schedule"), draw(7, "schedule"));
    assert_ne!(draw(7, "schedule"), draw(8, "schedule"));
    assert_ne!(draw(7, "schedule"), draw(7, "load"));
}

#[test]
fn an_entry_without_weight_is_never_drawn() {
    let rng = SeededRng::new(1, "weights");
    assert!((0..1000).all(|_| rng.weighted(&[(0, 'a'), (3, 'b'), (1, 'c')]) != Some('a')));
    assert_eq!(rng.weighted::<char>(&[(0, 'a')]), None);
}
