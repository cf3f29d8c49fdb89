//! The cases of retained locks.

cases! {
    fn a_slot_that_was_confirmed_has_one_run();
    fn a_host_that_releases_first_and_retains_then_lets_another_run_in_between();
    fn a_slot_that_a_minority_confirms_has_two_runs();
    fn a_slot_that_is_confirmed_after_the_end_of_the_lease_has_two_runs();
    fn a_slot_that_is_kept_for_one_ttl_has_two_runs();
    fn a_slot_that_only_a_quorum_has_is_run_again_when_one_node_forgets_it();
    fn a_lost_renewal_does_not_take_the_lock_again_after_the_slot();
    fn a_lost_renewal_that_is_not_cancelled_takes_the_lock_after_the_slot();
    fn a_renewal_that_is_cancelled_before_the_slot_is_certain_lets_another_run();
}
