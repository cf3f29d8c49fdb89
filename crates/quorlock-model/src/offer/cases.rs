//! The cases of offers.

use super::Scheme::Quorlock;
use super::state::Kind::{Holder, Plain, Waiter};
use super::{Fencing, Offer, Scheme, Start, World};
use crate::case::{Case, holds, nightly, violated};
use crate::explore::{hunt, prove};
use crate::walk::walk;

/// Returns all cases.
pub(crate) fn all() -> Vec<Case> {
    [sound(), numbered(), broken(), walks(), wider()].concat()
}

/// Exclusion by the rules of the library.
fn sound() -> Vec<Case> {
    vec![
        holds("offers_keep_others_out", |_| prove(four(Quorlock, World::calm()), 1)),
        holds("the_shortcuts_of_the_model_of_offers_hide_nothing", |_| {
            prove(four(Quorlock, World::calm().literally()), 1)
        }),
        holds("offers_keep_others_out_from_the_first_attempt_on", |_| {
            prove(five_attempts(World { start: Start::Free, ..World::calm() }), 1)
        }),
        holds("an_offer_may_live_for_less_long_than_a_lease", |_| {
            prove(four(Quorlock, World { offer: 1, ..World::calm() }), 1)
        }),
        holds("an_offered_lease_may_be_renewed_while_a_node_loses_data", |_| {
            prove(three(Quorlock, World { restarts: 1, ..World::renewing(1) }), 1)
        }),
        holds("nodes_may_forget_three_times_while_leases_are_offered", |_| {
            prove(four(Quorlock, World::forgetful(3)), 1)
        }),
        holds("a_node_that_keeps_its_data_may_notify_a_waiter_twice", |_| {
            prove(four(Quorlock, World { reminders: 2, ..World::calm() }), 1)
        }),
        holds("a_nodes_clock_may_run_fast_while_leases_are_offered", |_| {
            prove(four(Quorlock, World::drifting(1, 0)), 1)
        }),
        holds("a_waiters_clock_may_run_slow_within_the_allowance", |_| {
            prove(four(Quorlock, World::drifting(0, 1)), 1)
        }),
        holds("a_key_restored_by_a_renewal_may_count_for_an_offer", |_| {
            prove(three(Scheme::RestoredCounts, World { restarts: 1, ..World::renewing(1) }), 1)
        }),
        holds("an_offer_might_be_stored_where_no_key_stands", |_| {
            prove(three(Scheme::AbsentToo, World { restarts: 1, ..World::renewing(1) }), 1)
        }),
        holds("an_offer_might_be_stored_where_no_key_stands_without_the_shortcuts", |_| {
            prove(three(Scheme::AbsentToo, World::forgetful(1).literally()), 1)
        }),
    ]
}

/// Fencing tokens by the rules of the library.
fn numbered() -> Vec<Case> {
    vec![
        holds("offers_keep_the_order_of_numbers", |_| prove(four(Quorlock, World::fenced()), 1)),
        holds("offers_keep_the_order_of_numbers_without_any_clock", |_| {
            prove(four(Quorlock, World::timeless()), 1)
        }),
        holds("offers_keep_the_order_of_numbers_without_the_shortcuts", |_| {
            prove(three(Quorlock, World::fenced().literally()), 1)
        }),
        holds("renewals_keep_the_order_of_numbers_that_were_offered", |_| {
            prove(three(Quorlock, World { fencing: Fencing::Numbers, ..World::renewing(1) }), 1)
        }),
        holds("offers_keep_the_order_while_a_node_forgets_and_calendars_agree", |_| {
            prove(four(Quorlock, World::calendars(1)), 1)
        }),
        holds("offers_where_no_key_stands_keep_the_order_of_numbers", |_| {
            prove(three(Scheme::AbsentToo, World::fenced()), 1)
        }),
        holds("offers_where_no_key_stands_keep_the_order_while_a_node_forgets", |_| {
            prove(three(Scheme::AbsentToo, World::calendars(1)), 1)
        }),
    ]
}

