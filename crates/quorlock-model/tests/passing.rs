//! A lease that is passed on, in every order of events within bounds. What is broken on purpose must be
//! found.

mod common;

use common::confirm;

#[test]
fn a_lease_that_is_passed_on_excludes_whoever_else_wants_the_lock() {
    confirm("a lease that is passed on excludes whoever else wants the lock");
}

#[test]
fn a_transfer_that_overwrites_whatever_stands_makes_two_holders() {
    confirm("a transfer that overwrites whatever stands makes two holders");
}

#[test]
fn a_transfer_that_a_minority_confirms_makes_two_holders() {
    confirm("a transfer that a minority confirms makes two holders");
}

#[test]
fn a_passed_lease_that_counts_from_its_votes_makes_two_holders() {
    confirm("a passed lease that counts from its votes makes two holders");
}

#[test]
fn a_lease_that_goes_on_while_the_next_one_begins_makes_two_holders() {
    confirm("a lease that goes on while the next one begins makes two holders");
}
