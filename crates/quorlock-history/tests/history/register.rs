use quorlock_history::Answer::{Accepted, Refused};
use quorlock_history::{Check, Violation};

use crate::script::Script;

#[test]
fn a_smaller_token_accepted_after_a_larger_one_is_found() {
    let mut script = Script::default();
    script.fenced(0, "ann1", 7).lost(900, "ann1").fenced(1_000, "bob1", 8).released(1_500, "bob1");
    script
        .wrote(100, "ann1", 7, Accepted)
        .wrote(1_100, "bob1", 8, Accepted)
        .wrote(1_200, "ann1", 7, Accepted);
    let found = script.found(Check::Register);
    let [Violation::TokenFell { before, after }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((before.fencing_token, after.fencing_token), (8, 7));
}

#[test]
fn writes_are_checked_without_a_known_holder() {
    let mut script = Script::default();
    script.invoked(0, "ann1").invoked(0, "bob1").crashed(50, "ann").crashed(50, "bob");
    script.wrote(10, "ann1", 8, Accepted).wrote(20, "bob1", 7, Accepted);
    assert_eq!(script.found(Check::Register).len(), 1);
}

#[test]
fn a_stale_write_that_is_refused_and_a_holder_that_writes_again_are_right() {
    let mut script = Script::default();
    script.fenced(0, "ann1", 7).lost(900, "ann1").fenced(1_000, "bob1", 8).released(1_500, "bob1");
    script
        .wrote(1_100, "bob1", 8, Accepted)
        .wrote(1_200, "ann1", 7, Refused)
        .wrote(1_300, "bob1", 8, Accepted);
    script.assert_clean();
    assert_eq!(script.report().seen.refused, 1, "the test exercises a refusal");
}

#[test]
fn a_token_that_two_attempts_have_is_found_once() {
    let mut script = Script::default();
    script.fenced(0, "ann1", 7).released(100, "ann1").fenced(200, "bob1", 7).released(300, "bob1");
    script.wrote(50, "ann1", 7, Accepted).wrote(250, "bob1", 7, Accepted).wrote(260, "bob1", 7, Accepted);
    let found = script.found(Check::Register);
    assert!(matches!(&found[..], [Violation::TokenShared { fencing_token: 7, .. }]), "{found:?}");
}

#[test]
fn a_token_shown_by_an_attempt_that_never_had_it_is_found() {
    let mut script = Script::default();
    script.fenced(0, "ann1", 7).released(100, "ann1").invoked(0, "bob1").not_acquired(20, "bob1");
    script.wrote(50, "bob1", 7, Accepted);
    let found = script.found(Check::Register);
    let [Violation::TokenShared { .. }, Violation::TokenOfAnother { own: None, .. }] = &found[..] else {
        panic!("{found:?}")
    };
}

#[test]
fn a_write_with_a_token_that_its_holder_never_got_is_found() {
    let mut script = Script::default();
    script.fenced(0, "ann1", 7).released(200, "ann1");
    script.wrote(50, "ann1", 7, Accepted).wrote(100, "ann1", 8, Accepted);
    let found = script.found(Check::Register);
    let [Violation::TokenOfAnother { write, own: Some(7) }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(write.fencing_token, 8);
}

#[test]
fn an_attempt_after_another_returned_needs_the_larger_token() {
    let mut script = Script::default();
    script.invoked(0, "dan1").fenced(0, "ann1", 9).released(100, "ann1");
    script.fenced(110, "bob1", 5).released(200, "bob1").fenced(210, "cid1", 7).released(300, "cid1");
    // dan waits all the time and constrains no other attempt.
    script.acquired_with(310, "dan1", 1_000, 10).released(400, "dan1");
    let pair = |violation: Violation| match violation {
        Violation::TokenOrder { earlier, later } => (earlier.attempt.to_string(), later.attempt.to_string()),
        other => panic!("{other}"),
    };
    let found: Vec<(String, String)> = script.found(Check::Register).into_iter().map(pair).collect();
    let both = [("ann1".into(), "bob1".into()), ("ann1".into(), "cid1".into())];
    assert_eq!(found, both, "the largest token counts, not the last");
}

#[test]
fn attempts_that_overlap_may_draw_their_tokens_in_either_order() {
    let mut script = Script::default();
    // bob asks first, waits for ann, and still has the larger token.
    script.invoked(0, "bob1").fenced(50, "ann1", 5).released(100, "ann1");
    script.acquired_with(120, "bob1", 1_000, 6).released(200, "bob1");
    script.assert_clean();
}

#[test]
fn an_order_within_the_clock_error_is_not_reported() {
    let history = |epsilon| {
        let mut script = Script::default();
        script.clocks(epsilon).fenced(0, "ann1", 9).released(12, "ann1").fenced(20, "bob1", 7);
        script.released(100, "bob1");
        script.found(Check::Register)
    };
    assert_eq!(history(4).len(), 1, "returned at 14 at the latest, began at 16 at the earliest");
    assert_eq!(history(5), [], "both may have been at 15");
}

#[test]
fn a_refused_holder_is_found() {
    let mut script = Script::default();
    script.fenced(0, "ann1", 7).wrote(100, "ann1", 7, Refused).released(200, "ann1");
    let found = script.found(Check::Register);
    assert!(matches!(&found[..], [Violation::FencedWrongly { .. }]), "{found:?}");
}

#[test]
fn a_refusal_at_the_edge_of_a_hold_is_not_reported() {
    let mut script = Script::default();
    script.clocks(20).fenced(0, "ann1", 7).released(200, "ann1");
    script.wrote(49, "ann1", 7, Refused).wrote(160, "ann1", 7, Refused).wrote(200, "ann1", 7, Refused);
    script.assert_clean();
    script.wrote(50, "ann1", 7, Refused).wrote(159, "ann1", 7, Refused);
    assert_eq!(script.found(Check::Register).len(), 2);
}
