//! The cases of shared locks.

cases! {
    #[test]
    fn readers_share_the_lock_and_a_writer_is_exclusive();
    #[test]
    fn two_writers_and_a_reader_exclude_each_other();
    #[test]
    fn a_writer_may_become_a_reader_and_readers_renew();
    #[test]
    fn five_nodes_readers_writers_and_downgrades_at_random();
    #[test]
    fn one_time_for_all_readers_ends_before_the_last_of_them();
    #[test]
    fn a_count_of_readers_is_lowered_by_an_expired_reader();
    #[test]
    fn a_leaving_reader_must_not_shorten_the_others_ttl();
    #[test]
    fn a_writer_whose_downgrade_failed_is_no_longer_exclusive();
    #[test]
    fn a_minority_must_not_confirm_a_downgrade();
    #[test]
    fn without_an_intent_new_readers_overtake_a_writer();
    #[test]
    fn an_intent_at_one_node_does_not_keep_readers_out();
}
