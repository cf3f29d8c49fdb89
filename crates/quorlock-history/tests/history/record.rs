use quorlock_history::{Check, Flaw, History, Violation};

use crate::script::{Script, expect};

fn flaws(script: &Script) -> Vec<Flaw> {
    let of_record = |violation| match violation {
        Violation::Flawed { flaw, .. } => flaw,
        other => panic!("{other}"),
    };
    script.found(Check::Record).into_iter().map(of_record).collect()
}

#[test]
fn what_happens_to_an_attempt_that_never_began_is_a_flaw() {
    let mut script = Script::default();
    script.acquired(10, "ann1", 900).lost(20, "bob1").wrote(
        30,
        "cid1",
        1,
        quorlock_history::Answer::Accepted,
    );
    assert_eq!(flaws(&script), [Flaw::NeverInvoked; 3]);
}

#[test]
fn what_happens_twice_is_a_flaw_and_the_first_time_counts() {
    let mut script = Script::default();
    script.held("ann1", 0, 100).invoked(110, "ann1").acquired(120, "ann1", 900).not_acquired(130, "ann1");
    script.released(140, "ann1").held("bob1", 110, 200);
    assert_eq!(flaws(&script), [Flaw::Twice; 5]);
    assert_eq!(script.found(Check::Exclusion), []);
}

#[test]
fn a_lease_has_to_be_there_to_be_renewed() {
    let mut script = Script::default();
    script.invoked(0, "ann1").renewed(10, "ann1", 900).not_acquired(20, "ann1").released(30, "ann1");
    assert_eq!(flaws(&script), [Flaw::NotHeld; 3]);
}

#[test]
fn a_client_that_starts_again_under_its_name_has_not_crashed_again() {
    let mut script = Script::default();
    script.invoked(0, "ann1").acquired(10, "ann1", 900).crashed(100, "ann").held("ann2", 1_000, 1_500);
    script.held("bob1", 1_400, 1_450);
    assert_eq!(script.found(Check::Exclusion).len(), 1, "ann holds again until she releases");
}

#[test]
fn what_a_client_held_before_a_crash_is_over_whatever_happens_to_its_successor() {
    let mut script = Script::default();
    script.invoked(0, "ann1").acquired(10, "ann1", 900).crashed(100, "ann");
    script.held("bob1", 200, 300).invoked(400, "ann2").crashed(600, "ann");
    assert_eq!(script.found(Check::Exclusion), []);
}

#[test]
fn nothing_that_happened_breaks_no_promise_and_says_how_little_it_was() {
    let report = quorlock_history::check(&History::new(), &expect());
    assert!(report.is_clean());
    assert!(report.to_string().starts_with("attempts: 0, held: 0"), "{report}");
}
