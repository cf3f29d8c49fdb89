//! Offers, in every order of events within bounds. What is broken on purpose must be found.

mod common;

use common::confirm;

#[test]
fn offers_keep_others_out() {
    confirm("offers keep others out");
}

#[test]
fn the_shortcuts_of_the_model_of_offers_hide_nothing() {
    confirm("the shortcuts of the model of offers hide nothing");
}

#[test]
fn offers_keep_others_out_from_the_first_attempt_on() {
    confirm("offers keep others out from the first attempt on");
}

#[test]
fn an_offer_may_live_for_less_long_than_a_lease() {
    confirm("an offer may live for less long than a lease");
}

#[test]
fn what_was_taken_up_may_be_renewed_while_a_node_forgets() {
    confirm("what was taken up may be renewed while a node forgets");
}

#[test]
fn nodes_may_forget_three_times_while_leases_are_offered() {
    confirm("nodes may forget three times while leases are offered");
}

#[test]
fn a_node_that_remembers_may_tell_a_waiter_twice() {
    confirm("a node that remembers may tell a waiter twice");
}

#[test]
fn a_nodes_clock_may_run_fast_while_leases_are_offered() {
    confirm("a node's clock may run fast while leases are offered");
}

#[test]
fn a_waiters_clock_may_run_slow_within_the_allowance() {
    confirm("a waiter's clock may run slow within the allowance");
}

#[test]
fn a_key_that_a_renewal_stores_anew_might_count_for_an_offer() {
    confirm("a key that a renewal stores anew might count for an offer");
}

#[test]
fn an_offer_might_be_stored_where_no_key_stands() {
    confirm("an offer might be stored where no key stands");
}

#[test]
fn an_offer_might_be_stored_where_no_key_stands_without_the_shortcuts() {
    confirm("an offer might be stored where no key stands, without the shortcuts");
}

#[test]
fn offers_keep_the_order_of_numbers() {
    confirm("offers keep the order of numbers");
}

#[test]
fn offers_keep_the_order_of_numbers_without_any_clock() {
    confirm("offers keep the order of numbers without any clock");
}

#[test]
fn offers_keep_the_order_of_numbers_without_the_shortcuts() {
    confirm("offers keep the order of numbers without the shortcuts");
}

#[test]
fn renewals_keep_the_order_of_numbers_that_were_offered() {
    confirm("renewals keep the order of numbers that were offered");
}

#[test]
fn offers_keep_the_order_while_a_node_forgets_and_calendars_agree() {
    confirm("offers keep the order while a node forgets and calendars agree");
}

#[test]
fn offers_where_no_key_stands_keep_the_order_of_numbers() {
    confirm("offers where no key stands keep the order of numbers");
}

#[test]
fn offers_where_no_key_stands_keep_the_order_while_a_node_forgets() {
    confirm("offers where no key stands keep the order while a node forgets");
}

#[test]
fn an_offer_that_counts_from_its_push_makes_two_holders() {
    confirm("an offer that counts from its push makes two holders");
}

#[test]
fn an_offer_that_counts_from_a_later_question_makes_two_holders() {
    confirm("an offer that counts from a later question makes two holders");
}

#[test]
fn an_offer_to_another_waiter_that_counts_makes_two_holders() {
    confirm("an offer to another waiter that counts makes two holders");
}

#[test]
fn offers_to_two_tokens_of_a_waiter_that_are_added_make_two_holders() {
    confirm("offers to two tokens of a waiter that are added make two holders");
}

#[test]
fn an_offer_that_is_stored_whatever_stands_makes_two_holders() {
    confirm("an offer that is stored whatever stands makes two holders");
}

#[test]
fn a_holder_that_believes_until_its_offers_are_answered_is_not_alone() {
    confirm("a holder that believes until its offers are answered is not alone");
}

#[test]
fn a_token_that_counts_after_it_was_given_back_makes_two_holders() {
    confirm("a token that counts after it was given back makes two holders");
}

#[test]
fn keys_that_are_stored_anew_revive_what_was_taken_up_after_another_holder() {
    confirm("keys that are stored anew revive what was taken up after another holder");
}

#[test]
fn an_offer_by_a_process_that_is_too_young_makes_two_holders() {
    confirm("an offer by a process that is too young makes two holders");
}

#[test]
fn without_a_quarantine_an_offer_is_forgotten_and_the_lock_given_away_again() {
    confirm("without a quarantine an offer is forgotten and the lock given away again");
}

#[test]
fn an_offer_that_outlives_the_quarantine_makes_two_holders() {
    confirm("an offer that outlives the quarantine makes two holders");
}

#[test]
fn a_node_whose_two_pushes_count_twice_makes_two_holders() {
    confirm("a node whose two pushes count twice makes two holders");
}

#[test]
fn an_offer_that_a_minority_has_stored_makes_two_holders() {
    confirm("an offer that a minority has stored makes two holders");
}

#[test]
fn an_offer_that_is_taken_up_after_its_end_makes_two_holders() {
    confirm("an offer that is taken up after its end makes two holders");
}

#[test]
fn a_nodes_clock_that_is_too_fast_ends_an_offer_that_is_believed_in() {
    confirm("a node's clock that is too fast ends an offer that is believed in");
}

#[test]
fn a_waiters_clock_that_is_too_slow_lets_it_believe_for_too_long() {
    confirm("a waiter's clock that is too slow lets it believe for too long");
}

#[test]
fn an_offered_number_that_is_not_above_the_counter_breaks_the_order() {
    confirm("an offered number that is not above the counter breaks the order");
}

#[test]
fn an_offered_number_that_no_quorum_carries_breaks_the_order() {
    confirm("an offered number that no quorum carries breaks the order");
}

#[test]
fn an_offered_number_that_is_not_above_the_waiters_calendar_breaks_the_order_once_a_node_forgets() {
    confirm("an offered number that is not above the waiter's calendar breaks the order once a node forgets");
}

#[test]
fn five_nodes_keep_others_out_of_what_is_offered_at_random() {
    confirm("five nodes keep others out of what is offered at random");
}

#[test]
fn five_nodes_keep_the_order_of_what_is_offered_at_random() {
    confirm("five nodes keep the order of what is offered at random");
}

#[test]
fn random_walks_find_an_offered_number_that_no_quorum_carries() {
    confirm("random walks find an offered number that no quorum carries");
}

#[test]
fn random_walks_find_offers_that_are_stored_whatever_stands() {
    confirm("random walks find offers that are stored whatever stands");
}
