//! The lock, in every order of events within bounds. What is broken on purpose must be found.

mod common;

use common::confirm;

#[test]
fn no_two_hold_the_lock_at_once() {
    confirm("no two hold the lock at once");
}

#[test]
fn renewals_keep_others_out() {
    confirm("renewals keep others out");
}

#[test]
fn renewals_keep_two_others_out() {
    confirm("renewals keep two others out");
}

#[test]
fn an_attempt_may_pause_before_it_counts_a_renewal() {
    confirm("an attempt may pause before it counts a renewal");
}

#[test]
fn two_addresses_of_one_server_give_one_vote() {
    confirm("two addresses of one server give one vote");
}

#[test]
fn two_of_four_nodes_are_no_quorum() {
    confirm("two of four nodes are no quorum");
}

#[test]
fn three_of_five_nodes_are_a_quorum() {
    confirm("three of five nodes are a quorum");
}

#[test]
fn a_nodes_clock_may_run_fast_within_the_allowance() {
    confirm("a node's clock may run fast within the allowance");
}

#[test]
fn an_attempts_clock_may_run_slow_within_the_allowance() {
    confirm("an attempt's clock may run slow within the allowance");
}

#[test]
fn the_margin_covers_two_roundings() {
    confirm("the margin covers two roundings");
}

#[test]
fn the_margin_covers_no_third_rounding() {
    confirm("the margin covers no third rounding");
}

#[test]
fn without_an_allowance_no_clock_may_run_fast() {
    confirm("without an allowance no clock may run fast");
}

#[test]
fn a_nodes_clock_that_runs_faster_than_allowed_lets_a_second_holder_in() {
    confirm("a node's clock that runs faster than allowed lets a second holder in");
}

#[test]
fn an_attempts_clock_that_runs_slower_than_allowed_lets_it_hold_for_too_long() {
    confirm("an attempt's clock that runs slower than allowed lets it hold for too long");
}

#[test]
fn the_allowance_has_to_cover_both_clocks_together() {
    confirm("the allowance has to cover both clocks together");
}

#[test]
fn a_node_may_forget_while_leases_are_renewed() {
    confirm("a node may forget while leases are renewed");
}

#[test]
fn nodes_may_forget_three_times() {
    confirm("nodes may forget three times");
}

#[test]
fn nodes_that_remember_vote_at_once_after_a_restart() {
    confirm("nodes that remember vote at once after a restart");
}

#[test]
fn nodes_that_remember_and_nodes_that_forget_keep_others_out_together() {
    confirm("nodes that remember and nodes that forget keep others out together");
}

#[test]
fn a_node_that_says_that_it_remembers_and_has_forgotten_lets_a_second_holder_in() {
    confirm("a node that says that it remembers and has forgotten lets a second holder in");
}

#[test]
fn what_a_renewal_stores_anew_might_count_while_the_other_rules_hold() {
    confirm("what a renewal stores anew might count while the other rules hold");
}

#[test]
fn without_a_quarantine_a_node_that_has_forgotten_votes_again() {
    confirm("without a quarantine a node that has forgotten votes again");
}

#[test]
fn a_quarantine_that_is_a_tick_shorter_than_the_ttl_is_too_short() {
    confirm("a quarantine that is a tick shorter than the TTL is too short");
}

#[test]
fn a_request_that_is_silently_sent_again_escapes_the_quarantine() {
    confirm("a request that is silently sent again escapes the quarantine");
}

#[test]
fn what_a_renewal_stores_anew_at_a_young_node_must_not_count() {
    confirm("what a renewal stores anew at a young node must not count");
}

#[test]
fn one_vote_less_than_a_quorum_is_not_enough() {
    confirm("one vote less than a quorum is not enough");
}

#[test]
fn validity_that_counts_from_the_last_vote_outlasts_the_first() {
    confirm("validity that counts from the last vote outlasts the first");
}

