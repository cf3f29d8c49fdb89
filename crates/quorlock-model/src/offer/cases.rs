//! The cases of offers.
use super::Scheme::Quorlock;
use super::state::Kind::{Holder, Plain, Waiter};
use super::{Offer, Scheme};
use crate::world::{Fencing, Start, World};

cases! {
    // Exclusion by the rules of the library.
    holds prove offers_keep_others_out: four(Quorlock, World::calm());
    holds prove the_shortcuts_of_the_model_of_offers_hide_nothing: four(Quorlock, World::calm().literally());
    holds prove offers_keep_others_out_from_the_first_attempt_on:
        five_attempts(World { start: Start::Free, ..World::calm() });
    holds prove an_offer_may_live_for_less_long_than_a_lease:
        four(Quorlock, World { offer: 1, ..World::calm() });
    holds prove an_offered_lease_may_be_renewed_while_a_node_loses_data:
        three(Quorlock, World { restarts: 1, ..World::prolonging(1) });
    holds prove nodes_may_forget_three_times_while_leases_are_offered: four(Quorlock, World::forgetful(3, 0));
    holds prove a_node_that_keeps_its_data_may_notify_a_waiter_twice:
        four(Quorlock, World { reminders: 2, ..World::calm() });
    holds prove a_nodes_clock_may_run_fast_while_leases_are_offered: four(Quorlock, World::drifting(1, 0));
    holds prove a_waiters_clock_may_run_slow_within_the_allowance: four(Quorlock, World::drifting(0, 1));
    holds prove a_key_restored_by_a_renewal_may_count_for_an_offer:
        three(Scheme::RestoredCounts, World { restarts: 1, ..World::prolonging(1) });
    holds prove an_offer_might_be_stored_where_no_key_stands:
        three(Scheme::AbsentToo, World { restarts: 1, ..World::prolonging(1) });
    holds prove an_offer_might_be_stored_where_no_key_stands_without_the_shortcuts:
        three(Scheme::AbsentToo, World::forgetful(1, 0).literally());

    // Fencing tokens by the rules of the library.
    holds prove offers_keep_the_order_of_numbers: four(Quorlock, World::fenced());
    holds prove offers_keep_the_order_of_numbers_without_any_clock: four(Quorlock, World::timeless());
    holds prove offers_keep_the_order_of_numbers_without_the_shortcuts:
        three(Quorlock, World::fenced().literally());
    holds prove renewals_keep_the_order_of_numbers_that_were_offered:
        three(Quorlock, World { fencing: Fencing::Numbers, ..World::prolonging(1) });
    holds prove offers_keep_the_order_while_a_node_forgets_and_calendars_agree:
        four(Quorlock, World::calendars(1));
    holds prove offers_where_no_key_stands_keep_the_order_of_numbers:
        three(Scheme::AbsentToo, World::fenced());
    holds prove offers_where_no_key_stands_keep_the_order_while_a_node_forgets:
        three(Scheme::AbsentToo, World::calendars(1));
    holds prove two_commands_keep_the_order_of_numbers: two_holders(Scheme::TwoCommands, World::fenced());
    holds prove two_commands_keep_the_order_of_numbers_without_any_clock:
        three(Scheme::TwoCommands, World::timeless());
    holds prove two_commands_keep_the_order_of_numbers_without_the_shortcuts:
        three(Scheme::TwoCommands, World::fenced().literally());
    holds prove two_commands_keep_the_order_while_a_node_forgets_and_calendars_agree:
        three(Scheme::TwoCommands, World::calendars(1));

    // One rule broken.
    violated hunt an_offer_that_counts_from_its_push_makes_two_holders:
        three(Scheme::FromPush, World::calm());
    violated hunt an_offer_that_counts_from_a_later_question_makes_two_holders:
        three(Scheme::OneToken, World::calm());
    violated hunt a_message_that_no_node_has_sent_makes_two_holders:
        three(Scheme::Forged, World::calm().literally());
    violated hunt an_offer_to_another_waiter_that_counts_makes_two_holders:
        two_waiters(Scheme::AnyOffer, World::calm());
    violated hunt offers_to_two_tokens_of_a_waiter_that_are_added_make_two_holders:
        four(Scheme::TwoTokens, World::calm());
    violated hunt an_offer_that_replaces_any_key_makes_two_holders:
        two_waiters(Scheme::AnyKey, World::calm());
    violated hunt a_holder_that_waits_for_answers_to_its_offers_is_not_alone:
        three(Scheme::UntilAnswered, World::calm());
    violated hunt a_token_that_counts_after_its_release_makes_two_holders:
        three(Scheme::Reuse, World::calm().literally());
    violated hunt restored_keys_revive_an_offered_lease_after_another_holder:
        three(Scheme::RestoredLate, World::prolonging(1));
    violated hunt an_offer_by_a_process_that_is_too_young_makes_two_holders:
        two_holders(Scheme::YoungVotes, World::forgetful(1, 0));
    violated hunt without_a_quarantine_a_lost_offer_is_granted_again:
        two_waiters(Quorlock, World { quarantine: 0, restarts: 1, ..World::prolonging(1) });
    violated hunt an_offer_that_outlives_the_quarantine_makes_two_holders:
        three(Quorlock, World { offer: 3, ..World::forgetful(1, 0) });
    violated hunt a_node_whose_two_pushes_count_twice_makes_two_holders:
        three(Scheme::Twice, World { reminders: 1, ..World::calm() });
    violated hunt an_offer_that_a_minority_has_stored_makes_two_holders:
        three(Scheme::Minority, World::calm());
    violated hunt an_offer_that_is_taken_up_after_its_end_makes_two_holders:
        three(Scheme::NoDeadline, World::calm().literally());
    violated hunt a_nodes_clock_that_is_too_fast_ends_an_offer_still_relied_on:
        three(Quorlock, World::drifting(2, 0));
    violated hunt a_waiters_clock_that_is_too_slow_lets_it_hold_for_too_long:
        three(Quorlock, World::drifting(0, 2));
    violated hunt an_offered_number_that_is_not_above_the_counter_breaks_the_order:
        two_holders(Scheme::NotRaised, World::timeless());
    violated hunt an_offered_number_that_no_quorum_carries_breaks_the_order:
        three(Scheme::NoWriteBack, World::timeless());
    violated hunt a_write_back_to_nodes_whose_key_is_anothers_lets_a_later_holder_have_less:
        three(Scheme::AnyKeyCarries, World::fenced());
    violated prove an_offered_number_that_is_not_above_the_waiters_calendar_breaks_the_order_once_a_node_forgets:
        three(Scheme::ReleasersHint, World { renewals: 1, ..World::calendars(1) });

    // Random walks with five nodes.
    holds walk(50_000) five_nodes_keep_others_out_of_what_is_offered_at_random:
        five_nodes(Quorlock, World { restarts: 2, ..World::prolonging(2) });
    holds walk(50_000) five_nodes_keep_the_order_of_what_is_offered_at_random:
        five_nodes(Quorlock, World::calendars(2));
    violated walk(100_000) random_walks_find_an_offered_number_that_no_quorum_carries:
        five_nodes(Scheme::NoWriteBack, World::fenced());
    violated walk(100_000) random_walks_find_offers_that_replace_any_key:
        five_nodes(Scheme::AnyKey, World::prolonging(1));

    // Wider bounds.
    nightly prove nightly_offers_between_two_waiters_while_leases_are_renewed:
        two_waiters(Quorlock, World::prolonging(1));
    // The two together have more states than 24 GB of memory can hold.
    nightly prove nightly_offers_and_renewals_while_clocks_drift:
        three(Quorlock, World { renewals: 1, ..World::drifting(1, 0) });
    nightly prove nightly_offers_while_clocks_drift_and_a_node_restarts:
        three(Quorlock, World { restarts: 1, ..World::drifting(1, 0) });
    nightly prove nightly_offers_without_the_shortcuts_while_nodes_forget:
        four(Quorlock, World::forgetful(1, 0).literally());
    nightly prove nightly_offers_keep_the_order_without_the_shortcuts_while_a_node_forgets:
        three(Quorlock, World::calendars(1).literally());
    nightly prove nightly_numbers_renewals_and_a_node_that_forgets:
        three(Quorlock, World { renewals: 1, ..World::calendars(1) });
    nightly prove nightly_two_holders_that_offer_while_a_node_forgets:
        two_holders(Quorlock, World::calendars(1).literally());
    nightly prove nightly_offers_where_no_key_stands_and_two_waiters:
        four(Scheme::AbsentToo, World::fenced());
    nightly prove nightly_two_plain_clients_that_use_two_commands:
        Offer::<3, 4>::new(Scheme::TwoCommands, [Holder, Waiter, Plain, Plain], World::fenced());
    nightly walk(1_000_000) nightly_a_million_random_walks_among_offers:
        five_nodes(Quorlock, World { restarts: 2, ..World::prolonging(2) });
    nightly walk(500_000) nightly_random_walks_among_offers_without_the_shortcuts:
        five_nodes(Quorlock, World { restarts: 2, renewals: 1, ..World::calendars(2) }.literally());
}

fn three(scheme: Scheme, world: World) -> Offer<3, 3> {
    Offer::new(scheme, [Holder, Waiter, Plain], world)
}

fn two_waiters(scheme: Scheme, world: World) -> Offer<3, 3> {
    Offer::new(scheme, [Holder, Waiter, Waiter], world)
}

fn two_holders(scheme: Scheme, world: World) -> Offer<3, 3> {
    Offer::new(scheme, [Holder, Holder, Waiter], world)
}

fn four(scheme: Scheme, world: World) -> Offer<3, 4> {
    Offer::new(scheme, [Holder, Waiter, Waiter, Plain], world)
}

fn five_attempts(world: World) -> Offer<3, 5> {
    Offer::new(Quorlock, [Holder, Holder, Waiter, Waiter, Plain], world)
}

fn five_nodes(scheme: Scheme, world: World) -> Offer<5, 4> {
    Offer::new(scheme, [Holder, Waiter, Waiter, Plain], world)
}
