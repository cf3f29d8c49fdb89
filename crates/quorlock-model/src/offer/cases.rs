//! What is to be found out about offers.

use super::Scheme::Quorlock;
use super::state::Kind::{Holder, Plain, Waiter};
use super::{Fencing, Offer, Scheme, Start, World};
use crate::case::Expected::{Holds, Violated};
use crate::case::Size::{Nightly, Quick};
use crate::case::{Case, Expected, Size};
use crate::explore::{Report, hunt, prove};
use crate::walk::walk;

/// All of them. The names are those of the tests.
#[must_use]
pub fn all() -> Vec<Case> {
    [sound(), numbered(), broken(), walks(), nightly()].concat()
}

/// The rules of the library, on exclusion.
fn sound() -> Vec<Case> {
    vec![
        case("offers keep others out", Holds, Quick, |_| prove(four(Quorlock, World::calm()), 1)),
        case("the shortcuts of the model of offers hide nothing", Holds, Quick, |_| {
            prove(four(Quorlock, World::calm().literally()), 1)
        }),
        case("offers keep others out from the first attempt on", Holds, Quick, |_| {
            prove(five_attempts(World { start: Start::Free, ..World::calm() }), 1)
        }),
        case("an offer may live for less long than a lease", Holds, Quick, |_| {
            prove(four(Quorlock, World { offer: 1, ..World::calm() }), 1)
        }),
        case("what was taken up may be renewed while a node forgets", Holds, Quick, |_| {
            prove(three(Quorlock, World { restarts: 1, ..World::renewing(1) }), 1)
        }),
        case("nodes may forget three times while leases are offered", Holds, Quick, |_| {
            prove(four(Quorlock, World::forgetful(3)), 1)
        }),
        case("a node that remembers may tell a waiter twice", Holds, Quick, |_| {
            prove(four(Quorlock, World { reminders: 2, ..World::calm() }), 1)
        }),
        case("a node's clock may run fast while leases are offered", Holds, Quick, |_| {
            prove(four(Quorlock, World::drifting(1, 0)), 1)
        }),
        case("a waiter's clock may run slow within the allowance", Holds, Quick, |_| {
            prove(four(Quorlock, World::drifting(0, 1)), 1)
        }),
        case("a key that a renewal stores anew might count for an offer", Holds, Quick, |_| {
            prove(three(Scheme::RestoredCounts, World { restarts: 1, ..World::renewing(1) }), 1)
        }),
        case("an offer might be stored where no key stands", Holds, Quick, |_| {
            prove(three(Scheme::AbsentToo, World { restarts: 1, ..World::renewing(1) }), 1)
        }),
        case("an offer might be stored where no key stands, without the shortcuts", Holds, Quick, |_| {
            prove(three(Scheme::AbsentToo, World::forgetful(1).literally()), 1)
        }),
    ]
}

/// The rules of the library, on fencing tokens.
fn numbered() -> Vec<Case> {
    vec![
        case("offers keep the order of numbers", Holds, Quick, |_| prove(four(Quorlock, World::fenced()), 1)),
        case("offers keep the order of numbers without any clock", Holds, Quick, |_| {
            prove(four(Quorlock, World::timeless()), 1)
        }),
        case("offers keep the order of numbers without the shortcuts", Holds, Quick, |_| {
            prove(three(Quorlock, World::fenced().literally()), 1)
        }),
        case("renewals keep the order of numbers that were offered", Holds, Quick, |_| {
            prove(three(Quorlock, World { fencing: Fencing::Numbers, ..World::renewing(1) }), 1)
        }),
        case("offers keep the order while a node forgets and calendars agree", Holds, Quick, |_| {
            prove(four(Quorlock, World::calendars(1)), 1)
        }),
        case("offers where no key stands keep the order of numbers", Holds, Quick, |_| {
            prove(three(Scheme::AbsentToo, World::fenced()), 1)
        }),
        case("offers where no key stands keep the order while a node forgets", Holds, Quick, |_| {
            prove(three(Scheme::AbsentToo, World::calendars(1)), 1)
        }),
    ]
}