/// One rule broken.
fn broken() -> Vec<Case> {
    vec![
        violated("an_offer_that_counts_from_its_push_makes_two_holders", |_| {
            hunt(&three(Scheme::FromPush, World::calm()))
        }),
        violated("an_offer_that_counts_from_a_later_question_makes_two_holders", |_| {
            hunt(&three(Scheme::OneToken, World::calm()))
        }),
        violated("a_message_that_no_node_has_sent_makes_two_holders", |_| {
            hunt(&three(Scheme::Forged, World::calm().literally()))
        }),
        violated("an_offer_to_another_waiter_that_counts_makes_two_holders", |_| {
            hunt(&two_waiters(Scheme::AnyOffer, World::calm()))
        }),
        violated("offers_to_two_tokens_of_a_waiter_that_are_added_make_two_holders", |_| {
            hunt(&four(Scheme::TwoTokens, World::calm()))
        }),
        violated("an_offer_that_replaces_any_key_makes_two_holders", |_| {
            hunt(&two_waiters(Scheme::AnyKey, World::calm()))
        }),
        violated("a_holder_that_waits_for_answers_to_its_offers_is_not_alone", |_| {
            hunt(&three(Scheme::UntilAnswered, World::calm()))
        }),
        violated("a_token_that_counts_after_its_release_makes_two_holders", |_| {
            hunt(&three(Scheme::Reuse, World::calm().literally()))
        }),
        violated("restored_keys_revive_an_offered_lease_after_another_holder", |_| {
            hunt(&three(Scheme::RestoredLate, World::renewing(1)))
        }),
        violated("an_offer_by_a_process_that_is_too_young_makes_two_holders", |_| {
            hunt(&two_holders(Scheme::YoungVotes, World::forgetful(1)))
        }),
        violated("without_a_quarantine_a_lost_offer_is_granted_again", |_| {
            hunt(&two_waiters(Quorlock, World { quarantine: 0, restarts: 1, ..World::renewing(1) }))
        }),
        violated("an_offer_that_outlives_the_quarantine_makes_two_holders", |_| {
            hunt(&three(Quorlock, World { offer: 3, ..World::forgetful(1) }))
        }),
        violated("a_node_whose_two_pushes_count_twice_makes_two_holders", |_| {
            hunt(&three(Scheme::Twice, World { reminders: 1, ..World::calm() }))
        }),
        violated("an_offer_that_a_minority_has_stored_makes_two_holders", |_| {
            hunt(&three(Scheme::Minority, World::calm()))
        }),
        violated("an_offer_that_is_taken_up_after_its_end_makes_two_holders", |_| {
            hunt(&three(Scheme::NoDeadline, World::calm().literally()))
        }),
        violated("a_nodes_clock_that_is_too_fast_ends_an_offer_still_relied_on", |_| {
            hunt(&three(Quorlock, World::drifting(2, 0)))
        }),
        violated("a_waiters_clock_that_is_too_slow_lets_it_hold_for_too_long", |_| {
            hunt(&three(Quorlock, World::drifting(0, 2)))
        }),
        violated("an_offered_number_that_is_not_above_the_counter_breaks_the_order", |_| {
            hunt(&two_holders(Scheme::NotRaised, World::timeless()))
        }),
        violated("an_offered_number_that_no_quorum_carries_breaks_the_order", |_| {
            hunt(&three(Scheme::NoWriteBack, World::timeless()))
        }),
        violated(
            "an_offered_number_that_is_not_above_the_waiters_calendar_breaks_the_order_once_a_node_forgets",
            |_| prove(three(Scheme::ReleasersHint, World { renewals: 1, ..World::calendars(1) }), 1),
        ),
    ]
}

/// Random walks with five nodes.
fn walks() -> Vec<Case> {
    vec![
        holds("five_nodes_keep_others_out_of_what_is_offered_at_random", |seed| {
            walk(&five_nodes(Quorlock, World { restarts: 2, ..World::renewing(2) }), seed, 50_000)
        }),
        holds("five_nodes_keep_the_order_of_what_is_offered_at_random", |seed| {
            walk(&five_nodes(Quorlock, World::calendars(2)), seed, 50_000)
        }),
        violated("random_walks_find_an_offered_number_that_no_quorum_carries", |seed| {
            walk(&five_nodes(Scheme::NoWriteBack, World::fenced()), seed, 100_000)
        }),
        violated("random_walks_find_offers_that_replace_any_key", |seed| {
            walk(&five_nodes(Scheme::AnyKey, World::renewing(1)), seed, 100_000)
        }),
    ]
}

/// Wider bounds.
fn wider() -> Vec<Case> {
    vec![
        nightly("nightly_offers_between_two_waiters_while_leases_are_renewed", |_| {
            prove(two_waiters(Quorlock, World::renewing(1)), 2)
        }),
        // The two together have more states than 24 GB of memory can hold.
        nightly("nightly_offers_and_renewals_while_clocks_drift", |_| {
            prove(three(Quorlock, World { renewals: 1, ..World::drifting(1, 0) }), 2)
        }),
        nightly("nightly_offers_while_clocks_drift_and_a_node_restarts", |_| {
            prove(three(Quorlock, World { restarts: 1, ..World::drifting(1, 0) }), 2)
        }),
        nightly("nightly_offers_without_the_shortcuts_while_nodes_forget", |_| {
            prove(four(Quorlock, World::forgetful(1).literally()), 2)
        }),
        nightly("nightly_offers_keep_the_order_without_the_shortcuts_while_a_node_forgets", |_| {
            prove(three(Quorlock, World::calendars(1).literally()), 2)
        }),
        nightly("nightly_numbers_renewals_and_a_node_that_forgets", |_| {
            prove(three(Quorlock, World { renewals: 1, ..World::calendars(1) }), 2)
        }),
        nightly("nightly_two_holders_that_offer_while_a_node_forgets", |_| {
            prove(two_holders(Quorlock, World::calendars(1).literally()), 2)
        }),
        nightly("nightly_offers_where_no_key_stands_and_two_waiters", |_| {
            prove(four(Scheme::AbsentToo, World::fenced()), 2)
        }),
        nightly("nightly_a_million_random_walks_among_offers", |seed| {
            walk(&five_nodes(Quorlock, World { restarts: 2, ..World::renewing(2) }), seed, 1_000_000)
        }),
        nightly("nightly_random_walks_among_offers_without_the_shortcuts", |seed| {
            walk(
                &five_nodes(Quorlock, World { restarts: 2, renewals: 1, ..World::calendars(2) }.literally()),
                seed,
                500_000,
            )
        }),
    ]
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
