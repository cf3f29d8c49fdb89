//! The cases of the queue.

cases! {
    #[test]
    fn live_waiters_are_never_stranded_by_crashes_and_lost_messages();
    #[test]
    fn without_heartbeats_waiters_behind_a_crashed_one_are_stranded();
    #[test]
    fn a_turn_that_never_expires_strands_waiters_behind_a_crashed_one();
    #[test]
    fn a_turn_given_up_without_a_hint_strands_waiters_that_only_listen();
}
