//! The cases of late requests.

cases! {
    fn a_released_lock_stays_free_whatever_arrives_late();
    fn a_server_that_ends_earlier_connections_needs_no_tombstones();
    fn an_unknown_claim_that_is_only_released_comes_back();
    fn an_unknown_claim_forgotten_after_a_later_answer_comes_back();
    fn an_unknown_claim_left_by_a_transfer_comes_back();
    fn a_vote_that_ignores_the_tombstone_comes_back();
}
