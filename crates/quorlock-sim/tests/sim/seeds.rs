//! A fixed set of seeds with every fault that the library is designed to tolerate.

use std::time::Duration;

use quorlock_sim::{Kind, Options, Subject, Twist, run};

#[test]
fn guarantees_hold_under_faults() {
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
    assert!(granted > 500, "{granted} grants in 16 minutes prove too little");
}

/// Nodes of two kinds: some keep their data across restarts and vote immediately, others lose it
/// and are quarantined.
#[test]
fn guarantees_hold_with_and_without_persistent_nodes() {
    let mut granted = 0;
    let mut options = Options::default();
    options.twist = Twist::Remembering;
    options.span = Duration::from_secs(30);
    for seed in 0..8 {
        let outcome = run(seed, &options);
        assert_eq!(outcome.finding, None, "seed {seed}");
        granted += outcome.counts.granted;
    }
    assert!(granted > 100, "only {granted} grants");
}

/// Nodes are emptied while the lock is held, also several together, and their clients notice (rule I-51).
#[test]
fn i51_guarantees_hold_on_nodes_that_are_emptied_under_their_clients() {
    let mut granted = 0;
    let mut options = Options::default();
    options.faults = vec![Kind::Flush, Kind::Hold, Kind::Spike, Kind::Reset];
    options.span = Duration::from_secs(30);
    for seed in 0..6 {
        let outcome = run(seed, &options);
        assert_eq!(outcome.finding, None, "seed {seed}");
        granted += outcome.counts.granted;
    }
    assert!(granted > 100, "only {granted} grants");
}

/// Fencing tokens follow the order of the grants whatever the calendars, as long as no node forgets a counter; and if keys end
/// early, because clocks of nodes jump, whoever asks after a grant still gets a larger one.
#[test]
fn fencing_tokens_grow_whatever_the_calendars() {
    for (twist, more) in [(Twist::AnyCalendars, None), (Twist::OnlyFencing, Some(Kind::Step))] {
        let mut granted = 0;
        let mut options = Options::default();
        options.twist = twist;
        options.faults.extend(more);
        options.span = Duration::from_secs(30);
        for seed in 0..8 {
            let outcome = run(seed, &options);
            assert_eq!(outcome.finding, None, "seed {seed}, {}", twist.name());
            granted += outcome.counts.granted;
        }
        assert!(granted > 100, "only {granted} grants, {}", twist.name());
    }
}

/// The library still makes progress when responses arrive after their timeout.
#[test]
fn locks_are_acquired_while_a_third_of_all_packets_is_late() {
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

#[test]
fn semaphores_never_overfill_under_faults_and_disagreement() {
    let mut options = Options::default();
    options.subject = Subject::Semaphores;
    options.span = Duration::from_secs(20);
    let (mut granted, mut differing) = (0, 0);
    for seed in 0..8 {
        let outcome = run(seed, &options);
        assert_eq!(outcome.finding, None, "seed {seed}");
        granted += outcome.counts.granted;
        differing += outcome.counts.differing;
    }
    assert!(granted > 200 && differing > 20, "too few: {granted} grants, {differing} disagreements");
}

#[test]
fn elections_have_one_leader_that_observers_see_under_faults() {
    let mut options = Options::default();
    options.subject = Subject::Elections;
    options.span = Duration::from_secs(20);
    let (mut granted, mut observed) = (0, 0);
    for seed in 0..8 {
        let outcome = run(seed, &options);
        assert_eq!(outcome.finding, None, "seed {seed}");
        granted += outcome.counts.granted;
        observed += outcome.counts.observed;
    }
    assert!(granted > 100 && observed > 200, "too few: {granted} leaders, observed {observed} times");
}
