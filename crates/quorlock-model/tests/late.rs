//! The cases of late requests.

#[macro_use]
mod common;

cases! {
    #[test]
    fn what_is_given_back_stays_free_whatever_comes_late();
    #[test]
    fn a_server_that_ends_earlier_connections_need_not_look_for_tombstones();
    #[test]
    fn what_is_unknown_and_only_released_comes_back();
    #[test]
    fn what_is_unknown_and_forgotten_after_a_later_answer_comes_back();
    #[test]
    fn what_is_unknown_and_left_behind_by_a_transfer_comes_back();
    #[test]
    fn a_vote_without_a_look_for_the_tombstone_comes_back();
}
