//! What is broken on purpose must be found: a hundred quiet seeds prove little.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use quorlock_sim::{Kind, Options, Rule, Twist, run};

/// Runs seeds until one breaks a promise; prints how many that took.
fn caught(what: &str, options: &Options, most: u64, rules: &[Rule]) {
    for seed in 0..most {
        if let Some(finding) = run(seed, options).finding {
            println!("{what}: caught by seed {seed}, after {} runs: {finding}", seed + 1);
            assert!(rules.contains(&finding.rule), "{what} is caught for a reason of its own: {finding}");
            return;
        }
    }
    panic!("{what}: not caught by {most} seeds");
}

fn options(twist: Twist, faults: &[Kind]) -> Options {
    let mut options = Options::default();
    options.span = Duration::from_secs(30);
    options.twist = twist;
    options.faults = faults.to_vec();
    options
}

const EXCLUSION: &[Rule] = &[Rule::Exclusion, Rule::Backing];

#[test]
fn nodes_that_forget_and_vote_at_once_are_caught() {
    let options = options(Twist::GuardOff, &[Kind::Amnesia]);
    caught("no restart guard", &options, 20, &[Rule::Exclusion]);
}

#[test]
fn node_clocks_beyond_the_allowance_are_caught() {
    caught(
        "node clocks a tenth too fast",
        &options(Twist::FastNodes, &[Kind::Hold, Kind::Spike]),
        20,
        EXCLUSION,
    );
    caught("node clocks put forward", &options(Twist::None, &[Kind::Step]), 20, EXCLUSION);
}

#[test]
fn holders_that_do_not_look_at_the_clock_are_caught() {
    let options = options(Twist::Careless, &[Kind::Suspend, Kind::Stop]);
    caught("no check after a suspend", &options, 20, EXCLUSION);
}

#[test]
fn calendars_that_are_too_far_apart_are_caught_once_nodes_forget() {
    let options = options(Twist::WrongCalendars, &[Kind::Amnesia]);
    caught("calendars ten TTLs apart", &options, 40, &[Rule::Fencing]);
}

#[test]
fn nodes_that_release_for_anybody_are_caught() {
    let options = options(Twist::ReleasesForAnybody, &[Kind::Hold, Kind::Spike]);
    caught("release without compare", &options, 20, EXCLUSION);
}

#[test]
fn keys_that_are_left_behind_are_caught() {
    let options = options(Twist::KeepsWhatIsReleased, &[Kind::Spike]);
    caught("nothing is released", &options, 20, &[Rule::Orphan]);
}

#[test]
fn keys_that_are_deleted_are_caught() {
    caught("all keys deleted", &options(Twist::None, &[Kind::Flush]), 20, EXCLUSION);
}
