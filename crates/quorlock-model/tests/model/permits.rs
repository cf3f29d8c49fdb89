//! The cases of semaphores.

cases! {
    fn slots_admit_no_third_to_two_permits_on_five_nodes();
    fn nodes_that_count_admit_a_third_to_two_permits();
    fn clients_that_disagree_about_the_limit_never_hold_permits_together();
    fn limits_that_are_not_compared_admit_too_many();
}
