use proptest::prelude::*;
use quorlock_history::{Check, Expectations, Violation, check};

use crate::script::{Script, at, expect};

#[test]
fn waiting_for_a_mutex_is_no_offence() {
    let mut script = Script::default();
    script.invoked(0, "bob1").invoked(0, "cid1").held("ann1", 0, 100);
    script.acquired(115, "cid1", 1_000).released(200, "cid1");
    script.acquired(215, "bob1", 1_000).released(300, "bob1");
    script.assert_clean();
}

#[test]
fn an_acquisition_that_nothing_made_room_for_is_found() {
    let found = Script::default().held("ann1", 0, 500).held("bob1", 100, 200).found(Check::Mutex);
    let [Violation::NoOrder { hold, placed: 1, operations: 4, for_tokens: false }] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(hold.client.as_str(), "bob");
}

#[test]
fn a_token_that_does_not_grow_leaves_no_order() {
    for second in [7, 6] {
        let mut script = Script::default();
        script.fenced(0, "ann1", 7).released(100, "ann1").fenced(200, "bob1", second).released(300, "bob1");
        let found = script.found(Check::Mutex);
        assert!(
            matches!(found[..], [Violation::NoOrder { for_tokens: true, .. }]),
            "7 and then {second}: {found:?}"
        );
    }
}

#[test]
fn failed_and_unreturned_attempts_change_nothing() {
    let mut script = Script::default();
    script.held("ann1", 0, 500).invoked(100, "bob1").not_acquired(110, "bob1");
    script.invoked(100, "cid1").crashed(200, "cid").held("dan1", 600, 700);
    script.assert_clean();
}

#[test]
fn a_release_that_never_returned_frees_the_mutex_whenever_it_has_to() {
    let mut script = Script::default();
    script.invoked(0, "ann1").acquired(10, "ann1", 1_000);
    script.record(100, quorlock_history::What::Releasing { attempt: "ann1".into() });
    script.held("bob1", 200, 300).held("cid1", 900, 950);
    assert_eq!(script.found(Check::Mutex), []);
}

#[test]
fn clocks_that_are_off_may_explain_an_order() {
    let release_and_acquire = |epsilon| {
        let mut script = Script::default();
        script.clocks(epsilon).held("ann1", 0, 500).invoked(100, "bob1").acquired(494, "bob1", 1_000);
        script.released(600, "bob1").found(Check::Mutex).len()
    };
    assert_eq!((release_and_acquire(2), release_and_acquire(3)), (1, 0), "both may have been at 497");
    let tokens = |epsilon| {
        let mut script = Script::default();
        script.clocks(epsilon).fenced(0, "ann1", 9).released(12, "ann1");
        script.invoked(20, "bob1").acquired_with(20, "bob1", 1_000, 7).released(20, "bob1");
        script.found(Check::Mutex).len()
    };
    assert_eq!((tokens(4), tokens(5)), (1, 0), "bob may have been first, if ann waited for him");
}

#[test]
fn a_search_that_takes_too_long_says_so() {
    let mut script = Script::default();
    script.held("ann1", 0, 100).held("bob1", 200, 300);
    let report = check(&script.history, &expect().search_steps(3));
    assert_eq!(
        report.gave_up.iter().map(quorlock_history::Resource::as_str).collect::<Vec<_>>(),
        ["orders/42"]
    );
    assert!(!report.is_clean(), "an inconclusive check is not a pass");
    assert!(report.to_string().contains("gave up on `orders/42`"), "{report}");
}

/// A few holds at any times, with or without tokens.
fn any_holds() -> impl Strategy<Value = Vec<(u64, u64, u64, Option<u64>)>> {
    let hold = (0_u64..60, 0_u64..40, 0_u64..40, prop::option::of(1_u64..6));
    prop::collection::vec(hold, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_search_agrees_with_trying_all_orders(holds in any_holds()) {
        let mut script = Script::default();
        for (index, &(invoked, takes, lasts, fencing_token)) in holds.iter().enumerate() {
            let (attempt, acquired) = (format!("c{index}"), invoked + takes);
            let what = quorlock_history::What::Acquired {
                attempt: attempt.as_str().into(), deadline: at(acquired + 1_000), fencing_token,
            };
            script.invoked(invoked, &attempt).record(acquired, what).released(acquired + lasts, &attempt);
        }
        let report = check(&script.history, &Expectations::new());
        prop_assert_eq!(explained(&holds), report.of(Check::Mutex).next().is_none(), "{}", report);
    }
}

/// Tries all orders of the holds: each takes and releases the mutex as early as it may, which is
/// possible if any order is.
fn explained(holds: &[(u64, u64, u64, Option<u64>)]) -> bool {
    fn rest(left: &[(u64, u64, u64, Option<u64>)], free: u64, last: u64) -> bool {
        left.is_empty()
            || (0..left.len()).any(|chosen| {
                let (invoked, takes, lasts, token) = left[chosen];
                let earliest = invoked.max(free);
                let fits = earliest <= invoked + takes && token.is_none_or(|token| token > last);
                let mut others = left.to_vec();
                others.remove(chosen);
                fits && rest(&others, invoked + takes + lasts, token.unwrap_or(last))
            })
    }
    rest(holds, 0, 0)
}
