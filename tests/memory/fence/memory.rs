//! The rule, and the checks in memory.

use std::thread;

use proptest::prelude::*;
use quorlock::FencingToken;
use quorlock::fence::{Gate, Guarded, check};

use super::{goes_down, token};

proptest! {
    #[test]
    fn a_token_not_below_the_largest_is_accepted(arrivals in prop::collection::vec(0..9_u64, 0..40)) {
        let gate = Gate::new();
        let guarded = Guarded::new(Vec::new());
        let mut newest: Option<FencingToken> = None;
        for number in arrivals {
            let expected = newest.is_none_or(|newest| token(number) >= newest);
            prop_assert_eq!(check(newest, token(number)).is_ok(), expected);
            prop_assert_eq!(gate.admit(token(number)).is_ok(), expected);
            prop_assert_eq!(guarded.with(token(number), |seen| seen.push(number)).is_ok(), expected);
            newest = newest.max(Some(token(number)));
        }
        prop_assert_eq!(gate.newest(), newest.unwrap_or(FencingToken::ZERO));
        let accepted = guarded.with(FencingToken::MAX, std::mem::take).unwrap();
        prop_assert!(!goes_down(&accepted), "{:?}", accepted);
    }
}

#[test]
fn racing_threads_write_guarded_data_in_token_order() {
    let guarded = Guarded::new(Vec::new());
    thread::scope(|scope| {
        for first in 0..4 {
            let guarded = &guarded;
            scope.spawn(move || {
                for number in (first..4_000).step_by(4) {
                    // The refused ones are those that were overtaken.
                    guarded.with(token(number), |seen| seen.push(number)).unwrap_or(());
                }
            });
        }
    });
    let accepted = guarded.with(FencingToken::MAX, std::mem::take).unwrap();
    assert_eq!(accepted.last(), Some(&3_999), "nothing overtakes the largest");
    assert!(!goes_down(&accepted));
}

#[test]
fn threads_that_race_for_a_gate_leave_the_largest() {
    let gate = Gate::new();
    thread::scope(|scope| {
        for first in 0..4 {
            let gate = &gate;
            scope.spawn(move || {
                for number in (first..4_000).step_by(4) {
                    gate.admit(token(number)).unwrap_or(());
                }
            });
        }
    });
    assert_eq!(gate.newest(), token(3_999));
}

#[test]
fn a_gate_orders_entry_and_not_the_work_after_it() {
    let gate = Gate::new();
    let mut written = Vec::new();
    gate.admit(token(33)).unwrap();
    gate.admit(token(34)).unwrap();
    written.push(34);
    written.push(33); // admitted earlier, and slower
    assert!(goes_down(&written), "this is why `Guarded` exists");
}

#[test]
fn data_whose_writer_panics_is_still_guarded() {
    let guarded = Guarded::new(100);
    let panics = thread::scope(|scope| {
        scope.spawn(|| guarded.with(token(34), |_| panic!("intended"))).join().is_err()
    });
    assert!(panics);
    guarded.with(token(33), |_| ()).expect_err("34 was here");
    assert_eq!(guarded.with(token(34), |data| *data), Ok(100));
}

#[test]
fn a_refusal_names_its_reason_and_the_fix() {
    let stale = check(Some(token(34)), token(33)).unwrap_err();
    assert_eq!(
        stale.to_string(),
        "fencing token 33 is stale: the store has seen 34, so another client has held the lock since; \
         acquire the lock again and start over from reading"
    );
}
