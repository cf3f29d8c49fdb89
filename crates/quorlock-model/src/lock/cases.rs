//! The cases of the lock.

use std::time::Duration;

use super::Scheme::Quorlock;
use super::{Lock, Scheme};
use crate::world::{Addresses, JumpsAt, Meeting, Pauses, Turns, World};

cases! {
    // The rules of the library, while clocks agree and no node loses data.
    holds prove no_two_hold_the_lock_together:
        three(Quorlock, World { ttl: 3, quarantine: 3, ..World::calm() });
    holds prove renewals_keep_others_out: two(Quorlock, World::renewing(3));
    holds prove renewals_keep_two_others_out: three(Quorlock, World::renewing(2));
    holds prove an_attempt_may_pause_before_it_counts_a_renewal:
        two(Quorlock, World { pauses: Pauses::Possible, ..World::renewing(2) });
    holds hunt two_addresses_of_one_server_give_one_vote:
        two(Quorlock, World { addresses: Addresses::Astray, ..World::renewing(1) });
    holds hunt either_of_two_addresses_of_a_server_may_count_a_restored_key:
        two(Scheme::RepairsCount, World { addresses: Addresses::Astray, ..World::forgetful(1, 1) });
    holds prove two_of_four_nodes_are_no_quorum: Lock::<4, 2>::new(Quorlock, World::renewing(2));
    holds prove three_of_five_nodes_are_a_quorum: Lock::<5, 2>::new(Quorlock, World::renewing(2));

    // Clocks run at different rates.
    holds prove a_nodes_clock_may_run_fast_within_the_allowance:
        two(Quorlock, World { renewals: 2, ..World::drifting(1, 0) });
    holds prove an_attempts_clock_may_run_slow_within_the_allowance:
        two(Quorlock, World { renewals: 2, ..World::drifting(0, 1) });
    holds prove the_margin_covers_two_roundings: two(Quorlock, rounding(2));
    violated hunt the_margin_covers_no_third_rounding: two(Quorlock, rounding(3));
    violated hunt without_an_allowance_no_clock_may_run_fast:
        two(Quorlock, World { drift: 0.0, ..World::drifting(1, 0) });
    violated hunt a_nodes_clock_that_runs_faster_than_allowed_lets_a_second_holder_in:
        two(Quorlock, World::drifting(2, 0));
    violated hunt an_attempts_clock_that_runs_slower_than_allowed_lets_it_hold_for_too_long:
        two(Quorlock, World::drifting(0, 2));
    violated hunt the_allowance_has_to_cover_both_clocks_together: two(Quorlock, World::drifting(1, 1));

    // Clocks of nodes jump, and keys expire early.
    holds prove a_clock_that_jumps_is_outvoted_where_more_than_a_quorum_has_the_key:
        two(Quorlock, World::jumping(2));
    violated hunt a_clock_that_jumps_after_a_renewal_that_only_a_quorum_has_confirmed_is_not_outvoted:
        two(Quorlock, World { renewals: 1, ..World::jumping(1) });
    violated hunt a_clock_that_jumps_at_a_bare_quorum_lets_a_second_holder_in:
        two(Quorlock, World { jumps_at: JumpsAt::Any, ..World::jumping(1) });

    // Calendar clocks step forwards, and processes look older than they are.
    holds prove a_process_is_no_older_than_its_first_client_noted:
        two(Quorlock, World { restarts: 2, puts_forward: 2, renewals: 1, ..World::put_forward() });
    violated hunt a_process_that_no_client_has_noted_looks_older_than_it_is:
        two(Scheme::NoNote, World::put_forward());
    violated hunt a_clock_that_is_put_forward_before_any_client_comes_is_not_noticed: two(Quorlock, unmet());
    holds prove an_event_loop_that_has_hardly_turned_shows_it:
        two(Quorlock, World { turns: Turns::Notified, renewals: 1, ..unmet() });

    // Nodes restart without their data.
    holds prove a_node_may_forget_while_leases_are_renewed: two(Quorlock, World::forgetful(1, 2));
    holds prove nodes_may_forget_three_times: two(Quorlock, World::forgetful(3, 1));
    holds prove nodes_that_keep_their_data_vote_right_after_a_restart:
        two(Quorlock, World::remembering(3, 3, 1));
    holds prove nodes_with_and_without_persistence_keep_others_out_together:
        two(Quorlock, World::remembering(1, 2, 1));
    violated hunt a_node_that_falsely_declares_persistence_lets_a_second_holder_in:
        two(Scheme::FalseMemory, World::remembering(1, 1, 0));
    holds prove a_key_restored_by_a_renewal_may_count_under_the_other_rules:
        two(Scheme::RepairsCount, World::forgetful(1, 2));
    violated hunt without_a_quarantine_a_node_that_lost_its_data_votes_again:
        two(Quorlock, World { quarantine: 0, ..World::forgetful(1, 0) });
    violated hunt a_quarantine_that_is_a_tick_shorter_than_the_ttl_is_too_short:
        two(Quorlock, World { quarantine: 1, ..World::forgetful(1, 0) });
    violated hunt a_request_that_is_silently_sent_again_escapes_the_quarantine:
        two(Scheme::SilentResend, World::forgetful(1, 0));
    violated hunt a_key_restored_on_a_young_node_must_not_count:
        two(Scheme::YoungRepairs, World::forgetful(1, 1));

    // One rule broken.
    violated hunt one_vote_less_than_a_quorum_is_not_enough: two(Scheme::SmallQuorum, World::calm());
    violated hunt validity_that_counts_from_the_last_vote_outlasts_the_first:
        two(Scheme::LateStart, World::calm());
    violated hunt two_addresses_of_one_server_must_not_give_two_votes:
        two(Scheme::TwinsCount, World { addresses: Addresses::Astray, ..World::calm() });
    violated hunt a_token_used_twice_is_released_by_the_wrong_attempt:
        three(Scheme::TokenReuse, World::calm().literally());
    violated hunt a_release_that_compares_nothing_deletes_the_key_of_another:
        three(Scheme::BlindRelease, World::calm().literally());
    violated hunt a_copy_that_draws_the_same_token_is_a_second_holder:
        two(Scheme::CopiedToken, World::calm().literally());
    violated hunt two_servers_at_one_address_make_two_quorums:
        Lock::<4, 2>::new(Quorlock, World { addresses: Addresses::Balanced, ..World::calm() });
    violated hunt a_renewal_that_shortens_a_key_breaks_the_old_deadline:
        two(Scheme::Shrinking, World::renewing(1));
    violated hunt a_renewal_that_counts_from_its_acknowledgements_outlasts_the_keys:
        two(Scheme::FromReply, World::renewing(1));
    violated hunt a_minority_must_not_renew: two(Scheme::MinorityRenews, World::renewing(1));
    violated hunt acknowledgements_after_the_deadline_revive_a_lease_after_another_holder:
        two(Scheme::LateAcks, World::renewing(1));
    violated hunt acknowledgements_of_restored_keys_revive_it_in_fewer_steps:
        two(Scheme::LateRepairs, World::renewing(1));
    violated hunt a_lease_whose_end_was_observed_is_not_revived:
        two(Scheme::Revival, World { pauses: Pauses::Possible, ..World::renewing(1) });

    // Without the reductions.
    holds prove the_shortcuts_of_the_model_of_the_lock_hide_nothing:
        three(Quorlock, World::calm().literally());
    holds prove they_hide_nothing_about_renewals: two(Quorlock, World::renewing(1).literally());
    holds prove they_hide_nothing_about_nodes_that_forget: two(Quorlock, World::forgetful(1, 0).literally());
    holds prove they_hide_nothing_about_clocks: two(Quorlock, World::drifting(1, 0).literally());

    // Random walks with five nodes and four attempts.
    holds walk(50_000) five_nodes_and_four_attempts_exclude_each_other_at_random:
        five(Quorlock, World::forgetful(2, 3));
    violated walk(500_000) random_walks_find_acknowledgements_after_the_deadline:
        five(Scheme::LateAcks, World::renewing(2));
    violated walk(100_000) random_walks_find_the_missing_quarantine_of_a_lock:
        five(Quorlock, World { quarantine: 0, ..World::forgetful(2, 2) });

    // Wider bounds.
    nightly prove nightly_three_attempts_and_clocks_that_jump: three(Quorlock, World::jumping(2));
    nightly prove nightly_calendar_clocks_that_are_put_forward_while_leases_are_renewed:
        two(Quorlock, World { restarts: 2, puts_forward: 2, renewals: 2, ..World::put_forward() });
    nightly prove nightly_a_longer_ttl:
        two(Quorlock, World { ttl: 4, quarantine: 4, ..World::forgetful(1, 2) });
    nightly prove nightly_nodes_forget_three_times_while_leases_are_renewed:
        two(Quorlock, World::forgetful(3, 2));
    nightly prove nightly_three_renewals_and_two_restarts: two(Quorlock, World::forgetful(2, 3));
    nightly prove nightly_three_attempts_renewals_and_two_restarts: three(Quorlock, World::forgetful(2, 2));
    nightly prove nightly_five_nodes_forget: Lock::<5, 2>::new(Quorlock, World::forgetful(2, 1));
    nightly prove nightly_clocks_that_drift_while_nodes_forget:
        two(Quorlock, World { restarts: 2, renewals: 2, ..World::drifting(1, 0) });
    nightly prove nightly_pauses_while_nodes_forget:
        two(Quorlock, World { pauses: Pauses::Possible, ..World::forgetful(2, 2) });
    nightly prove nightly_a_restart_and_a_renewal_without_the_shortcuts:
        two(Quorlock, World::forgetful(1, 1).literally());
    nightly prove nightly_two_restarts_without_the_shortcuts:
        two(Quorlock, World::forgetful(2, 0).literally());
    nightly prove nightly_three_attempts_and_a_restart_without_the_shortcuts:
        three(Quorlock, World::forgetful(1, 0).literally());
    nightly walk(1_000_000) nightly_a_million_random_walks_at_a_lock: five(Quorlock, World::forgetful(3, 3));
    nightly walk(300_000) nightly_random_walks_without_the_shortcuts:
        five(Quorlock, World::forgetful(2, 2).literally());
}

/// A calendar clock steps forwards before any client has met the process.
fn unmet() -> World {
    World { meeting: Meeting::WhenAsked, ..World::put_forward() }
}

/// This many roundings cost a key a millisecond each.
fn rounding(roundings: u8) -> World {
    let tick = Duration::from_millis(1);
    World { tick, ttl: 4, quarantine: 4, nodes_ahead: roundings, renewals: 1, ..World::calm() }
}

fn two(scheme: Scheme, world: World) -> Lock<3, 2> {
    Lock::new(scheme, world)
}

fn three(scheme: Scheme, world: World) -> Lock<3, 3> {
    Lock::new(scheme, world)
}

fn five(scheme: Scheme, world: World) -> Lock<5, 4> {
    Lock::new(scheme, world)
}
