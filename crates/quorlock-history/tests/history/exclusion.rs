use proptest::prelude::*;
use quorlock_history::{Check, Violation};

use crate::script::{Script, millis};

#[test]
fn two_holders_of_one_lock_are_found_with_their_overlap() {
    let found = Script::default().held("ann1", 0, 500).held("bob1", 400, 900).found(Check::Exclusion);
    let [Violation::Overlap { earlier, later, by }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((earlier.client.as_str(), later.client.as_str(), *by), ("ann", "bob", millis(90)));
}

#[test]
fn a_lock_may_be_taken_at_the_very_moment_it_ends() {
    Script::default().held("ann1", 0, 410).held("bob1", 400, 500).assert_clean();
}

#[test]
fn a_long_hold_is_compared_with_all_that_begin_during_it() {
    let mut script = Script::default();
    script.held("ann1", 0, 900).held("bob1", 100, 200).held("cid1", 300, 400);
    let found = script.found(Check::Exclusion);
    assert_eq!(found.len(), 2, "both acquired it while ann held it: {found:?}");
}

#[test]
fn a_hold_ends_with_the_first_of_release_validity_loss_and_crash() {
    for end in ["release", "validity", "loss", "crash"] {
        let mut script = Script::default();
        script.invoked(0, "ann1").acquired(10, "ann1", if end == "validity" { 400 } else { 800 });
        match end {
            "release" => {
                script.released(400, "ann1").lost(500, "ann1");
            }
            "loss" => {
                script.lost(400, "ann1").released(500, "ann1");
            }
            "crash" => {
                script.crashed(400, "ann");
            }
            _ => {
                script.lost(400, "ann1");
            }
        }
        let mut overlapping = Script { history: script.history.clone() };
        script.held("bob1", 390, 900);
        assert_eq!(script.found(Check::Exclusion), [], "{end}");
        overlapping.held("bob1", 389, 900);
        assert_eq!(overlapping.found(Check::Exclusion).len(), 1, "{end}");
    }
}

#[test]
fn a_renewed_lease_holds_until_its_new_end() {
    let mut script = Script::default();
    script.invoked(0, "ann1").acquired(10, "ann1", 1_000).renewed(300, "ann1", 1_300).lost(1_300, "ann1");
    script.held("bob1", 1_200, 1_400);
    assert_eq!(script.found(Check::Exclusion).len(), 1);
}

#[test]
fn clocks_that_may_be_off_leave_less_that_is_certain() {
    let mut script = Script::default();
    script.held("ann1", 0, 500).held("bob1", 400, 900);
    script.clocks(45).clocks(10);
    assert_eq!(script.found(Check::Exclusion), [], "90 ms may be 45 ms on either side");
    let mut script = Script::default();
    script.held("ann1", 0, 500).held("bob1", 400, 900);
    script.clocks(44).clocks(10);
    assert_eq!(script.found(Check::Exclusion).len(), 1, "2 ms are certain");
}

#[test]
fn locks_on_different_resources_do_not_meet() {
    use quorlock_history::What;
    let mut script = Script::default();
    script.held("ann1", 0, 500);
    let (client, resource, attempt) = ("bob".into(), "orders/43".into(), "bob1".into());
    script.record(100, What::Invoked { client, resource, attempt }).acquired(110, "bob1", 1_000);
    script.released(200, "bob1");
    script.assert_clean();
}

proptest! {
    #[test]
    fn the_sweep_finds_an_overlap_exactly_where_comparing_all_pairs_does(
        holds in prop::collection::vec((0_u64..300, 11_u64..60), 1..12)
    ) {
        let mut script = Script::default();
        for (index, (from, lasts)) in holds.iter().enumerate() {
            script.held(&format!("c{index}"), *from, from + lasts);
        }
        let overlap = |a: &(u64, u64), b: &(u64, u64)| a.0 + 10 < b.0 + b.1 && b.0 + 10 < a.0 + a.1;
        let any = holds.iter().enumerate().any(|(i, a)| holds[..i].iter().any(|b| overlap(a, b)));
        prop_assert_eq!(any, !script.found(Check::Exclusion).is_empty());
    }
}
