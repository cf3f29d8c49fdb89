//! The cases of fencing tokens.

cases! {
    fn the_scheme_never_hands_out_a_number_twice_or_out_of_order();
    fn hints_change_nothing_about_it();
    fn three_attempts_keep_the_order_as_well();
    fn locks_that_share_counters_keep_their_order_by_two_commands();
    fn clocks_of_nodes_may_be_put_forward_and_back();
    fn the_shortcuts_of_the_model_hide_nothing_that_breaks_the_scheme();
    fn without_a_write_back_a_number_is_handed_out_twice();
    fn a_write_back_to_counters_that_are_ahead_hands_out_a_number_twice();
    fn a_write_back_to_counters_that_are_there_already_hands_out_a_number_twice();
    fn nodes_may_forget_while_clocks_agree_within_half_of_the_quarantine();
    fn a_clock_that_is_far_ahead_does_no_harm_since_nodes_cut_its_hint();
    fn clocks_that_differ_by_the_quarantine_break_the_order_once_a_node_forgets();
    fn clocks_of_nodes_that_are_put_far_back_break_the_order_once_a_node_forgets();
    fn without_a_quarantine_nodes_must_not_forget();
    fn attempts_that_outlast_the_quarantine_hand_out_a_number_twice();
    fn five_nodes_and_four_attempts_keep_the_order_at_random();
    fn five_nodes_share_counters_at_random();
    fn five_nodes_may_forget_at_random();
    fn random_walks_find_the_missing_write_back();
    fn random_walks_find_write_backs_to_counters_that_are_ahead();
    fn random_walks_find_write_backs_to_counters_that_are_there_already();
    fn random_walks_find_the_missing_quarantine();
}
