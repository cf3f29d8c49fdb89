//! Shared locks, in every order of events within bounds. What is broken on purpose must be found.

mod common;

use common::confirm;

#[test]
fn readers_share_the_lock_and_a_writer_has_it_alone() {
    confirm("readers share the lock and a writer has it alone");
}

#[test]
fn two_writers_and_a_reader_exclude_each_other() {
    confirm("two writers and a reader exclude each other");
}

#[test]
fn a_writer_may_become_a_reader_and_readers_renew() {
    confirm("a writer may become a reader, and readers renew");
}

#[test]
fn five_nodes_readers_writers_and_downgrades_at_random() {
    confirm("five nodes, readers, writers and downgrades at random");
}

#[test]
fn one_time_for_all_readers_ends_before_the_last_of_them() {
    confirm("one time for all readers ends before the last of them");
}

#[test]
fn a_count_of_readers_is_lowered_by_one_that_has_ended() {
    confirm("a count of readers is lowered by one that has ended");
}

#[test]
fn a_reader_that_leaves_must_not_take_the_time_of_the_others_along() {
    confirm("a reader that leaves must not take the time of the others along");
}

#[test]
fn a_writer_whose_downgrade_failed_is_not_alone_any_more() {
    confirm("a writer whose downgrade failed is not alone any more");
}

#[test]
fn a_minority_must_not_confirm_a_downgrade() {
    confirm("a minority must not confirm a downgrade");
}

#[test]
fn without_an_intent_readers_that_keep_coming_go_before_a_writer() {
    confirm("without an intent readers that keep coming go before a writer");
}

#[test]
fn an_intent_at_one_node_does_not_keep_readers_out() {
    confirm("an intent at one node does not keep readers out");
}