#[test]
fn two_addresses_of_one_server_must_not_give_two_votes() {
    confirm("two addresses of one server must not give two votes");
}

#[test]
fn a_token_used_twice_is_released_by_the_wrong_attempt() {
    confirm("a token used twice is released by the wrong attempt");
}

#[test]
fn a_release_that_compares_nothing_deletes_the_key_of_another() {
    confirm("a release that compares nothing deletes the key of another");
}

#[test]
fn a_renewal_that_shortens_a_key_breaks_the_old_deadline() {
    confirm("a renewal that shortens a key breaks the old deadline");
}

#[test]
fn a_renewal_that_counts_from_its_acknowledgements_outlasts_the_keys() {
    confirm("a renewal that counts from its acknowledgements outlasts the keys");
}

#[test]
fn a_minority_must_not_renew() {
    confirm("a minority must not renew");
}

#[test]
fn acknowledgements_after_the_deadline_revive_a_lease_after_another_holder() {
    confirm("acknowledgements after the deadline revive a lease after another holder");
}

#[test]
fn so_do_those_of_keys_that_are_stored_anew_in_fewer_steps() {
    confirm("so do those of keys that are stored anew, in fewer steps");
}

#[test]
fn a_lease_that_was_seen_to_end_must_not_be_revived() {
    confirm("a lease that was seen to end must not be revived");
}

#[test]
fn the_shortcuts_of_the_model_of_the_lock_hide_nothing() {
    confirm("the shortcuts of the model of the lock hide nothing");
}

#[test]
fn they_hide_nothing_about_renewals() {
    confirm("they hide nothing about renewals");
}

#[test]
fn they_hide_nothing_about_nodes_that_forget() {
    confirm("they hide nothing about nodes that forget");
}

#[test]
fn they_hide_nothing_about_clocks() {
    confirm("they hide nothing about clocks");
}

#[test]
fn five_nodes_and_four_attempts_never_hold_the_lock_at_once_at_random() {
    confirm("five nodes and four attempts never hold the lock at once at random");
}

#[test]
fn random_walks_find_acknowledgements_after_the_deadline() {
    confirm("random walks find acknowledgements after the deadline");
}

#[test]
fn random_walks_find_the_missing_quarantine_of_a_lock() {
    confirm("random walks find the missing quarantine of a lock");
}

#[test]
fn of_two_addresses_of_one_server_either_may_count_that_stored_the_key_anew() {
    confirm("of two addresses of one server either may count that stored the key anew");
}

#[test]
fn a_clock_that_jumps_is_outvoted_where_more_than_a_quorum_has_the_key() {
    confirm("a clock that jumps is outvoted where more than a quorum has the key");
}

#[test]
fn a_clock_that_jumps_at_a_bare_quorum_lets_a_second_holder_in() {
    confirm("a clock that jumps at a bare quorum lets a second holder in");
}

#[test]
fn a_process_is_no_older_than_its_first_client_has_noted() {
    confirm("a process is no older than its first client has noted");
}

#[test]
fn a_process_that_nobody_has_noted_looks_older_than_it_is() {
    confirm("a process that nobody has noted looks older than it is");
}

#[test]
fn a_clock_that_is_put_forward_before_any_client_comes_is_not_noticed() {
    confirm("a clock that is put forward before any client comes is not noticed");
}

#[test]
fn an_event_loop_that_has_hardly_turned_shows_it() {
    confirm("an event loop that has hardly turned shows it");
}

#[test]
fn a_copy_that_draws_the_same_token_holds_the_lock_beside_the_first() {
    confirm("a copy that draws the same token holds the lock beside the first");
}

#[test]
fn two_servers_behind_one_address_make_two_quorums() {
    confirm("two servers behind one address make two quorums");
}

#[test]
fn a_clock_that_jumps_after_a_renewal_that_only_a_quorum_has_confirmed_is_not_outvoted() {
    confirm("a clock that jumps after a renewal that only a quorum has confirmed is not outvoted");
}
