//! The cases of fencing tokens.

use super::Scheme::{
    AnyHintDraws, AnyHolderConfirms, AnyNodeConfirms, EqualConfirms, NoCounterConfirms, NoWriteBack, Quorlock,
};
use super::{Fence, Scheme, World};
use crate::case::{Case, holds, nightly, violated};
use crate::explore::{hunt, prove};
use crate::walk::walk;

/// Returns all cases.
pub(crate) fn all() -> Vec<Case> {
    [asynchronous(), forgetful(), pruning(), shared(), walks(), wider()].concat()
}

/// No node loses data, so no clock matters.
fn asynchronous() -> Vec<Case> {
    vec![
        holds("the_scheme_never_hands_out_a_number_twice_or_out_of_order", |_| {
            prove(two_attempts(Quorlock, World::timeless(&[0])), 1)
        }),
        holds("hints_change_nothing_about_it", |_| {
            prove(two_attempts(Quorlock, World::timeless(&[0, 1, 2, 3])), 1)
        }),
        holds("three_attempts_keep_the_order_as_well", |_| {
            prove(three_attempts(Quorlock, World::timeless(&[0])), 1)
        }),
        violated("without_a_write_back_a_number_is_handed_out_twice", |_| {
            hunt(&two_attempts(NoWriteBack, World::timeless(&[0])))
        }),
        violated("a_write_back_to_nodes_whose_key_has_gone_hands_out_a_number_twice", |_| {
            hunt(&two_attempts(AnyNodeConfirms, World::timeless(&[0])))
        }),
        violated("a_write_back_to_counters_that_are_ahead_hands_out_a_number_twice", |_| {
            hunt(&two_attempts(AnyHolderConfirms, World::timeless(&[0])))
        }),
        holds("the_shortcuts_of_the_model_hide_nothing_that_breaks_the_scheme", |_| {
            prove(two_attempts(Quorlock, World::literal()), 1)
        }),
    ]
}

/// Nodes lose their counters, so clocks keep the order.
fn forgetful() -> Vec<Case> {
    vec![
        holds("nodes_may_forget_while_clocks_agree_within_half_of_the_quarantine", |_| {
            prove(two_attempts(Quorlock, World::forgetful(&[0, 1, 2])), 1)
        }),
        violated("clocks_that_differ_by_the_quarantine_break_the_order_once_a_node_forgets", |_| {
            prove(two_attempts(Quorlock, World { lead: 9, ..World::forgetful(&[0, 4]) }), 1)
        }),
        holds("a_clock_that_is_far_ahead_does_no_harm_since_nodes_cut_its_hint", |_| {
            prove(two_attempts(Quorlock, World::forgetful(&[0, 9])), 1)
        }),
        violated("without_a_quarantine_nodes_must_not_forget", |_| {
            prove(two_attempts(Quorlock, World { quarantine: 0, ..World::forgetful(&[0, 1]) }), 1)
        }),
        violated("attempts_that_outlast_the_quarantine_hand_out_a_number_twice", |_| {
            prove(two_attempts(Quorlock, World { limit: 5, ..World::forgetful(&[0]) }), 1)
        }),
    ]
}

/// Counters expire some minutes after their numbers.
fn pruning() -> Vec<Case> {
    vec![
        holds("counters_may_end_whatever_the_clocks_of_clients_show", |_| {
            prove(two_attempts(Quorlock, World::pruning(&[0, 4])), 1)
        }),
        violated("a_node_without_a_counter_that_draws_from_any_hint_breaks_the_order", |_| {
            prove(two_attempts(AnyHintDraws, World::pruning(&[0, 4])), 1)
        }),
        violated("a_node_without_a_counter_that_confirms_any_number_breaks_the_order", |_| {
            prove(two_attempts(NoCounterConfirms, World::pruning(&[0, 4])), 1)
        }),
        holds("counters_may_end_early_by_clocks_that_are_put_forward", |_| {
            prove(
                two_attempts(Quorlock, World { clock_steps: 1, clock_step: 4, ..World::pruning(&[0, 4]) }),
                1,
            )
        }),
        // The assumption of the page on fencing: no node's clock is set back.
        violated("counters_that_ended_by_clocks_put_forward_and_back_break_the_order", |_| {
            prove(
                two_attempts(Quorlock, World { clock_steps: 4, clock_step: 4, ..World::pruning(&[0, 4]) }),
                1,
            )
        }),
    ]
}

