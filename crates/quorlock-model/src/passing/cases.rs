//! What is to be found out about leases that are passed on.

use super::{Passing, Scheme};
use crate::case::Expected::{Holds, Violated};
use crate::case::{Case, Expected, Size};
use crate::explore::{Report, hunt, prove};

/// All of them. The names are those of the tests.
#[must_use]
pub fn all() -> Vec<Case> {
    vec![
        case("a lease that is passed on excludes whoever else wants the lock", Holds, |_| {
            prove(Passing::<3> { scheme: Scheme::Quorlock, ttl: 2 }, 1)
        }),
        case("a transfer that overwrites whatever stands makes two holders", Violated, |_| {
            hunt(&Passing::<3> { scheme: Scheme::WhateverStands, ttl: 2 })
        }),
        case("a transfer that a minority confirms makes two holders", Violated, |_| {
            hunt(&Passing::<3> { scheme: Scheme::Minority, ttl: 2 })
        }),
        case("a passed lease that counts from its votes makes two holders", Violated, |_| {
            hunt(&Passing::<3> { scheme: Scheme::FromTheVote, ttl: 2 })
        }),
        case("a lease that goes on while the next one begins makes two holders", Violated, |_| {
            hunt(&Passing::<3> { scheme: Scheme::Overlapping, ttl: 2 })
        }),
    ]
}

fn case(name: &'static str, expected: Expected, run: fn(u64) -> Report) -> Case {
    Case { name, expected, size: Size::Quick, run }
}
