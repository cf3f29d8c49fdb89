//! The cases of the engine that ships.
//!
//! Three models wrote a piece of the client themselves. What the wrong variants of two of them did, these cases find on
//! the machines that ship:
//!
//! | wrong variant | case |
//! |---|---|
//! | a kept lock is released first, and asked for again | `a_host_that_releases_first_…` |
//! | a minority confirms it | `a_slot_that_a_minority_confirms_…` |
//! | it is confirmed after the end of the lease | `a_slot_that_is_confirmed_after_…` |
//! | nodes keep it for one TTL | `a_slot_that_is_kept_for_one_ttl_…` |
//! | a renewal in an unknown state is not stopped; or too early | `a_lost_renewal_that_is_not_cancelled_…`, `a_renewal_that_is_cancelled_before_…` |
//! | a waiter asks once, and then only listens | `without_heartbeats_…` |
//! | a turn lasts until it is taken | `a_turn_that_never_expires_…` |
//! | who gives up a turn notifies no one | `a_turn_given_up_without_a_hint_…` |
//! | a waiter has no place | `a_waiter_without_a_place_…` |
//! | a release leaves the turn of its waiter | `a_turn_that_outlives_…` |
//!
//! The third is `first_come`, for stores that serve in order of arrival.

cases! {
    fn the_shipped_machine_excludes_another_client();
    fn a_client_of_the_shipped_machine_may_crash();
    fn a_released_lock_stays_free_whatever_arrives_late();
    fn a_lease_is_renewed_and_given_back_while_connections_are_lost();
    fn a_lease_is_passed_on_while_a_connection_is_lost();
    fn a_lease_that_is_passed_on_excludes_other_clients();
    fn a_server_that_ends_earlier_connections_needs_no_tombstones();
    fn three_clients_of_the_shipped_machine_on_five_nodes_at_random();
    fn an_unknown_claim_that_is_only_released_comes_back();
    fn an_unknown_claim_forgotten_after_a_later_answer_comes_back();
    fn an_unknown_claim_left_by_a_transfer_comes_back();
    fn a_transfer_that_overwrites_any_key_makes_two_holders();
    fn a_transfer_that_a_minority_confirms_makes_two_holders();
    fn a_passed_lease_that_counts_from_its_votes_makes_two_holders();
    fn a_lease_that_goes_on_while_the_next_one_begins_makes_two_holders();
    fn a_vote_that_ignores_the_tombstone_comes_back();
    fn a_call_that_is_given_up_and_takes_nothing_back_leaves_a_key();
    fn a_lease_that_counts_from_its_votes_overlaps_the_next();
    fn a_vote_less_than_a_quorum_lets_a_second_client_in();
    fn a_restarted_node_that_votes_at_once_lets_a_second_client_in();
    fn a_number_that_no_quorum_carries_is_handed_out_again();
    fn a_renewal_that_counts_from_its_answers_overlaps_the_next_lease();
    fn a_lost_connection_that_is_reported_request_by_request_leaves_a_key();
    fn a_slot_that_was_confirmed_has_one_run();
    fn a_lost_renewal_does_not_take_the_lock_again_after_the_slot();
    fn a_host_that_releases_first_and_retains_then_lets_another_run_in_between();
    fn a_slot_that_a_minority_confirms_has_two_runs();
    fn a_slot_that_is_confirmed_after_the_end_of_the_lease_has_two_runs();
    fn a_slot_that_is_kept_for_one_ttl_has_two_runs();
    fn a_slot_that_only_a_quorum_has_is_run_again_when_one_node_forgets_it();
    fn a_lost_renewal_that_is_not_cancelled_takes_the_lock_after_the_slot();
    fn a_renewal_taken_for_carried_out_by_the_answer_on_another_connection_comes_back();
    fn a_renewal_that_is_cancelled_before_the_slot_is_certain_lets_another_run();
    fn live_waiters_are_never_stranded_by_crashes_and_lost_messages();
    fn a_waiter_in_the_queue_is_passed_over_once_by_each_other_at_most();
    fn three_clients_wait_in_the_queues_of_three_nodes_at_random();
    fn without_heartbeats_waiters_behind_a_crashed_one_are_stranded();
    fn a_turn_that_never_expires_strands_waiters_behind_a_crashed_one();
    fn a_turn_given_up_without_a_hint_strands_waiters_that_only_listen();
    fn a_waiter_without_a_place_is_passed_over_again_and_again();
    fn a_turn_that_outlives_the_release_of_its_waiter_keeps_others_from_a_free_lock();
}
