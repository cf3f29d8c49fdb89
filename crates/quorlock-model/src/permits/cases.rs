//! What is to be found out about semaphores.

use super::{Permits, Scheme};
use crate::case::Expected::{Holds, Violated};
use crate::case::{Case, Expected, Size};
use crate::explore::{Report, hunt, prove};

/// All of them. The names are those of the tests.
#[must_use]
pub fn all() -> Vec<Case> {
    vec![
        case("slots admit no third to two permits on five nodes", Holds, |_| {
            prove(Permits::<5, 3> { scheme: Scheme::Slots, limits: [2; 3] }, 1)
        }),
        case("nodes that count admit a third to two permits", Violated, |_| {
            hunt(&Permits::<5, 3> { scheme: Scheme::PerNode, limits: [2; 3] })
        }),
        case("clients that differ about the limit never hold permits at once", Holds, |_| {
            prove(Permits::<3, 3> { scheme: Scheme::Slots, limits: [1, 2, 2] }, 1)
        }),
        case("limits that nobody compares let too many in", Violated, |_| {
            hunt(&Permits::<3, 3> { scheme: Scheme::AnyLimit, limits: [1, 2, 2] })
        }),
    ]
}

fn case(name: &'static str, expected: Expected, run: fn(u64) -> Report) -> Case {
    Case { name, expected, size: Size::Quick, run }
}
