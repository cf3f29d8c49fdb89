//! The cases of leases that are passed on.

cases! {
    fn a_lease_that_is_passed_on_excludes_other_clients();
    fn a_transfer_that_overwrites_any_key_makes_two_holders();
    fn a_transfer_that_a_minority_confirms_makes_two_holders();
    fn a_passed_lease_that_counts_from_its_votes_makes_two_holders();
    fn a_lease_that_goes_on_while_the_next_one_begins_makes_two_holders();
}
