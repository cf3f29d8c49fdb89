//! Fencing tokens, in every order of events within bounds. What is broken on purpose must be found.

mod common;

use common::confirm;
use quorlock_model::fence::{Answer, Fence, Scheme, Step, World};
use stateright::Model;

#[test]
fn the_scheme_never_hands_out_a_number_twice_or_out_of_order() {
    confirm("the scheme never hands out a number twice or out of order");
}

#[test]
fn hints_change_nothing_about_it() {
    confirm("hints change nothing about it");
}

#[test]
fn three_attempts_keep_the_order_as_well() {
    confirm("three attempts keep the order as well");
}

#[test]
fn without_a_write_back_a_number_is_handed_out_twice() {
    confirm("without a write-back a number is handed out twice");
}

#[test]
fn a_write_back_to_nodes_whose_key_has_gone_hands_out_a_number_twice() {
    confirm("a write-back to nodes whose key has gone hands out a number twice");
}

#[test]
fn a_write_back_to_counters_that_are_ahead_hands_out_a_number_twice() {
    confirm("a write-back to counters that are ahead hands out a number twice");
}

#[test]
fn the_shortcuts_of_the_model_hide_nothing_that_breaks_the_scheme() {
    confirm("the shortcuts of the model hide nothing that breaks the scheme");
}

#[test]
fn nodes_may_forget_while_clocks_agree_within_half_of_the_quarantine() {
    confirm("nodes may forget while clocks agree within half of the quarantine");
}

#[test]
fn clocks_that_differ_by_the_quarantine_break_the_order_once_a_node_forgets() {
    confirm("clocks that differ by the quarantine break the order once a node forgets");
}

#[test]
fn a_clock_that_is_far_ahead_does_no_harm_since_nodes_cut_its_hint() {
    confirm("a clock that is far ahead does no harm since nodes cut its hint");
}

#[test]
fn without_a_quarantine_nodes_must_not_forget() {
    confirm("without a quarantine nodes must not forget");
}

#[test]
fn attempts_that_outlast_the_quarantine_hand_out_a_number_twice() {
    confirm("attempts that outlast the quarantine hand out a number twice");
}

#[test]
fn counters_may_end_whatever_the_clocks_of_clients_show() {
    confirm("counters may end whatever the clocks of clients show");
}

#[test]
fn a_node_without_a_counter_that_draws_from_any_hint_breaks_the_order() {
    confirm("a node without a counter that draws from any hint breaks the order");
}

#[test]
fn a_node_without_a_counter_that_confirms_any_number_breaks_the_order() {
    confirm("a node without a counter that confirms any number breaks the order");
}

#[test]
fn counters_may_end_early_by_clocks_that_are_put_forward() {
    confirm("counters may end early by clocks that are put forward");
}

#[test]
fn five_nodes_and_four_attempts_keep_the_order_at_random() {
    confirm("five nodes and four attempts keep the order at random");
}

#[test]
fn random_walks_find_the_missing_write_back() {
    confirm("random walks find the missing write-back");
}

#[test]
fn random_walks_find_write_backs_to_nodes_whose_key_has_gone() {
    confirm("random walks find write-backs to nodes whose key has gone");
}

#[test]
fn random_walks_find_write_backs_to_counters_that_are_ahead() {
    confirm("random walks find write-backs to counters that are ahead");
}

#[test]
fn five_nodes_may_forget_at_random() {
    confirm("five nodes may forget at random");
}

#[test]
fn random_walks_find_the_missing_quarantine() {
    confirm("random walks find the missing quarantine");
}

/// Without this, a scheme that hands nothing out would pass.
#[test]
fn whoever_hears_a_quorum_and_is_not_disturbed_gets_a_number() {
    let model = Fence::<3, 1>::new(Scheme::Quorlock, World::timeless(&[0, 2]));
    for start in model.init_states() {
        for quorum in [[0, 1], [1, 0], [0, 2], [2, 0], [1, 2], [2, 1]] {
            let (attempt, answer) = (0, Answer::Heard);
            let votes = quorum.map(|node| Step::Vote { attempt, node, answer });
            let write_backs = quorum.map(|node| Step::WriteBack { attempt, node, answer });
            let mut state = start;
            for step in [&votes[..], &[Step::Decide { attempt }], &write_backs].concat() {
                let mut possible = Vec::new();
                model.actions(&state, &mut possible);
                // Nothing is possible any more once it has returned.
                if possible.contains(&step) {
                    state = model.next_state(&state, step).expect("it is possible");
                }
            }
            let returned = state.attempts[0].returned();
            assert!(returned.is_some(), "asking {quorum:?} of {start} got {state:?}");
        }
    }
}
