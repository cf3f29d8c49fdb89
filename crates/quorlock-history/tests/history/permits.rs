use quorlock_history::{Check, History, Violation, What};

use crate::script::Script;

impl Script {
    /// Like [`Script::held`], with one of `of` permits, and its number if they have any.
    fn permit(&mut self, attempt: &str, from: u64, to: u64, of: usize, number: Option<usize>) -> &mut Script {
        self.invoked(from, attempt).record(from, What::OneOf { attempt: attempt.into(), permits: of });
        if let Some(number) = number {
            self.record(from + 10, What::Permit { attempt: attempt.into(), number });
        }
        self.acquired(from + 10, attempt, from + 1_000).released(to, attempt)
    }
}

#[test]
fn as_many_as_there_are_permits_hold_one_each() {
    let mut script = Script::default();
    script.permit("ann1", 0, 500, 2, Some(0)).permit("ben1", 100, 400, 2, Some(1));
    script.permit("cid1", 400, 800, 2, Some(1)).permit("dan1", 600, 900, 2, Some(0));
    script.assert_clean();
    let lines = script.history.to_lines();
    assert_eq!(History::from_lines(&lines).unwrap(), script.history, "{lines}");
}

/// Each node admits two of three clients on five nodes with a quorum of three: A has 1, 2, 3, B has
/// 1, 4, 5, C has 2, 3, 4.
#[test]
fn nodes_that_count_are_found_by_the_third_holder_of_two_permits() {
    let mut script = Script::default();
    script
        .permit("ann1", 0, 500, 2, None)
        .permit("ben1", 100, 400, 2, None)
        .permit("cid1", 200, 300, 2, None);
    let found = script.found(Check::Permits);
    assert!(matches!(found[..], [Violation::Overfull { holders: 3, .. }]), "{found:?}");
    assert!(found[0].to_string().contains("had 3 holders at the same time"), "{}", found[0]);
    assert_eq!(script.report().violations.len(), 1, "no other check fails");
}

/// A client that believes in ten permits takes the seventh while four believe in four: each is a mutex.
#[test]
fn holders_that_disagree_about_the_limit_are_found() {
    let mut script = Script::default();
    for (number, attempt) in ["ann1", "ben1", "cid1", "dan1"].into_iter().enumerate() {
        script.permit(attempt, 10, 500, 4, Some(number));
    }
    script.permit("eva1", 100, 300, 10, Some(7));
    let found = script.found(Check::Permits);
    assert!(matches!(found[..], [Violation::LimitsDiffer { .. }]), "{found:?}");
    assert!(found[0].to_string().contains("permit 7 of 10"), "{}", found[0]);
    script.permit("eva2", 310, 400, 4, Some(5));
    let found = script.found(Check::Permits);
    assert!(matches!(found[..], [_, Violation::Overfull { holders: 5, .. }]), "{found:?}");
}

#[test]
fn the_number_of_permits_may_change_without_holders() {
    Script::default().permit("ann1", 0, 500, 2, Some(1)).permit("ben1", 490, 800, 4, Some(3)).assert_clean();
}

#[test]
fn one_permit_for_two_is_found_as_for_a_lock() {
    let mut script = Script::default();
    script.permit("ann1", 0, 500, 2, Some(1)).permit("ben1", 100, 400, 2, Some(1));
    assert_eq!(script.found(Check::Exclusion).len(), 1);
    assert_eq!(script.found(Check::Mutex).len(), 1);
}

#[test]
fn fencing_tokens_order_the_holders_of_one_permit_and_of_no_others() {
    let history = |number: usize| {
        let mut script = Script::default();
        for (from, attempt, number, token) in
            [(0, "ann1", 0, 7), (100, "ben1", number, 7), (900, "cid1", 0, 8)]
        {
            script.fenced(from, attempt, token).released(from + 50, attempt);
            script.record(from, What::OneOf { attempt: attempt.into(), permits: 2 });
            script.record(from, What::Permit { attempt: attempt.into(), number });
        }
        script
    };
    history(1).assert_clean();
    let found = history(0).found(Check::Register);
    assert!(matches!(found[..], [Violation::TokenShared { .. }]), "{found:?}");
}
