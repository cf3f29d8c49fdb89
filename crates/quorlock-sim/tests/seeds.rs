//! A fixed set of seeds, in which everything goes wrong that the library promises to survive.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use quorlock_sim::{Options, Twist, run};

#[test]
fn promises_hold_whatever_goes_wrong() {
    let mut granted = 0;
    let mut options = Options::default();
    options.span = Duration::from_secs(40);
    for seed in 0..24 {
        let outcome = run(seed, &options);
        if let Some(finding) = outcome.finding {
            panic!(
                "seed {seed}: {finding}\nreplay: cargo run --release -p quorlock-sim -- --seeds {seed} --minutes 0.6666666666666666"
            );
        }
        granted += outcome.counts.granted;
    }
    assert!(granted > 500, "{granted} grants in 16 minutes are too few to prove anything");
}

/// The library does not chase its tail when answers come after it has stopped waiting for them.
#[test]
fn locks_are_got_where_a_third_of_all_packets_is_late() {
    let mut options = Options::default();
    options.twist = Twist::LatePackets;
    options.faults = Vec::new();
    options.span = Duration::from_secs(30);
    for seed in 0..8 {
        let outcome = run(seed, &options);
        assert_eq!(outcome.finding, None, "seed {seed}");
        assert!(outcome.counts.granted >= 5, "seed {seed} made no progress: {:?}", outcome.counts);
    }
}
