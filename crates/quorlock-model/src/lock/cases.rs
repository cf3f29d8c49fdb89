//! The cases of the lock.

use std::time::Duration;

use super::Scheme::Quorlock;
use super::{Addresses, JumpsAt, Lock, Meeting, Pauses, Scheme, Turns, World};
use crate::case::{Case, holds, nightly, violated};
use crate::explore::{hunt, prove};
use crate::walk::walk;

/// Returns all cases.
pub(crate) fn all() -> Vec<Case> {
    [sound(), clocks(), jumps(), restarts(), starts(), broken(), literal(), walks(), wider()].concat()
}

/// The rules of the library, while clocks agree and no node loses data.
fn sound() -> Vec<Case> {
    vec![
        holds("no_two_hold_the_lock_together", |_| {
            prove(three(Quorlock, World { ttl: 3, quarantine: 3, ..World::calm() }), 1)
        }),
        holds("renewals_keep_others_out", |_| prove(two(Quorlock, World::renewing(3)), 1)),
        holds("renewals_keep_two_others_out", |_| prove(three(Quorlock, World::renewing(2)), 1)),
        holds("an_attempt_may_pause_before_it_counts_a_renewal", |_| {
            prove(two(Quorlock, World { pauses: Pauses::Possible, ..World::renewing(2) }), 1)
        }),
        holds("two_addresses_of_one_server_give_one_vote", |_| {
            hunt(&two(Quorlock, World { addresses: Addresses::Astray, ..World::renewing(1) }))
        }),
        holds("either_of_two_addresses_of_a_server_may_count_a_restored_key", |_| {
            let world = World { addresses: Addresses::Astray, ..World::forgetful(1, 1) };
            hunt(&two(Scheme::RepairsCount, world))
        }),
        holds("two_of_four_nodes_are_no_quorum", |_| {
            prove(Lock::<4, 2>::new(Quorlock, World::renewing(2)), 1)
        }),
        holds("three_of_five_nodes_are_a_quorum", |_| {
            prove(Lock::<5, 2>::new(Quorlock, World::renewing(2)), 1)
        }),
    ]
}

/// Clocks run at different rates.
fn clocks() -> Vec<Case> {
    vec![
        holds("a_nodes_clock_may_run_fast_within_the_allowance", |_| {
            prove(two(Quorlock, World { renewals: 2, ..World::drifting(1, 0) }), 1)
        }),
        holds("an_attempts_clock_may_run_slow_within_the_allowance", |_| {
            prove(two(Quorlock, World { renewals: 2, ..World::drifting(0, 1) }), 1)
        }),
        holds("the_margin_covers_two_roundings", |_| prove(two(Quorlock, rounding(2)), 1)),
        violated("the_margin_covers_no_third_rounding", |_| hunt(&two(Quorlock, rounding(3)))),
        violated("without_an_allowance_no_clock_may_run_fast", |_| {
            hunt(&two(Quorlock, World { drift: 0.0, ..World::drifting(1, 0) }))
        }),
        violated("a_nodes_clock_that_runs_faster_than_allowed_lets_a_second_holder_in", |_| {
            hunt(&two(Quorlock, World::drifting(2, 0)))
        }),
        violated("an_attempts_clock_that_runs_slower_than_allowed_lets_it_hold_for_too_long", |_| {
            hunt(&two(Quorlock, World::drifting(0, 2)))
        }),
        violated("the_allowance_has_to_cover_both_clocks_together", |_| {
            hunt(&two(Quorlock, World::drifting(1, 1)))
        }),
    ]
}

/// Clocks of nodes jump, and keys expire early.
fn jumps() -> Vec<Case> {
    vec![
        holds("a_clock_that_jumps_is_outvoted_where_more_than_a_quorum_has_the_key", |_| {
            prove(two(Quorlock, World::jumping(2)), 1)
        }),
        violated(
            "a_clock_that_jumps_after_a_renewal_that_only_a_quorum_has_confirmed_is_not_outvoted",
            |_| hunt(&two(Quorlock, World { renewals: 1, ..World::jumping(1) })),
        ),
        violated("a_clock_that_jumps_at_a_bare_quorum_lets_a_second_holder_in", |_| {
            hunt(&two(Quorlock, World { jumps_at: JumpsAt::Any, ..World::jumping(1) }))
        }),
    ]
}

