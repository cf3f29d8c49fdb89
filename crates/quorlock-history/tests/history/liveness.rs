use quorlock_history::{Check, Expectations, Violation, What, check};

use crate::script::{Script, at};

#[test]
fn a_client_that_gets_no_lock_after_the_last_heal_is_found() {
    let mut script = Script::default();
    script.cut_off("eu-1", 0, 1_000).invoked(500, "ann1").not_acquired(1_500, "ann1").invoked(1_600, "ann2");
    script.held("bob1", 1_200, 1_300).invoked(3_001, "ann3");
    let found = script.found(Check::Liveness);
    let [Violation::Starved { client, since, attempts: 2, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((client.as_str(), *since), ("ann", at(1_000)));
}

#[test]
fn a_lock_in_time_is_enough_whatever_failed_before() {
    let mut script = Script::default();
    script.cut_off("eu-1", 0, 1_000).invoked(500, "ann1").not_acquired(1_500, "ann1");
    script.invoked(2_900, "ann2").acquired(3_000, "ann2", 3_900).released(3_100, "ann2").goes_on_until(9_000);
    script.assert_clean();
}

#[test]
fn a_lock_that_comes_too_late_is_none() {
    let mut script = Script::default();
    script
        .cut_off("eu-1", 0, 1_000)
        .invoked(900, "ann1")
        .acquired(3_001, "ann1", 3_900)
        .released(3_100, "ann1");
    assert_eq!(script.found(Check::Liveness).len(), 1);
}

#[test]
fn clients_that_crashed_or_had_time_or_were_done_are_skipped() {
    let mut script = Script::default();
    script.cut_off("eu-1", 0, 1_000).invoked(100, "ann1").not_acquired(200, "ann1");
    script.invoked(1_100, "bob1").crashed(1_500, "bob");
    script.invoked(1_200, "cid1").goes_on_until(3_200);
    script.assert_clean();
    script.goes_on_until(3_201);
    assert_eq!(script.found(Check::Liveness).len(), 1, "time is up for cid");
    script.crashed(3_300, "cid");
    assert_eq!(script.found(Check::Liveness).len(), 1, "a later crash does not excuse it");
}

#[test]
fn the_heal_that_counts_is_the_last_and_not_that_of_the_last_fault() {
    let mut script = Script::default();
    script.cut_off("eu-1", 0, 1_000).stopped("bob", 100, 500);
    script.invoked(600, "ann1").acquired(2_900, "ann1", 3_700).released(3_000, "ann1");
    script.assert_clean();
}

#[test]
fn a_fault_of_another_client_excuses_none() {
    let mut script = Script::default();
    script.cut_off("eu-1", 0, 1_000).invoked(1_100, "ann1");
    script.stopped("bob", 2_500, 2_600).goes_on_until(3_200);
    let found = script.found(Check::Liveness);
    let [Violation::Starved { client, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(client.as_str(), "ann");
    let never_heals =
        What::FaultBegan { fault: "other".into(), nodes: Vec::new(), clients: vec!["bob".into()] };
    script.record(50, never_heals);
    assert_eq!(script.found(Check::Liveness), found, "nor one that lasts");
    script.stopped("ann", 2_700, 2_800);
    script.assert_clean();
}

#[test]
fn the_time_of_a_client_begins_with_its_first_attempt_after_the_heal() {
    let mut script = Script::default();
    script.cut_off("eu-1", 0, 1_000).invoked(4_000, "ann1").acquired(6_000, "ann1", 6_900);
    script.released(6_100, "ann1").goes_on_until(9_000);
    script.assert_clean();
}

#[test]
fn nothing_is_expected_while_a_fault_lasts_or_unless_it_is_asked_for() {
    let mut script = Script::default();
    script.cut_off("eu-1", 0, 1_000).invoked(1_100, "ann1").goes_on_until(9_000);
    assert_eq!(script.found(Check::Liveness).len(), 1);
    assert!(check(&script.history, &Expectations::new()).is_clean(), "not asked for");
    script.record(50, What::FaultBegan { fault: "other".into(), nodes: Vec::new(), clients: Vec::new() });
    script.assert_clean();
}
