//! Each deliberately broken protection must be found: a hundred clean seeds prove little.

use std::time::Duration;

use quorlock_sim::{Kind, Options, Rule, Subject, Twist, name_of, run};

/// Runs seeds until one finds a violation; prints how many it took.
fn caught(what: &str, options: &Options, most: u64, rules: &[Rule]) {
    for seed in 0..most {
        if let Some(finding) = run(seed, options).finding {
            println!("{what}: caught by seed {seed}, after {} runs: {finding}", seed + 1);
            assert!(rules.contains(&finding.rule), "{what} is caught for an unexpected reason: {finding}");
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
fn nodes_that_lose_data_and_vote_immediately_are_caught() {
    // The counters are lost, too.
    let options = options(Twist::GuardOff, &[Kind::Amnesia]);
    caught("no restart guard", &options, 20, &[Rule::Exclusion, Rule::Fencing]);
}

#[test]
fn nodes_that_say_that_they_remember_and_forget_are_caught() {
    let options = options(Twist::FalseMemory, &[Kind::Amnesia]);
    caught("a false memory", &options, 20, &[Rule::Exclusion, Rule::Fencing]);
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
    // Two clients must want a lock right after its counter was lost: about one seed in fifty.
    let options = options(Twist::WrongCalendars, &[Kind::Amnesia]);
    caught("calendars ten TTLs apart", &options, 160, &[Rule::Fencing]);
}

#[test]
fn nodes_that_release_without_comparing_are_caught() {
    let options = options(Twist::ReleasesWithoutComparing, &[Kind::Hold, Kind::Spike]);
    caught("release without compare", &options, 20, EXCLUSION);
}

#[test]
fn nodes_that_offer_without_comparing_are_caught() {
    // The offer of a former holder must arrive late, while another client holds the lock: about one
    // seed in six.
    let mut options = options(Twist::OffersWithoutComparing, &[Kind::Replay]);
    options.span = Duration::from_secs(60);
    caught("offer without compare", &options, 60, EXCLUSION);
}

#[test]
fn offers_that_end_before_their_messages_say_are_caught() {
    // Seldom: the renewal of an offered lease leaves when it is accepted, so all that must be delayed.
    let mut options = options(Twist::OffersEndEarly, &[Kind::Hold, Kind::Spike]);
    options.span = Duration::from_secs(60);
    caught("an offer that counts for too long", &options, 150, EXCLUSION);
}

#[test]
fn keys_that_are_left_behind_are_caught() {
    let options = options(Twist::KeepsReleasedKeys, &[Kind::Spike]);
    caught("nothing is released", &options, 20, &[Rule::Orphan]);
}

#[test]
fn keys_that_are_deleted_are_caught() {
    caught("all keys deleted", &options(Twist::None, &[Kind::Delete]), 20, EXCLUSION);
}

#[test]
fn permits_whose_number_is_not_compared_are_caught() {
    let mut options = options(Twist::LimitIgnored, &[Kind::Spike]);
    options.subject = Subject::Semaphores;
    caught("limits that differ", &options, 40, &[Rule::Permits]);
}

#[test]
fn observers_that_believe_fewer_than_a_quorum_are_caught() {
    let mut options = options(Twist::Credulous, &[Kind::Hold, Kind::Spike]);
    options.subject = Subject::Elections;
    caught("a leader of a minority", &options, 20, &[Rule::Observing]);
}

#[test]
fn permits_and_leaders_on_nodes_that_lose_data_and_vote_are_caught() {
    for (subject, rules) in [
        (Subject::Semaphores, &[Rule::Permits, Rule::Exclusion]),
        (Subject::Elections, &[Rule::Exclusion, Rule::Fencing]),
    ] {
        let mut options = options(Twist::GuardOff, &[Kind::Amnesia]);
        options.subject = subject;
        caught(&name_of(&subject), &options, 40, rules);
    }
}