/// One rule less.
fn broken() -> Vec<Case> {
    vec![
        case("an offer that counts from its push makes two holders", Violated, Quick, |_| {
            hunt(&three(Scheme::FromPush, World::calm()))
        }),
        case("an offer that counts from a later question makes two holders", Violated, Quick, |_| {
            hunt(&three(Scheme::OneToken, World::calm()))
        }),
        case("an offer to another waiter that counts makes two holders", Violated, Quick, |_| {
            hunt(&two_waiters(Scheme::AnyOffer, World::calm()))
        }),
        case("offers to two tokens of a waiter that are added make two holders", Violated, Quick, |_| {
            hunt(&four(Scheme::TwoTokens, World::calm()))
        }),
        case("an offer that is stored whatever stands makes two holders", Violated, Quick, |_| {
            hunt(&two_waiters(Scheme::WhateverStands, World::calm()))
        }),
        case("a holder that believes until its offers are answered is not alone", Violated, Quick, |_| {
            hunt(&three(Scheme::UntilAnswered, World::calm()))
        }),
        case("a token that counts after it was given back makes two holders", Violated, Quick, |_| {
            hunt(&three(Scheme::Reuse, World::calm().literally()))
        }),
        case(
            "keys that are stored anew revive what was taken up after another holder",
            Violated,
            Quick,
            |_| hunt(&three(Scheme::RestoredLate, World::renewing(1))),
        ),
        case("an offer by a process that is too young makes two holders", Violated, Quick, |_| {
            hunt(&two_holders(Scheme::YoungVotes, World::forgetful(1)))
        }),
        case(
            "without a quarantine an offer is forgotten and the lock given away again",
            Violated,
            Quick,
            |_| hunt(&two_waiters(Quorlock, World { quarantine: 0, restarts: 1, ..World::renewing(1) })),
        ),
        case("an offer that outlives the quarantine makes two holders", Violated, Quick, |_| {
            hunt(&three(Quorlock, World { offer: 3, ..World::forgetful(1) }))
        }),
        case("a node whose two pushes count twice makes two holders", Violated, Quick, |_| {
            hunt(&three(Scheme::Twice, World { reminders: 1, ..World::calm() }))
        }),
        case("an offer that a minority has stored makes two holders", Violated, Quick, |_| {
            hunt(&three(Scheme::Minority, World::calm()))
        }),
        case("an offer that is taken up after its end makes two holders", Violated, Quick, |_| {
            hunt(&three(Scheme::NoDeadline, World::calm().literally()))
        }),
        case("a node's clock that is too fast ends an offer that is believed in", Violated, Quick, |_| {
            hunt(&three(Quorlock, World::drifting(2, 0)))
        }),
        case("a waiter's clock that is too slow lets it believe for too long", Violated, Quick, |_| {
            hunt(&three(Quorlock, World::drifting(0, 2)))
        }),
        case("an offered number that is not above the counter breaks the order", Violated, Quick, |_| {
            hunt(&two_holders(Scheme::NotRaised, World::timeless()))
        }),
        case("an offered number that no quorum carries breaks the order", Violated, Quick, |_| {
            hunt(&three(Scheme::NoWriteBack, World::timeless()))
        }),
        case(
            "an offered number that is not above the waiter's calendar breaks the order once a node forgets",
            Violated,
            Quick,
            |_| prove(three(Scheme::ReleasersHint, World { renewals: 1, ..World::calendars(1) }), 1),
        ),
    ]
}

