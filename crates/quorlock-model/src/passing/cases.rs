//! The cases of leases that are passed on.

use super::{Passing, Scheme};
use crate::case::{Case, holds, violated};
use crate::explore::{hunt, prove};

/// Returns all cases.
pub(crate) fn all() -> Vec<Case> {
    vec![
        holds("a_lease_that_is_passed_on_excludes_other_clients", |_| {
            prove(Passing::<3> { scheme: Scheme::Quorlock, ttl: 2 }, 1)
        }),
        violated("a_transfer_that_overwrites_any_key_makes_two_holders", |_| {
            hunt(&Passing::<3> { scheme: Scheme::AnyKey, ttl: 2 })
        }),
        violated("a_transfer_that_a_minority_confirms_makes_two_holders", |_| {
            hunt(&Passing::<3> { scheme: Scheme::Minority, ttl: 2 })
        }),
        violated("a_passed_lease_that_counts_from_its_votes_makes_two_holders", |_| {
            hunt(&Passing::<3> { scheme: Scheme::FromTheVote, ttl: 2 })
        }),
        violated("a_lease_that_goes_on_while_the_next_one_begins_makes_two_holders", |_| {
            hunt(&Passing::<3> { scheme: Scheme::Overlapping, ttl: 2 })
        }),
    ]
}