/// Calendar clocks step forwards, and processes look older than they are.
fn starts() -> Vec<Case> {
    vec![
        holds("a_process_is_no_older_than_its_first_client_noted", |_| {
            prove(
                two(Quorlock, World { restarts: 2, puts_forward: 2, renewals: 1, ..World::put_forward() }),
                1,
            )
        }),
        violated("a_process_that_no_client_has_noted_looks_older_than_it_is", |_| {
            hunt(&two(Scheme::NoNote, World::put_forward()))
        }),
        violated("a_clock_that_is_put_forward_before_any_client_comes_is_not_noticed", |_| {
            hunt(&two(Quorlock, unmet()))
        }),
        holds("an_event_loop_that_has_hardly_turned_shows_it", |_| {
            prove(two(Quorlock, World { turns: Turns::Told, renewals: 1, ..unmet() }), 1)
        }),
    ]
}

/// Nodes restart without their data.
fn restarts() -> Vec<Case> {
    vec![
        holds("a_node_may_forget_while_leases_are_renewed", |_| {
            prove(two(Quorlock, World::forgetful(1, 2)), 1)
        }),
        holds("nodes_may_forget_three_times", |_| prove(two(Quorlock, World::forgetful(3, 1)), 1)),
        holds("nodes_that_keep_their_data_vote_right_after_a_restart", |_| {
            prove(two(Quorlock, World::remembering(3, 3, 1)), 1)
        }),
        holds("nodes_with_and_without_persistence_keep_others_out_together", |_| {
            prove(two(Quorlock, World::remembering(1, 2, 1)), 1)
        }),
        violated("a_node_that_falsely_declares_persistence_lets_a_second_holder_in", |_| {
            hunt(&two(Scheme::FalseMemory, World::remembering(1, 1, 0)))
        }),
        holds("a_key_restored_by_a_renewal_may_count_under_the_other_rules", |_| {
            prove(two(Scheme::RepairsCount, World::forgetful(1, 2)), 1)
        }),
        violated("without_a_quarantine_a_node_that_lost_its_data_votes_again", |_| {
            hunt(&two(Quorlock, World { quarantine: 0, ..World::forgetful(1, 0) }))
        }),
        violated("a_quarantine_that_is_a_tick_shorter_than_the_ttl_is_too_short", |_| {
            hunt(&two(Quorlock, World { quarantine: 1, ..World::forgetful(1, 0) }))
        }),
        violated("a_request_that_is_silently_sent_again_escapes_the_quarantine", |_| {
            hunt(&two(Scheme::SilentResend, World::forgetful(1, 0)))
        }),
        violated("a_key_restored_on_a_young_node_must_not_count", |_| {
            hunt(&two(Scheme::YoungRepairs, World::forgetful(1, 1)))
        }),
    ]
}

/// One rule broken.
fn broken() -> Vec<Case> {
    vec![
        violated("one_vote_less_than_a_quorum_is_not_enough", |_| {
            hunt(&two(Scheme::SmallQuorum, World::calm()))
        }),
        violated("validity_that_counts_from_the_last_vote_outlasts_the_first", |_| {
            hunt(&two(Scheme::LateStart, World::calm()))
        }),
        violated("two_addresses_of_one_server_must_not_give_two_votes", |_| {
            hunt(&two(Scheme::TwinsCount, World { addresses: Addresses::Astray, ..World::calm() }))
        }),
        violated("a_token_used_twice_is_released_by_the_wrong_attempt", |_| {
            hunt(&three(Scheme::TokenReuse, World::calm().literally()))
        }),
        violated("a_release_that_compares_nothing_deletes_the_key_of_another", |_| {
            hunt(&three(Scheme::BlindRelease, World::calm().literally()))
        }),
        violated("a_copy_that_draws_the_same_token_is_a_second_holder", |_| {
            hunt(&two(Scheme::CopiedToken, World::calm().literally()))
        }),
        violated("two_servers_at_one_address_make_two_quorums", |_| {
            let world = World { addresses: Addresses::Balanced, ..World::calm() };
            hunt(&Lock::<4, 2>::new(Quorlock, world))
        }),
        violated("a_renewal_that_shortens_a_key_breaks_the_old_deadline", |_| {
            hunt(&two(Scheme::Shrinking, World::renewing(1)))
        }),
        violated("a_renewal_that_counts_from_its_acknowledgements_outlasts_the_keys", |_| {
            hunt(&two(Scheme::FromReply, World::renewing(1)))
        }),
        violated("a_minority_must_not_renew", |_| hunt(&two(Scheme::MinorityRenews, World::renewing(1)))),
        violated("acknowledgements_after_the_deadline_revive_a_lease_after_another_holder", |_| {
            hunt(&two(Scheme::LateAcks, World::renewing(1)))
        }),
        violated("acknowledgements_of_restored_keys_revive_it_in_fewer_steps", |_| {
            hunt(&two(Scheme::LateRepairs, World::renewing(1)))
        }),
        violated("a_lease_whose_end_was_observed_is_not_revived", |_| {
            hunt(&two(Scheme::Revival, World { pauses: Pauses::Possible, ..World::renewing(1) }))
        }),
    ]
}

