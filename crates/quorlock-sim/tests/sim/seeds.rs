//! A fixed set of seeds with every fault that the library is designed to tolerate.

use std::time::Duration;

use quorlock_sim::{Counts, Kind, Options, Subject, Twist, run};

/// Runs this many seeds, with faults for this many seconds, of which none finds a violation. Returns what the clients did.
fn clean(seeds: u64, seconds: u64, set: impl FnOnce(&mut Options)) -> Counts {
    let mut options = Options::default();
    options.span = Duration::from_secs(seconds);
    set(&mut options);
    let mut all = Counts::default();
    for seed in 0..seeds {
        let outcome = run(seed, &options);
        assert_eq!(outcome.finding, None, "seed {seed}: {options:?}");
        assert!(outcome.counts.granted >= 5, "seed {seed} made no progress: {:?}", outcome.counts);
        all += outcome.counts;
    }
    all
}

#[test]
fn guarantees_hold_under_faults() {
    let granted = clean(24, 40, |_| {}).granted;
    assert!(granted > 500, "{granted} grants in 16 minutes prove too little");
}

/// Nodes of two kinds: some keep their data across restarts and vote immediately, others lose it
/// and are quarantined.
#[test]
fn guarantees_hold_with_and_without_persistent_nodes() {
    let granted = clean(8, 30, |options| options.twist = Twist::Remembering).granted;
    assert!(granted > 100, "only {granted} grants");
}

/// Nodes are emptied while the lock is held, also several together, and their clients notice (rule I-51).
#[test]
fn i51_guarantees_hold_on_nodes_that_are_emptied_under_their_clients() {
    let faults = vec![Kind::Flush, Kind::Hold, Kind::Spike, Kind::Reset];
    let granted = clean(6, 30, |options| options.faults = faults).granted;
    assert!(granted > 100, "only {granted} grants");
}

/// Fencing tokens follow the order of the grants whatever the calendars, as long as no node forgets a counter; and if keys end
/// early, because clocks of nodes jump, a client that asks after a grant still gets a larger one.
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
            assert_eq!(outcome.finding, None, "seed {seed}, {twist:?}");
            granted += outcome.counts.granted;
        }
        assert!(granted > 100, "only {granted} grants, {twist:?}");
    }
}

/// The library still makes progress when responses arrive after their timeout.
#[test]
fn locks_are_acquired_while_a_third_of_all_packets_is_late() {
    clean(8, 30, |options| (options.twist, options.faults) = (Twist::LatePackets, Vec::new()));
}

#[test]
fn semaphores_never_overfill_under_faults_and_disagreement() {
    let Counts { granted, differing, .. } = clean(8, 20, |options| options.subject = Subject::Semaphores);
    assert!(granted > 200 && differing > 20, "too few: {granted} grants, {differing} disagreements");
}

#[test]
fn elections_have_one_leader_that_observers_see_under_faults() {
    let Counts { granted, observed, .. } = clean(8, 20, |options| options.subject = Subject::Elections);
    assert!(granted > 100 && observed > 200, "too few: {granted} leaders, observed {observed} times");
}
