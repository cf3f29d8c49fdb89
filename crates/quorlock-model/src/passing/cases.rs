//! The cases of leases that are passed on.

use super::{Passing, Scheme};
use crate::contest::Contest;

cases! {
    holds prove a_lease_that_is_passed_on_excludes_other_clients: model(Scheme::Quorlock);
    violated hunt a_transfer_that_overwrites_any_key_makes_two_holders: model(Scheme::AnyKey);
    violated hunt a_transfer_that_a_minority_confirms_makes_two_holders: model(Scheme::Minority);
    violated hunt a_passed_lease_that_counts_from_its_votes_makes_two_holders: model(Scheme::FromTheVote);
    violated hunt a_lease_that_goes_on_while_the_next_one_begins_makes_two_holders:
        model(Scheme::Overlapping);
}

fn model(scheme: Scheme) -> Contest<Passing, 3, 3, 1> {
    Contest(Passing { scheme, ttl: 2 })
}
