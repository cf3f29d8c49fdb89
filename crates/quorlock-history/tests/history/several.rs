//! An attempt at several resources holds all of them, or none.

use std::time::Duration;

use quorlock_history::{Check, What};

use crate::script::{Script, at};

impl Script {
    fn wants(&mut self, when: u64, attempt: &str, resource: &str) -> &mut Script {
        self.record(when, What::Wants { attempt: attempt.into(), resource: resource.into() })
    }

    fn invoked_for(&mut self, when: u64, attempt: &str, resource: &str) -> &mut Script {
        let client = attempt.trim_end_matches(|c: char| c.is_ascii_digit()).into();
        self.record(when, What::Invoked { client, resource: resource.into(), attempt: attempt.into() })
    }

    fn fenced_for(&mut self, from: u64, attempt: &str, resource: &str, token: u64, to: u64) -> &mut Script {
        self.invoked_for(from, attempt, resource).acquired_with(from + 10, attempt, from + 1_000, token);
        self.released(to, attempt)
    }
}

/// Ann holds `orders/42` and the invoice from 10 to 500.
fn ann() -> Script {
    let mut script = Script::default();
    script.invoked(0, "ann1").wants(0, "ann1", "invoice").acquired_with(10, "ann1", 1_000, 7);
    script.released(500, "ann1");
    script
}

#[test]
fn a_hold_of_several_excludes_at_each_of_them_and_nowhere_else() {
    let mut script = ann();
    script.fenced_for(510, "ben1", "invoice", 8, 600).fenced_for(100, "cid1", "another", 5, 200);
    script.assert_clean();
    for resource in ["orders/42", "invoice"] {
        let mut script = ann();
        script.fenced_for(100, "ben1", resource, 8, 200);
        assert_eq!(script.found(Check::Exclusion).len(), 1, "{resource}");
        assert_eq!(script.found(Check::Mutex).len(), 1, "{resource}, by the other algorithm");
    }
}

#[test]
fn a_token_of_several_is_ordered_at_each_of_them() {
    for resource in ["orders/42", "invoice"] {
        let mut script = ann();
        script.fenced_for(600, "ben1", resource, 6, 700);
        assert!(!script.found(Check::Register).is_empty(), "{resource}");
    }
}

#[test]
fn a_key_of_several_belongs_to_its_attempt_while_that_lasts_and_outlives_it_as_an_orphan() {
    let key = |resource: &str| What::Key {
        node: "n1".into(),
        resource: resource.into(),
        attempt: "ann1".into(),
        remaining: Duration::from_millis(300),
    };
    let mut script = ann();
    script.record(200, key("invoice")).record(200, key("orders/42"));
    script.assert_clean();
    for (when, resource) in [(900, "invoice"), (900, "orders/42"), (200, "another")] {
        let mut script = ann();
        script.history.record(at(when), key(resource));
        assert_eq!(script.found(Check::Orphans).len(), 1, "{resource} at {when}");
    }
}

#[test]
fn what_is_wanted_after_the_return_makes_no_sense() {
    let mut script = ann();
    script.wants(600, "ann1", "late");
    assert_eq!(script.found(Check::Record).len(), 1);
}
