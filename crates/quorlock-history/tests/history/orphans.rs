use quorlock_history::{Check, Violation, What};

use crate::script::{Script, millis};

#[test]
fn a_key_left_by_a_release_a_failure_or_a_loss_is_found() {
    let ends: [fn(&mut Script); 3] = [
        |script| {
            script.held("ann1", 0, 190);
        },
        |script| {
            script.invoked(0, "ann1").not_acquired(200, "ann1");
        },
        |script| {
            script.invoked(0, "ann1").acquired(10, "ann1", 900).lost(200, "ann1");
        },
    ];
    for end in ends {
        let mut script = Script::default();
        end(&mut script);
        script.key(150, "eu-1", "ann1", 800).key(300, "eu-1", "ann1", 700);
        script.assert_clean();
        script.key(301, "eu-2", "ann1", 699);
        let found = script.found(Check::Orphans);
        let [Violation::Orphan { key, .. }] = &found[..] else { panic!("{found:?}") };
        assert_eq!(key.node.as_str(), "eu-2");
    }
}

#[test]
fn a_key_may_stay_at_a_node_that_cannot_be_reached_and_is_gone_soon_after() {
    let mut script = Script::default();
    script.held("ann1", 0, 190).cut_off("eu-1", 150, 500).key(400, "eu-1", "ann1", 600);
    script.key(600, "eu-1", "ann1", 400);
    script.assert_clean();
    script.key(601, "eu-1", "ann1", 399);
    assert_eq!(script.found(Check::Orphans).len(), 1);
}

#[test]
fn a_node_can_be_reached_when_its_last_fault_has_healed() {
    let mut script = Script::default();
    let began =
        |fault: &str| What::FaultBegan { fault: fault.into(), nodes: vec!["eu-1".into()], clients: vec![] };
    script.held("ann1", 0, 190).record(100, began("long")).record(120, began("short"));
    script.record(200, What::FaultHealed { fault: "short".into() });
    script.record(500, What::FaultHealed { fault: "long".into() }).key(600, "eu-1", "ann1", 400);
    script.assert_clean();
    script.key(601, "eu-1", "ann1", 399);
    assert_eq!(script.found(Check::Orphans).len(), 1);
    script.record(50, began("for ever"));
    script.assert_clean();
}

#[test]
fn clocks_that_are_off_leave_a_key_more_time() {
    let mut script = Script::default();
    script.clocks(10).held("ann1", 0, 190).key(320, "eu-1", "ann1", 680);
    script.assert_clean();
    script.key(321, "eu-1", "ann1", 679);
    assert_eq!(script.found(Check::Orphans).len(), 1);
}

#[test]
fn a_fault_at_another_node_or_one_long_healed_excuses_no_key() {
    let mut script = Script::default();
    script.cut_off("eu-1", 0, 50).cut_off("eu-2", 150, 900).cut_off("eu-1", 401, 900).held("ann1", 100, 190);
    script.key(400, "eu-1", "ann1", 600);
    assert_eq!(script.found(Check::Orphans).len(), 1);
}

#[test]
fn the_keys_of_a_crashed_client_are_gone_after_the_longest_ttl() {
    let mut script = Script::default();
    script.invoked(0, "ann1").acquired(10, "ann1", 900).crashed(100, "ann").key(1_200, "eu-1", "ann1", 1);
    script.assert_clean();
    script.key(1_201, "eu-1", "ann1", 1);
    assert_eq!(script.found(Check::Orphans).len(), 1);
}

#[test]
fn a_client_that_crashes_while_it_cleans_up_leaves_its_keys_to_the_ttl() {
    Script::default().held("ann1", 0, 190).crashed(250, "ann").key(1_000, "eu-1", "ann1", 1).assert_clean();
    let mut script = Script::default();
    script.held("ann1", 0, 190).crashed(350, "ann").key(1_000, "eu-1", "ann1", 1);
    assert_eq!(script.found(Check::Orphans).len(), 1, "the time for its clean-up had passed");
}

#[test]
fn a_key_without_an_attempt_for_its_resource_is_found() {
    let mut script = Script::default();
    script.held("ann1", 0, 500).key(100, "eu-1", "unknown", 100);
    let (node, resource, attempt) = ("eu-1".into(), "orders/43".into(), "ann1".into());
    script.record(100, What::Key { node, resource, attempt, remaining: millis(100) });
    let found = script.found(Check::Orphans);
    assert!(matches!(&found[..], [Violation::Stranger { .. }, Violation::Stranger { .. }]), "{found:?}");
}

#[test]
fn a_key_lives_no_longer_than_the_longest_ttl() {
    let mut script = Script::default();
    script.held("ann1", 0, 500).key(100, "eu-1", "ann1", 1_000);
    script.assert_clean();
    script.key(100, "eu-2", "ann1", 1_001).key(100, "eu-3", "ann1", u64::MAX / 1_000_000);
    let found = script.found(Check::Orphans);
    assert!(matches!(&found[..], [Violation::KeyTooLong { .. }, Violation::KeyTooLong { .. }]), "{found:?}");
}

#[test]
fn a_counter_goes_back_only_where_data_was_lost() {
    let mut script = Script::default();
    script.counter(0, "eu-1", 5).counter(10, "eu-1", 5).counter(20, "eu-2", 3);
    script.record(30, What::Forgot { node: "eu-1".into() }).counter(40, "eu-1", 1);
    script.assert_clean();
    script.counter(50, "eu-2", 2);
    let found = script.found(Check::Orphans);
    assert!(matches!(&found[..], [Violation::CounterFell { before: 3, after: 2, .. }]), "{found:?}");
}
