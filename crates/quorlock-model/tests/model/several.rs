//! The cases of several locks.

cases! {
    fn overlapping_sets_and_a_lock_alone_exclude_each_other();
    fn leases_of_several_are_renewed_and_a_node_loses_one_key_of_them();
    fn sets_and_locks_on_five_nodes_at_random_with_keys_that_are_lost();
    fn attempts_that_take_locks_one_by_one_deadlock();
    fn a_node_that_stores_some_of_the_keys_must_not_vote();
    fn a_node_that_has_lost_one_of_the_keys_must_not_confirm();
}
