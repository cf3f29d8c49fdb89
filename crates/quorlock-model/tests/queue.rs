//! The cases of the queue.

#[macro_use]
mod common;

cases! {
    #[test]
    fn in_the_queue_nobody_who_lives_is_stranded_whoever_dies_and_whatever_is_lost();
    #[test]
    fn without_heartbeats_whoever_is_behind_one_who_died_in_its_turn_is_stranded();
    #[test]
    fn a_turn_that_never_ends_strands_those_behind_one_who_died_in_it();
    #[test]
    fn a_turn_that_is_given_up_and_told_to_nobody_strands_those_who_only_listen();
}