/// Without the reductions.
fn literal() -> Vec<Case> {
    vec![
        holds("the_shortcuts_of_the_model_of_the_lock_hide_nothing", |_| {
            prove(three(Quorlock, World::calm().literally()), 1)
        }),
        holds("they_hide_nothing_about_renewals", |_| {
            prove(two(Quorlock, World::renewing(1).literally()), 1)
        }),
        holds("they_hide_nothing_about_nodes_that_forget", |_| {
            prove(two(Quorlock, World::forgetful(1, 0).literally()), 1)
        }),
        holds("they_hide_nothing_about_clocks", |_| {
            prove(two(Quorlock, World::drifting(1, 0).literally()), 1)
        }),
    ]
}

/// Random walks with five nodes and four attempts.
fn walks() -> Vec<Case> {
    vec![
        holds("five_nodes_and_four_attempts_exclude_each_other_at_random", |seed| {
            walk(&five(Quorlock, World::forgetful(2, 3)), seed, 50_000)
        }),
        violated("random_walks_find_acknowledgements_after_the_deadline", |seed| {
            walk(&five(Scheme::LateAcks, World::renewing(2)), seed, 500_000)
        }),
        violated("random_walks_find_the_missing_quarantine_of_a_lock", |seed| {
            walk(&five(Quorlock, World { quarantine: 0, ..World::forgetful(2, 2) }), seed, 100_000)
        }),
    ]
}

/// Wider bounds.
fn wider() -> Vec<Case> {
    vec![
        nightly("nightly_three_attempts_and_clocks_that_jump", |_| {
            prove(three(Quorlock, World::jumping(2)), 2)
        }),
        nightly("nightly_calendar_clocks_that_are_put_forward_while_leases_are_renewed", |_| {
            prove(
                two(Quorlock, World { restarts: 2, puts_forward: 2, renewals: 2, ..World::put_forward() }),
                2,
            )
        }),
        nightly("nightly_a_longer_ttl", |_| {
            prove(two(Quorlock, World { ttl: 4, quarantine: 4, ..World::forgetful(1, 2) }), 2)
        }),
        nightly("nightly_nodes_forget_three_times_while_leases_are_renewed", |_| {
            prove(two(Quorlock, World::forgetful(3, 2)), 2)
        }),
        nightly("nightly_three_renewals_and_two_restarts", |_| {
            prove(two(Quorlock, World::forgetful(2, 3)), 2)
        }),
        nightly("nightly_three_attempts_renewals_and_two_restarts", |_| {
            prove(three(Quorlock, World::forgetful(2, 2)), 2)
        }),
        nightly("nightly_five_nodes_forget", |_| {
            prove(Lock::<5, 2>::new(Quorlock, World::forgetful(2, 1)), 2)
        }),
        nightly("nightly_clocks_that_drift_while_nodes_forget", |_| {
            prove(two(Quorlock, World { restarts: 2, renewals: 2, ..World::drifting(1, 0) }), 2)
        }),
        nightly("nightly_pauses_while_nodes_forget", |_| {
            prove(two(Quorlock, World { pauses: Pauses::Possible, ..World::forgetful(2, 2) }), 2)
        }),
        nightly("nightly_a_restart_and_a_renewal_without_the_shortcuts", |_| {
            prove(two(Quorlock, World::forgetful(1, 1).literally()), 2)
        }),
        nightly("nightly_two_restarts_without_the_shortcuts", |_| {
            prove(two(Quorlock, World::forgetful(2, 0).literally()), 2)
        }),
        nightly("nightly_three_attempts_and_a_restart_without_the_shortcuts", |_| {
            prove(three(Quorlock, World::forgetful(1, 0).literally()), 2)
        }),
        nightly("nightly_a_million_random_walks_at_a_lock", |seed| {
            walk(&five(Quorlock, World::forgetful(3, 3)), seed, 1_000_000)
        }),
        nightly("nightly_random_walks_without_the_shortcuts", |seed| {
            walk(&five(Quorlock, World::forgetful(2, 2).literally()), seed, 300_000)
        }),
    ]
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
