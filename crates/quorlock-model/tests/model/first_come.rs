//! The cases of stores that serve in order of arrival.

cases! {
    fn whoever_came_first_is_served_first_despite_crashes_and_lost_places();
    fn a_foreign_program_and_three_processes_take_turns();
    fn a_waiter_that_polls_for_a_free_lock_is_passed_over();
    fn a_holder_that_passes_the_lock_within_its_process_starves_others();
    fn a_waiter_that_takes_the_lock_without_its_place_is_not_alone();
    fn a_waiter_that_does_not_ask_for_its_place_again_is_stranded();
}