/// Locks share counters that are never deleted, and a key is stored by one command and numbered by the next (ADR 34).
fn shared() -> Vec<Case> {
    vec![
        holds("locks_that_share_counters_keep_their_order_by_two_commands", |_| {
            prove(two_attempts(Quorlock, World::shared(&[0, 2])), 1)
        }),
        violated("a_write_back_to_counters_that_are_there_already_hands_out_a_number_twice", |_| {
            hunt(&two_attempts(EqualConfirms, World::shared(&[0])))
        }),
        holds("counters_that_are_kept_bear_a_clock_that_is_put_forward_and_back", |_| {
            let world =
                World { kept: true, clock_steps: 2, clock_step: 4, ticks: 3, ..World::pruning(&[0, 4]) };
            prove(two_attempts(Quorlock, world), 1)
        }),
        holds("five_nodes_share_counters_at_random", |seed| {
            walk(&five_nodes(Quorlock, World { raises: 3, ..World::shared(&[0, 2]) }), seed, 50_000)
        }),
    ]
}

/// Random walks with five nodes and four attempts.
fn walks() -> Vec<Case> {
    vec![
        holds("five_nodes_and_four_attempts_keep_the_order_at_random", |seed| {
            walk(&five_nodes(Quorlock, World::timeless(&[0, 2])), seed, 100_000)
        }),
        violated("random_walks_find_the_missing_write_back", |seed| {
            walk(&five_nodes(NoWriteBack, World::timeless(&[0])), seed, 20_000)
        }),
        violated("random_walks_find_write_backs_to_nodes_whose_key_has_gone", |seed| {
            walk(&five_nodes(AnyNodeConfirms, World::timeless(&[0])), seed, 20_000)
        }),
        violated("random_walks_find_write_backs_to_counters_that_are_ahead", |seed| {
            walk(&five_nodes(AnyHolderConfirms, World::timeless(&[0])), seed, 100_000)
        }),
        holds("five_nodes_may_forget_at_random", |seed| {
            walk(&five_nodes(Quorlock, World { restarts: 3, ..World::forgetful(&[0, 2]) }), seed, 50_000)
        }),
        violated("random_walks_find_the_missing_quarantine", |seed| {
            let world = World { restarts: 3, quarantine: 0, ..World::forgetful(&[0, 2]) };
            walk(&five_nodes(Quorlock, world), seed, 100_000)
        }),
    ]
}

/// Wider bounds.
fn wider() -> Vec<Case> {
    vec![
        nightly("nightly_three_attempts_with_hints", |_| {
            prove(three_attempts(Quorlock, World::timeless(&[0, 1, 3])), 2)
        }),
        nightly("nightly_three_attempts_without_the_shortcuts", |_| {
            prove(three_attempts(Quorlock, World { counters_up_to: 1, ..World::literal() }), 2)
        }),
        nightly("nightly_four_attempts_at_random", |seed| {
            walk(&Fence::<3, 4>::new(Quorlock, World::timeless(&[0, 2])), seed, 2_000_000)
        }),
        nightly("nightly_four_nodes", |_| {
            prove(Fence::<4, 3>::new(Quorlock, World { counters_up_to: 1, ..World::timeless(&[0]) }), 2)
        }),
        nightly("nightly_five_nodes", |_| prove(Fence::<5, 2>::new(Quorlock, World::timeless(&[0, 2])), 2)),
        nightly("nightly_counters_may_end_while_three_calendars_differ", |_| {
            prove(two_attempts(Quorlock, World::pruning(&[0, 4, 8])), 2)
        }),
        nightly("nightly_three_attempts_share_counters", |_| {
            prove(three_attempts(Quorlock, World { two_commands: false, ..World::shared(&[0]) }), 2)
        }),
        nightly("nightly_counters_that_are_kept_bear_clocks_that_are_put_forward_and_back", |_| {
            let world = World { kept: true, clock_steps: 4, clock_step: 4, ..World::pruning(&[0, 4]) };
            prove(two_attempts(Quorlock, world), 2)
        }),
        nightly("nightly_nodes_forget_shared_counters", |_| {
            let world = World { kept: true, two_commands: true, ..World::forgetful(&[0, 1, 2]) };
            prove(two_attempts(Quorlock, world), 2)
        }),
        nightly("nightly_two_nodes_forget", |_| {
            prove(two_attempts(Quorlock, World { restarts: 2, ..World::forgetful(&[0, 1, 2]) }), 2)
        }),
        nightly("nightly_a_node_forgets_twice_in_a_longer_time", |_| {
            prove(two_attempts(Quorlock, World { restarts: 2, ticks: 9, ..World::forgetful(&[0, 2]) }), 2)
        }),
        nightly("nightly_clocks_that_differ_by_less_than_the_quarantine", |_| {
            prove(two_attempts(Quorlock, World { lead: 9, ..World::forgetful(&[0, 3]) }), 2)
        }),
        nightly("nightly_millions_of_random_walks", |seed| {
            walk(&five_nodes(Quorlock, World::timeless(&[0, 2])), seed, 2_000_000)
        }),
        nightly("nightly_millions_of_random_walks_with_forgetful_nodes", |seed| {
            walk(&five_nodes(Quorlock, World { restarts: 3, ..World::forgetful(&[0, 2]) }), seed, 1_000_000)
        }),
    ]
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
