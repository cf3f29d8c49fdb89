//! Every case of this model.

use super::{Scheme, Several};
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
        case("overlapping sets and a lock alone exclude each other", Holds, Quick, |_| {
            prove(three(Quorlock), 1)
        }),
        case("leases of several are renewed, and a node loses one key of them", Holds, Quick, |_| {
            prove(beside_one(Quorlock).with(2, 1), 1)
        }),
        case("sets and locks on five nodes at random, with keys that are lost", Holds, Quick, |seed| {
            walk(&five(Quorlock), seed, 50_000)
        }),
        case("those who take one lock after the other wait for each other", Violated, Quick, |_| {
            hunt(&two(Scheme::OneByOne))
        }),
        case("a node that stores some of the keys must not vote", Violated, Quick, |_| {
            hunt(&three(Scheme::PartialNode))
        }),
        case("a node that has lost one of the keys must not confirm", Violated, Quick, |_| {
            hunt(&beside_one(Scheme::SomeKept).with(2, 1))
        }),
        case("nightly: leases of several, and two losses", Holds, Nightly, |_| {
            prove(beside_one(Quorlock).with(3, 2), 2)
        }),
        case("nightly: a million random walks among sets", Holds, Nightly, |seed| {
            walk(&five(Quorlock), seed, 1_000_000)
        }),
    ]
}

fn case(name: &'static str, expected: Expected, size: Size, run: fn(u64) -> Report) -> Case {
    Case { name, expected, size, run }
}

const YES: bool = true;
const NO: bool = false;

/// Two want the same two.
fn two(scheme: Scheme) -> Several<3, 2, 2> {
    Several::new(scheme, [[YES, YES]; 2])
}

/// One wants two, and another one of these.
fn beside_one(scheme: Scheme) -> Several<3, 2, 2> {
    Several::new(scheme, [[YES, YES], [NO, YES]])
}

/// The sets overlap, and one wants one lock only.
fn three(scheme: Scheme) -> Several<3, 3, 3> {
    Several::new(scheme, [[YES, YES, NO], [NO, YES, YES], [YES, NO, NO]])
}

fn five(scheme: Scheme) -> Several<5, 5, 3> {
    let wants = [[YES, YES, NO], [NO, YES, YES], [YES, NO, YES], [YES, YES, YES], [NO, YES, NO]];
    Several::new(scheme, wants).with(3, 1)
}