/// Five nodes, at random.
fn walks() -> Vec<Case> {
    vec![
        case("five nodes keep others out of what is offered at random", Holds, Quick, |seed| {
            walk(&five_nodes(Quorlock, World { restarts: 2, ..World::renewing(2) }), seed, 50_000)
        }),
        case("five nodes keep the order of what is offered at random", Holds, Quick, |seed| {
            walk(&five_nodes(Quorlock, World::calendars(2)), seed, 50_000)
        }),
        case("random walks find an offered number that no quorum carries", Violated, Quick, |seed| {
            walk(&five_nodes(Scheme::NoWriteBack, World::fenced()), seed, 100_000)
        }),
        case("random walks find offers that are stored whatever stands", Violated, Quick, |seed| {
            walk(&five_nodes(Scheme::WhateverStands, World::renewing(1)), seed, 100_000)
        }),
    ]
}

/// The same with wider bounds.
fn nightly() -> Vec<Case> {
    vec![
        case("nightly: offers between two waiters while leases are renewed", Holds, Nightly, |_| {
            prove(two_waiters(Quorlock, World::renewing(1)), 2)
        }),
        // Together they are more states than a machine of 24 GB has room for.
        case("nightly: offers and renewals while clocks drift", Holds, Nightly, |_| {
            prove(three(Quorlock, World { renewals: 1, ..World::drifting(1, 0) }), 2)
        }),
        case("nightly: offers while clocks drift and a node restarts", Holds, Nightly, |_| {
            prove(three(Quorlock, World { restarts: 1, ..World::drifting(1, 0) }), 2)
        }),
        case("nightly: offers without the shortcuts while nodes forget", Holds, Nightly, |_| {
            prove(four(Quorlock, World::forgetful(1).literally()), 2)
        }),
        case(
            "nightly: offers keep the order without the shortcuts while a node forgets",
            Holds,
            Nightly,
            |_| prove(three(Quorlock, World::calendars(1).literally()), 2),
        ),
        case("nightly: numbers, renewals and a node that forgets", Holds, Nightly, |_| {
            prove(three(Quorlock, World { renewals: 1, ..World::calendars(1) }), 2)
        }),
        case("nightly: two holders that offer while a node forgets", Holds, Nightly, |_| {
            prove(two_holders(Quorlock, World::calendars(1).literally()), 2)
        }),
        case("nightly: offers where no key stands and two waiters", Holds, Nightly, |_| {
            prove(four(Scheme::AbsentToo, World::fenced()), 2)
        }),
        case("nightly: a million random walks among offers", Holds, Nightly, |seed| {
            walk(&five_nodes(Quorlock, World { restarts: 2, ..World::renewing(2) }), seed, 1_000_000)
        }),
        case("nightly: random walks among offers without the shortcuts", Holds, Nightly, |seed| {
            walk(
                &five_nodes(Quorlock, World { restarts: 2, renewals: 1, ..World::calendars(2) }.literally()),
                seed,
                500_000,
            )
        }),
    ]
}

fn case(name: &'static str, expected: Expected, size: Size, run: fn(u64) -> Report) -> Case {
    Case { name, expected, size, run }
}

fn three(scheme: Scheme, world: World) -> Offer<3, 3> {
    Offer::new(scheme, [Holder, Waiter, Plain], world)
}

fn two_waiters(scheme: Scheme, world: World) -> Offer<3, 3> {
    Offer::new(scheme, [Holder, Waiter, Waiter], world)
}

fn two_holders(scheme: Scheme, world: World) -> Offer<3, 3> {
    Offer::new(scheme, [Holder, Holder, Waiter], world)
}

fn four(scheme: Scheme, world: World) -> Offer<3, 4> {
    Offer::new(scheme, [Holder, Waiter, Waiter, Plain], world)
}

fn five_attempts(world: World) -> Offer<3, 5> {
    Offer::new(Quorlock, [Holder, Holder, Waiter, Waiter, Plain], world)
}

fn five_nodes(scheme: Scheme, world: World) -> Offer<5, 4> {
    Offer::new(scheme, [Holder, Waiter, Waiter, Plain], world)
}
