//! The cases of the queue.

cases! {
    fn live_waiters_are_never_stranded_by_crashes_and_lost_messages();
    fn without_heartbeats_waiters_behind_a_crashed_one_are_stranded();
    fn a_turn_that_never_expires_strands_waiters_behind_a_crashed_one();
    fn a_turn_given_up_without_a_hint_strands_waiters_that_only_listen();
    fn a_reader_in_the_queue_is_passed_over_once_by_each_other_at_most();
    fn a_reader_without_a_place_is_passed_over_again_and_again();
    fn a_turn_that_outlives_the_release_of_its_waiter_keeps_others_from_a_free_lock();
}
