//! The cases of offers.

cases! {
    #[test]
    fn offers_keep_others_out();
    #[test]
    fn the_shortcuts_of_the_model_of_offers_hide_nothing();
    #[test]
    fn offers_keep_others_out_from_the_first_attempt_on();
    #[test]
    fn an_offer_may_live_for_less_long_than_a_lease();
    #[test]
    fn an_offered_lease_may_be_renewed_while_a_node_loses_data();
    #[test]
    fn nodes_may_forget_three_times_while_leases_are_offered();
    #[test]
    fn a_node_that_keeps_its_data_may_notify_a_waiter_twice();
    #[test]
    fn a_nodes_clock_may_run_fast_while_leases_are_offered();
    #[test]
    fn a_waiters_clock_may_run_slow_within_the_allowance();
    #[test]
    fn a_key_restored_by_a_renewal_may_count_for_an_offer();
    #[test]
    fn an_offer_might_be_stored_where_no_key_stands();
    #[test]
    fn an_offer_might_be_stored_where_no_key_stands_without_the_shortcuts();
    #[test]
    fn offers_keep_the_order_of_numbers();
    #[test]
    fn offers_keep_the_order_of_numbers_without_any_clock();
    #[test]
    fn offers_keep_the_order_of_numbers_without_the_shortcuts();
    #[test]
    fn renewals_keep_the_order_of_numbers_that_were_offered();
    #[test]
    fn offers_keep_the_order_while_a_node_forgets_and_calendars_agree();
    #[test]
    fn offers_where_no_key_stands_keep_the_order_of_numbers();
    #[test]
    fn offers_where_no_key_stands_keep_the_order_while_a_node_forgets();
    #[test]
    fn an_offer_that_counts_from_its_push_makes_two_holders();
    #[test]
    fn an_offer_that_counts_from_a_later_question_makes_two_holders();
    #[test]
    fn a_message_that_no_node_has_sent_makes_two_holders();
    #[test]
    fn an_offer_to_another_waiter_that_counts_makes_two_holders();
    #[test]
    fn offers_to_two_tokens_of_a_waiter_that_are_added_make_two_holders();
    #[test]
    fn an_offer_that_replaces_any_key_makes_two_holders();
    #[test]
    fn a_holder_that_waits_for_answers_to_its_offers_is_not_alone();
    #[test]
    fn a_token_that_counts_after_its_release_makes_two_holders();
    #[test]
    fn restored_keys_revive_an_offered_lease_after_another_holder();
    #[test]
    fn an_offer_by_a_process_that_is_too_young_makes_two_holders();
    #[test]
    fn without_a_quarantine_a_lost_offer_is_granted_again();
    #[test]
    fn an_offer_that_outlives_the_quarantine_makes_two_holders();
    #[test]
    fn a_node_whose_two_pushes_count_twice_makes_two_holders();
    #[test]
    fn an_offer_that_a_minority_has_stored_makes_two_holders();
    #[test]
    fn an_offer_that_is_taken_up_after_its_end_makes_two_holders();
    #[test]
    fn a_nodes_clock_that_is_too_fast_ends_an_offer_still_relied_on();
    #[test]
    fn a_waiters_clock_that_is_too_slow_lets_it_hold_for_too_long();
    #[test]
    fn an_offered_number_that_is_not_above_the_counter_breaks_the_order();
    #[test]
    fn an_offered_number_that_no_quorum_carries_breaks_the_order();
    #[test]
    fn an_offered_number_that_is_not_above_the_waiters_calendar_breaks_the_order_once_a_node_forgets();
    #[test]
    fn five_nodes_keep_others_out_of_what_is_offered_at_random();
    #[test]
    fn five_nodes_keep_the_order_of_what_is_offered_at_random();
    #[test]
    fn random_walks_find_an_offered_number_that_no_quorum_carries();
    #[test]
    fn random_walks_find_offers_that_replace_any_key();
}
