//! A semaphore, in every order of events within bounds. What is broken on purpose must be found.

mod common;

use common::confirm;

#[test]
fn slots_admit_no_third_to_two_permits_on_five_nodes() {
    confirm("slots admit no third to two permits on five nodes");
}

#[test]
fn nodes_that_count_admit_a_third_to_two_permits() {
    confirm("nodes that count admit a third to two permits");
}

#[test]
fn clients_that_differ_about_the_limit_never_hold_permits_at_once() {
    confirm("clients that differ about the limit never hold permits at once");
}

#[test]
fn limits_that_nobody_compares_let_too_many_in() {
    confirm("limits that nobody compares let too many in");
}
