//! The cases of shared locks.

cases! {
    fn readers_share_the_lock_and_a_writer_is_exclusive();
    fn two_writers_and_a_reader_exclude_each_other();
    fn a_writer_may_become_a_reader_and_readers_renew();
    fn five_nodes_readers_writers_and_downgrades_at_random();
    fn one_time_for_all_readers_ends_before_the_last_of_them();
    fn a_count_of_readers_is_lowered_by_an_expired_reader();
    fn a_leaving_reader_must_not_shorten_the_others_ttl();
    fn a_writer_whose_downgrade_failed_is_no_longer_exclusive();
    fn a_minority_must_not_confirm_a_downgrade();
    fn without_an_intent_new_readers_overtake_a_writer();
    fn an_intent_at_one_node_does_not_keep_readers_out();
}
