//! Every case of this model.

use super::{Scheme, Shared};
use crate::case::{Case, Expected, Size};
use crate::explore::{Report, hunt, prove};
use crate::walk::walk;

use self::Expected::{Holds, Violated};
use self::Size::{Nightly, Quick};
use super::Scheme::Quorlock;

/// All of them.
#[must_use]
pub fn all() -> Vec<Case> {
    vec![
        case("readers share the lock and a writer has it alone", Holds, Quick, |_| {
            prove(three(Quorlock, 1, 0), 1)
        }),
        case("two writers and a reader exclude each other", Holds, Quick, |_| {
            prove(three(Quorlock, 2, 0), 1)
        }),
        case("a writer may become a reader, and readers renew", Holds, Quick, |_| {
            prove(Shared::<3, 2>::new(Quorlock, 1, 1), 1)
        }),
        case("five nodes, readers, writers and downgrades at random", Holds, Quick, |seed| {
            walk(&five(Quorlock), seed, 50_000)
        }),
        case("one time for all readers ends before the last of them", Violated, Quick, |_| {
            hunt(&three(Scheme::OneTtl, 1, 0))
        }),
        case("a count of readers is lowered by one that has ended", Violated, Quick, |_| {
            hunt(&Shared::<1, 3>::new(Scheme::Counting, 1, 0))
        }),
        case("a reader that leaves must not take the time of the others along", Violated, Quick, |_| {
            hunt(&three(Scheme::LeaverShortens, 1, 0))
        }),
        case("a writer whose downgrade failed is not alone any more", Violated, Quick, |_| {
            hunt(&three(Scheme::FailedDowngrade, 1, 1))
        }),
        case("a minority must not confirm a downgrade", Violated, Quick, |_| {
            hunt(&Shared::<3, 3>::new(Scheme::MinorityDowngrade, 2, 1))
        }),
        case("without an intent readers that keep coming go before a writer", Violated, Quick, |_| {
            hunt(&three(Scheme::NoIntent, 1, 0))
        }),
        case("an intent at one node does not keep readers out", Violated, Quick, |_| {
            hunt(&three(Scheme::OneIntent, 1, 0))
        }),
        case("nightly: two readers, a writer that becomes one, and renewals", Holds, Nightly, |_| {
            prove(three(Quorlock, 1, 1), 2)
        }),
        case("nightly: a longer TTL for those who share", Holds, Nightly, |_| {
            prove(Shared::<3, 2>::new(Quorlock, 1, 2).with_ttl(4), 2)
        }),
        case("nightly: a million random walks among readers", Holds, Nightly, |seed| {
            walk(&five(Quorlock), seed, 1_000_000)
        }),
    ]
}

fn case(name: &'static str, expected: Expected, size: Size, run: fn(u64) -> Report) -> Case {
    Case { name, expected, size, run }
}

fn three(scheme: Scheme, writers: usize, renewals: u8) -> Shared<3, 3> {
    Shared::new(scheme, writers, renewals)
}

fn five(scheme: Scheme) -> Shared<5, 5> {
    Shared::new(scheme, 2, 3)
}
