//! The cases of leases that are passed on.

use super::{Passing, Scheme};
use crate::case::{Case, holds, violated};
use crate::contest::Contest;
use crate::explore::{hunt, prove};

/// Returns all cases.
pub(crate) fn all() -> Vec<Case> {
    vec![
        holds("a_lease_that_is_passed_on_excludes_other_clients", |_| prove(model(Scheme::Quorlock), 1)),
        violated("a_transfer_that_overwrites_any_key_makes_two_holders", |_| hunt(&model(Scheme::AnyKey))),
        violated("a_transfer_that_a_minority_confirms_makes_two_holders", |_| hunt(&model(Scheme::Minority))),
        violated("a_passed_lease_that_counts_from_its_votes_makes_two_holders", |_| {
            hunt(&model(Scheme::FromTheVote))
        }),
        violated("a_lease_that_goes_on_while_the_next_one_begins_makes_two_holders", |_| {
            hunt(&model(Scheme::Overlapping))
        }),
    ]
}

fn model(scheme: Scheme) -> Contest<Passing, 3, 3, 1> {
    Contest(Passing { scheme, ttl: 2 })
}
