//! Several locks at once, in every order of events within bounds. What is broken on purpose must be
//! found.

mod common;

use common::confirm;

#[test]
fn overlapping_sets_and_a_lock_alone_exclude_each_other() {
    confirm("overlapping sets and a lock alone exclude each other");
}

#[test]
fn leases_of_several_are_renewed_and_a_node_loses_one_key_of_them() {
    confirm("leases of several are renewed, and a node loses one key of them");
}

#[test]
fn sets_and_locks_on_five_nodes_at_random_with_keys_that_are_lost() {
    confirm("sets and locks on five nodes at random, with keys that are lost");
}

#[test]
fn those_who_take_one_lock_after_the_other_wait_for_each_other() {
    confirm("those who take one lock after the other wait for each other");
}

#[test]
fn a_node_that_stores_some_of_the_keys_must_not_vote() {
    confirm("a node that stores some of the keys must not vote");
}

#[test]
fn a_node_that_has_lost_one_of_the_keys_must_not_confirm() {
    confirm("a node that has lost one of the keys must not confirm");
}
