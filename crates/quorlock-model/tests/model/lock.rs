//! The cases of the lock.

cases! {
    #[test]
    fn no_two_hold_the_lock_together();
    #[test]
    fn renewals_keep_others_out();
    #[test]
    fn renewals_keep_two_others_out();
    #[test]
    fn an_attempt_may_pause_before_it_counts_a_renewal();
    #[test]
    fn two_addresses_of_one_server_give_one_vote();
    #[test]
    fn two_of_four_nodes_are_no_quorum();
    #[test]
    fn three_of_five_nodes_are_a_quorum();
    #[test]
    fn a_nodes_clock_may_run_fast_within_the_allowance();
    #[test]
    fn an_attempts_clock_may_run_slow_within_the_allowance();
    #[test]
    fn the_margin_covers_two_roundings();
    #[test]
    fn the_margin_covers_no_third_rounding();
    #[test]
    fn without_an_allowance_no_clock_may_run_fast();
    #[test]
    fn a_nodes_clock_that_runs_faster_than_allowed_lets_a_second_holder_in();
    #[test]
    fn an_attempts_clock_that_runs_slower_than_allowed_lets_it_hold_for_too_long();
    #[test]
    fn the_allowance_has_to_cover_both_clocks_together();
    #[test]
    fn a_node_may_forget_while_leases_are_renewed();
    #[test]
    fn nodes_may_forget_three_times();
    #[test]
    fn nodes_that_keep_their_data_vote_right_after_a_restart();
    #[test]
    fn nodes_with_and_without_persistence_keep_others_out_together();
    #[test]
    fn a_node_that_falsely_declares_persistence_lets_a_second_holder_in();
    #[test]
    fn a_key_restored_by_a_renewal_may_count_under_the_other_rules();
    #[test]
    fn without_a_quarantine_a_node_that_lost_its_data_votes_again();
    #[test]
    fn a_quarantine_that_is_a_tick_shorter_than_the_ttl_is_too_short();
    #[test]
    fn a_request_that_is_silently_sent_again_escapes_the_quarantine();
    #[test]
    fn a_key_restored_on_a_young_node_must_not_count();
    #[test]
    fn one_vote_less_than_a_quorum_is_not_enough();
    #[test]
    fn validity_that_counts_from_the_last_vote_outlasts_the_first();
    #[test]
    fn two_addresses_of_one_server_must_not_give_two_votes();
    #[test]
    fn a_token_used_twice_is_released_by_the_wrong_attempt();
    #[test]
    fn a_release_that_compares_nothing_deletes_the_key_of_another();
    #[test]
    fn a_renewal_that_shortens_a_key_breaks_the_old_deadline();
    #[test]
    fn a_renewal_that_counts_from_its_acknowledgements_outlasts_the_keys();
    #[test]
    fn a_minority_must_not_renew();
    #[test]
    fn acknowledgements_after_the_deadline_revive_a_lease_after_another_holder();
    #[test]
    fn acknowledgements_of_restored_keys_revive_it_in_fewer_steps();
    #[test]
    fn a_lease_whose_end_was_observed_is_not_revived();
    #[test]
    fn the_shortcuts_of_the_model_of_the_lock_hide_nothing();
    #[test]
    fn they_hide_nothing_about_renewals();
    #[test]
    fn they_hide_nothing_about_nodes_that_forget();
    #[test]
    fn they_hide_nothing_about_clocks();
    #[test]
    fn five_nodes_and_four_attempts_exclude_each_other_at_random();
    #[test]
    fn random_walks_find_acknowledgements_after_the_deadline();
    #[test]
    fn random_walks_find_the_missing_quarantine_of_a_lock();
    #[test]
    fn either_of_two_addresses_of_a_server_may_count_a_restored_key();
    #[test]
    fn a_clock_that_jumps_is_outvoted_where_more_than_a_quorum_has_the_key();
    #[test]
    fn a_clock_that_jumps_at_a_bare_quorum_lets_a_second_holder_in();
    #[test]
    fn a_process_is_no_older_than_its_first_client_noted();
    #[test]
    fn a_process_that_no_client_has_noted_looks_older_than_it_is();
    #[test]
    fn a_clock_that_is_put_forward_before_any_client_comes_is_not_noticed();
    #[test]
    fn an_event_loop_that_has_hardly_turned_shows_it();
    #[test]
    fn a_copy_that_draws_the_same_token_is_a_second_holder();
    #[test]
    fn two_servers_at_one_address_make_two_quorums();
    #[test]
    fn a_clock_that_jumps_after_a_renewal_that_only_a_quorum_has_confirmed_is_not_outvoted();
}
