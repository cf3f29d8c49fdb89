//! The cases of fencing tokens.

use super::Scheme::{AnyNodeConfirms, EqualConfirms, NoWriteBack, Quorlock};
use super::{Fence, Scheme, World};

cases! {
    // No node loses data, so no clock matters.
    holds prove the_scheme_never_hands_out_a_number_twice_or_out_of_order:
        two_attempts(Quorlock, World::timeless(&[0]));
    holds prove hints_change_nothing_about_it: two_attempts(Quorlock, World::timeless(&[0, 1, 2, 3]));
    holds prove three_attempts_keep_the_order_as_well:
        three_attempts(Quorlock, World { counters_up_to: 1, ..World::timeless(&[0]) });
    holds prove locks_that_share_counters_keep_their_order_by_two_commands:
        two_attempts(Quorlock, World::shared(&[0, 2]));
    holds prove clocks_of_nodes_may_be_put_forward_and_back: two_attempts(Quorlock, World { ticks: 1, ..World::stepping(2) });
    holds prove the_shortcuts_of_the_model_hide_nothing_that_breaks_the_scheme:
        two_attempts(Quorlock, World::literal());
    violated hunt without_a_write_back_a_number_is_handed_out_twice:
        two_attempts(NoWriteBack, World::timeless(&[0]));
    violated hunt a_write_back_to_counters_that_are_ahead_hands_out_a_number_twice:
        two_attempts(AnyNodeConfirms, World::timeless(&[0]));
    violated hunt a_write_back_to_counters_that_are_there_already_hands_out_a_number_twice:
        two_attempts(EqualConfirms, World::timeless(&[0]));

    // Nodes lose their counters, so clocks keep the order.
    holds prove nodes_may_forget_while_clocks_agree_within_half_of_the_quarantine:
        two_attempts(Quorlock, World::forgetful(&[0, 1, 2]));
    holds prove a_clock_that_is_far_ahead_does_no_harm_since_nodes_cut_its_hint:
        two_attempts(Quorlock, World::forgetful(&[0, 9]));
    violated prove clocks_that_differ_by_the_quarantine_break_the_order_once_a_node_forgets:
        two_attempts(Quorlock, World { lead: 9, ..World::forgetful(&[0, 4]) });
    violated prove clocks_of_nodes_that_are_put_far_back_break_the_order_once_a_node_forgets:
        two_attempts(Quorlock, World { ticks: 4, clock_steps: 3, clock_step: 4, ..World::forgetful(&[4]) });
    violated prove without_a_quarantine_nodes_must_not_forget:
        two_attempts(Quorlock, World { quarantine: 0, ..World::forgetful(&[0, 1]) });
    violated prove attempts_that_outlast_the_quarantine_hand_out_a_number_twice:
        two_attempts(Quorlock, World { limit: 5, ..World::forgetful(&[0]) });

    // Random walks with five nodes and four attempts.
    holds walk(100_000) five_nodes_and_four_attempts_keep_the_order_at_random:
        five_nodes(Quorlock, World::timeless(&[0, 2]));
    holds walk(50_000) five_nodes_share_counters_at_random:
        five_nodes(Quorlock, World { raises: 4, ..World::shared(&[0, 2]) });
    holds walk(50_000) five_nodes_may_forget_at_random:
        five_nodes(Quorlock, World { restarts: 3, raises: 2, ..World::forgetful(&[0, 2]) });
    violated walk(20_000) random_walks_find_the_missing_write_back:
        five_nodes(NoWriteBack, World::timeless(&[0]));
    violated walk(20_000) random_walks_find_write_backs_to_counters_that_are_ahead:
        five_nodes(AnyNodeConfirms, World::timeless(&[0]));
    violated walk(100_000) random_walks_find_write_backs_to_counters_that_are_there_already:
        five_nodes(EqualConfirms, World::timeless(&[0]));
    violated walk(100_000) random_walks_find_the_missing_quarantine:
        five_nodes(Quorlock, World { restarts: 3, quarantine: 0, ..World::forgetful(&[0, 2]) });

    // Wider bounds.
    nightly prove nightly_three_attempts_with_hints: three_attempts(Quorlock, World::timeless(&[0, 1, 3]));
    nightly prove nightly_three_attempts_without_the_shortcuts:
        three_attempts(Quorlock, World { counters_up_to: 1, ..World::literal() });
    nightly prove nightly_three_attempts_share_counters: three_attempts(Quorlock, World::shared(&[0]));
    nightly walk(2_000_000) nightly_four_attempts_at_random:
        Fence::<3, 4>::new(Quorlock, World::timeless(&[0, 2]));
    nightly prove nightly_four_nodes:
        Fence::<4, 3>::new(Quorlock, World { counters_up_to: 1, ..World::timeless(&[0]) });
    nightly prove nightly_five_nodes: Fence::<5, 2>::new(Quorlock, World::timeless(&[0, 2]));
    nightly prove nightly_clocks_of_nodes_are_put_forward_and_back_often:
        two_attempts(Quorlock, World::stepping(4));
    nightly prove nightly_nodes_forget_shared_counters:
        two_attempts(Quorlock, World { raises: 1, ..World::forgetful(&[0, 1, 2]) });
    nightly prove nightly_nodes_forget_whose_clocks_are_set_within_half_of_the_quarantine:
        two_attempts(Quorlock, World { clock_steps: 2, clock_step: 2, ..World::forgetful(&[0, 2]) });
    nightly prove nightly_two_nodes_forget:
        two_attempts(Quorlock, World { restarts: 2, ..World::forgetful(&[0, 1, 2]) });
    nightly prove nightly_a_node_forgets_twice_in_a_longer_time:
        two_attempts(Quorlock, World { restarts: 2, ticks: 9, ..World::forgetful(&[0, 2]) });
    nightly prove nightly_clocks_that_differ_by_less_than_the_quarantine:
        two_attempts(Quorlock, World { lead: 9, ..World::forgetful(&[0, 3]) });
    nightly walk(2_000_000) nightly_millions_of_random_walks: five_nodes(Quorlock, World::timeless(&[0, 2]));
    nightly walk(1_000_000) nightly_millions_of_random_walks_with_forgetful_nodes:
        five_nodes(Quorlock, World { restarts: 3, raises: 2, ..World::forgetful(&[0, 2]) });
}

fn two_attempts(scheme: Scheme, world: World) -> Fence<3, 2> {
    Fence::new(scheme, world)
}

fn three_attempts(scheme: Scheme, world: World) -> Fence<3, 3> {
    Fence::new(scheme, world)
}

fn five_nodes(scheme: Scheme, world: World) -> Fence<5, 4> {
    Fence::new(scheme, world)
}
