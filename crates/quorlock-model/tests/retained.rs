//! A lock that stays taken, in every order of events within bounds. What is broken on purpose must be found.

mod common;

use common::confirm;

#[test]
fn a_slot_that_was_confirmed_has_one_run() {
    confirm("a slot that was confirmed has one run");
}

#[test]
fn a_host_that_releases_first_and_retains_then_lets_another_run_in_between() {
    confirm("a host that releases first and retains then lets another run in between");
}

#[test]
fn a_slot_that_a_minority_confirms_has_two_runs() {
    confirm("a slot that a minority confirms has two runs");
}

#[test]
fn a_slot_that_is_confirmed_after_the_end_of_the_lease_has_two_runs() {
    confirm("a slot that is confirmed after the end of the lease has two runs");
}

#[test]
fn a_slot_that_is_kept_for_one_ttl_has_two_runs() {
    confirm("a slot that is kept for one TTL has two runs");
}

#[test]
fn a_slot_that_only_a_quorum_has_is_run_again_when_one_node_forgets_it() {
    confirm("a slot that only a quorum has is run again when one node forgets it");
}

#[test]
fn a_lost_renewal_does_not_take_the_lock_again_after_the_slot() {
    confirm("a lost renewal does not take the lock again after the slot");
}

#[test]
fn a_lost_renewal_that_nobody_stops_takes_the_lock_again_after_the_slot() {
    confirm("a lost renewal that nobody stops takes the lock again after the slot");
}

#[test]
fn a_renewal_that_is_cancelled_before_the_slot_is_certain_lets_another_run() {
    confirm("a renewal that is cancelled before the slot is certain lets another run");
}
