//! The cases of semaphores.

#[macro_use]
mod common;

cases! {
    #[test]
    fn slots_admit_no_third_to_two_permits_on_five_nodes();
    #[test]
    fn nodes_that_count_admit_a_third_to_two_permits();
    #[test]
    fn clients_that_differ_about_the_limit_never_hold_permits_at_once();
    #[test]
    fn limits_that_nobody_compares_let_too_many_in();
}
