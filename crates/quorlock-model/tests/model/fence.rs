//! The cases of fencing tokens.

cases! {
    fn the_scheme_never_hands_out_a_number_twice_or_out_of_order();
    fn hints_change_nothing_about_it();
    fn three_attempts_keep_the_order_as_well();
    fn without_a_write_back_a_number_is_handed_out_twice();
    fn a_write_back_to_nodes_whose_key_has_gone_hands_out_a_number_twice();
    fn a_write_back_to_counters_that_are_ahead_hands_out_a_number_twice();
    fn the_shortcuts_of_the_model_hide_nothing_that_breaks_the_scheme();
    fn nodes_may_forget_while_clocks_agree_within_half_of_the_quarantine();
    fn clocks_that_differ_by_the_quarantine_break_the_order_once_a_node_forgets();
    fn a_clock_that_is_far_ahead_does_no_harm_since_nodes_cut_its_hint();
    fn without_a_quarantine_nodes_must_not_forget();
    fn attempts_that_outlast_the_quarantine_hand_out_a_number_twice();
    fn counters_may_end_whatever_the_clocks_of_clients_show();
    fn a_node_without_a_counter_that_draws_from_any_hint_breaks_the_order();
    fn a_node_without_a_counter_that_confirms_any_number_breaks_the_order();
    fn counters_may_end_early_by_clocks_that_are_put_forward();
    fn counters_that_ended_by_clocks_put_forward_and_back_break_the_order();
    fn locks_that_share_counters_keep_their_order_by_two_commands();
    fn a_write_back_to_counters_that_are_there_already_hands_out_a_number_twice();
    fn counters_that_are_kept_bear_a_clock_that_is_put_forward_and_back();
    fn five_nodes_share_counters_at_random();
    fn five_nodes_and_four_attempts_keep_the_order_at_random();
    fn random_walks_find_the_missing_write_back();
    fn random_walks_find_write_backs_to_nodes_whose_key_has_gone();
    fn random_walks_find_write_backs_to_counters_that_are_ahead();
    fn five_nodes_may_forget_at_random();
    fn random_walks_find_the_missing_quarantine();
}
