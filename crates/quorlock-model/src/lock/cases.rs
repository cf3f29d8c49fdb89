//! What is to be found out about the lock.

use std::time::Duration;

use super::Scheme::Quorlock;
use super::{Addresses, JumpsAt, Lock, Meeting, Pauses, Scheme, Turns, World};
use crate::case::Expected::{Holds, Violated};
use crate::case::Size::{Nightly, Quick};
use crate::case::{Case, Expected, Size};
use crate::explore::{Report, hunt, prove};
use crate::walk::walk;

/// All of them. The names are those of the tests.
#[must_use]
pub fn all() -> Vec<Case> {
    [sound(), clocks(), jumps(), restarts(), starts(), broken(), literal(), walks(), nightly()].concat()
}

/// The rules of the library, while clocks agree and no node forgets.
fn sound() -> Vec<Case> {
    vec![
        case("no two hold the lock at once", Holds, Quick, |_| {
            prove(three(Quorlock, World { ttl: 3, quarantine: 3, ..World::calm() }), 1)
        }),
        case("renewals keep others out", Holds, Quick, |_| prove(two(Quorlock, World::renewing(3)), 1)),
        case("renewals keep two others out", Holds, Quick, |_| prove(three(Quorlock, World::renewing(2)), 1)),
        case("an attempt may pause before it counts a renewal", Holds, Quick, |_| {
            prove(two(Quorlock, World { pauses: Pauses::Possible, ..World::renewing(2) }), 1)
        }),
        case("two addresses of one server give one vote", Holds, Quick, |_| {
            hunt(&two(Quorlock, World { addresses: Addresses::Astray, ..World::renewing(1) }))
        }),
        case(
            "of two addresses of one server either may count that stored the key anew",
            Holds,
            Quick,
            |_| {
                let world = World { addresses: Addresses::Astray, ..World::forgetful(1, 1) };
                hunt(&two(Scheme::RepairsCount, world))
            },
        ),
        case("two of four nodes are no quorum", Holds, Quick, |_| {
            prove(Lock::<4, 2>::new(Quorlock, World::renewing(2)), 1)
        }),
        case("three of five nodes are a quorum", Holds, Quick, |_| {
            prove(Lock::<5, 2>::new(Quorlock, World::renewing(2)), 1)
        }),
    ]
}

/// Clocks run at different rates.
fn clocks() -> Vec<Case> {
    vec![
        case("a node's clock may run fast within the allowance", Holds, Quick, |_| {
            prove(two(Quorlock, World { renewals: 2, ..World::drifting(1, 0) }), 1)
        }),
        case("an attempt's clock may run slow within the allowance", Holds, Quick, |_| {
            prove(two(Quorlock, World { renewals: 2, ..World::drifting(0, 1) }), 1)
        }),
        case("the margin covers two roundings", Holds, Quick, |_| prove(two(Quorlock, rounding(2)), 1)),
        case("the margin covers no third rounding", Violated, Quick, |_| hunt(&two(Quorlock, rounding(3)))),
        case("without an allowance no clock may run fast", Violated, Quick, |_| {
            hunt(&two(Quorlock, World { drift: 0.0, ..World::drifting(1, 0) }))
        }),
        case("a node's clock that runs faster than allowed lets a second holder in", Violated, Quick, |_| {
            hunt(&two(Quorlock, World::drifting(2, 0)))
        }),
        case(
            "an attempt's clock that runs slower than allowed lets it hold for too long",
            Violated,
            Quick,
            |_| hunt(&two(Quorlock, World::drifting(0, 2))),
        ),
        case("the allowance has to cover both clocks together", Violated, Quick, |_| {
            hunt(&two(Quorlock, World::drifting(1, 1)))
        }),
    ]
}

/// Clocks of nodes jump, and keys expire before their time.
fn jumps() -> Vec<Case> {
    vec![
        case("a clock that jumps is outvoted where more than a quorum has the key", Holds, Quick, |_| {
            prove(two(Quorlock, World::jumping(2)), 1)
        }),
        case(
            "a clock that jumps after a renewal that only a quorum has confirmed is not outvoted",
            Violated,
            Quick,
            |_| hunt(&two(Quorlock, World { renewals: 1, ..World::jumping(1) })),
        ),
        case("a clock that jumps at a bare quorum lets a second holder in", Violated, Quick, |_| {
            hunt(&two(Quorlock, World { jumps_at: JumpsAt::Any, ..World::jumping(1) }))
        }),
    ]
}

/// Calendar clocks are put forward, and processes look older than they are.
fn starts() -> Vec<Case> {
    vec![
        case("a process is no older than its first client has noted", Holds, Quick, |_| {
            prove(
                two(Quorlock, World { restarts: 2, puts_forward: 2, renewals: 1, ..World::put_forward() }),
                1,
            )
        }),
        case("a process that nobody has noted looks older than it is", Violated, Quick, |_| {
            hunt(&two(Scheme::NoNote, World::put_forward()))
        }),
        case("a clock that is put forward before any client comes is not noticed", Violated, Quick, |_| {
            hunt(&two(Quorlock, unmet()))
        }),
        case("an event loop that has hardly turned shows it", Holds, Quick, |_| {
            prove(two(Quorlock, World { turns: Turns::Told, renewals: 1, ..unmet() }), 1)
        }),
    ]
}

/// Nodes restart and have forgotten everything.
fn restarts() -> Vec<Case> {
    vec![
        case("a node may forget while leases are renewed", Holds, Quick, |_| {
            prove(two(Quorlock, World::forgetful(1, 2)), 1)
        }),
        case("nodes may forget three times", Holds, Quick, |_| {
            prove(two(Quorlock, World::forgetful(3, 1)), 1)
        }),
        case("nodes that remember vote at once after a restart", Holds, Quick, |_| {
            prove(two(Quorlock, World::remembering(3, 3, 1)), 1)
        }),
        case("nodes that remember and nodes that forget keep others out together", Holds, Quick, |_| {
            prove(two(Quorlock, World::remembering(1, 2, 1)), 1)
        }),
        case(
            "a node that says that it remembers and has forgotten lets a second holder in",
            Violated,
            Quick,
            |_| hunt(&two(Scheme::FalseMemory, World::remembering(1, 1, 0))),
        ),
        case("what a renewal stores anew might count while the other rules hold", Holds, Quick, |_| {
            prove(two(Scheme::RepairsCount, World::forgetful(1, 2)), 1)
        }),
        case("without a quarantine a node that has forgotten votes again", Violated, Quick, |_| {
            hunt(&two(Quorlock, World { quarantine: 0, ..World::forgetful(1, 0) }))
        }),
        case("a quarantine that is a tick shorter than the TTL is too short", Violated, Quick, |_| {
            hunt(&two(Quorlock, World { quarantine: 1, ..World::forgetful(1, 0) }))
        }),
        case("a request that is silently sent again escapes the quarantine", Violated, Quick, |_| {
            hunt(&two(Scheme::SilentResend, World::forgetful(1, 0)))
        }),
        case("what a renewal stores anew at a young node must not count", Violated, Quick, |_| {
            hunt(&two(Scheme::YoungRepairs, World::forgetful(1, 1)))
        }),
    ]
}

/// One rule less.
fn broken() -> Vec<Case> {
    vec![
        case("one vote less than a quorum is not enough", Violated, Quick, |_| {
            hunt(&two(Scheme::SmallQuorum, World::calm()))
        }),
        case("validity that counts from the last vote outlasts the first", Violated, Quick, |_| {
            hunt(&two(Scheme::LateStart, World::calm()))
        }),
        case("two addresses of one server must not give two votes", Violated, Quick, |_| {
            hunt(&two(Scheme::TwinsCount, World { addresses: Addresses::Astray, ..World::calm() }))
        }),
        case("a token used twice is released by the wrong attempt", Violated, Quick, |_| {
            hunt(&three(Scheme::TokenReuse, World::calm().literally()))
        }),
        case("a release that compares nothing deletes the key of another", Violated, Quick, |_| {
            hunt(&three(Scheme::BlindRelease, World::calm().literally()))
        }),
        case("a copy that draws the same token holds the lock beside the first", Violated, Quick, |_| {
            hunt(&two(Scheme::CopiedToken, World::calm().literally()))
        }),
        case("two servers behind one address make two quorums", Violated, Quick, |_| {
            let world = World { addresses: Addresses::Balanced, ..World::calm() };
            hunt(&Lock::<4, 2>::new(Quorlock, world))
        }),
        case("a renewal that shortens a key breaks the old deadline", Violated, Quick, |_| {
            hunt(&two(Scheme::Shrinking, World::renewing(1)))
        }),
        case("a renewal that counts from its acknowledgements outlasts the keys", Violated, Quick, |_| {
            hunt(&two(Scheme::FromReply, World::renewing(1)))
        }),
        case("a minority must not renew", Violated, Quick, |_| {
            hunt(&two(Scheme::MinorityRenews, World::renewing(1)))
        }),
        case(
            "acknowledgements after the deadline revive a lease after another holder",
            Violated,
            Quick,
            |_| hunt(&two(Scheme::LateAcks, World::renewing(1))),
        ),
        case("so do those of keys that are stored anew, in fewer steps", Violated, Quick, |_| {
            hunt(&two(Scheme::LateRepairs, World::renewing(1)))
        }),
        case("a lease that was seen to end must not be revived", Violated, Quick, |_| {
            hunt(&two(Scheme::Revival, World { pauses: Pauses::Possible, ..World::renewing(1) }))
        }),
    ]
}

/// Without the shortcuts.
fn literal() -> Vec<Case> {
    vec![
        case("the shortcuts of the model of the lock hide nothing", Holds, Quick, |_| {
            prove(three(Quorlock, World::calm().literally()), 1)
        }),
        case("they hide nothing about renewals", Holds, Quick, |_| {
            prove(two(Quorlock, World::renewing(1).literally()), 1)
        }),
        case("they hide nothing about nodes that forget", Holds, Quick, |_| {
            prove(two(Quorlock, World::forgetful(1, 0).literally()), 1)
        }),
        case("they hide nothing about clocks", Holds, Quick, |_| {
            prove(two(Quorlock, World::drifting(1, 0).literally()), 1)
        }),
    ]
}

/// Five nodes and four attempts, at random.
fn walks() -> Vec<Case> {
    vec![
        case("five nodes and four attempts never hold the lock at once at random", Holds, Quick, |seed| {
            walk(&five(Quorlock, World::forgetful(2, 3)), seed, 50_000)
        }),
        case("random walks find acknowledgements after the deadline", Violated, Quick, |seed| {
            walk(&five(Scheme::LateAcks, World::renewing(2)), seed, 500_000)
        }),
        case("random walks find the missing quarantine of a lock", Violated, Quick, |seed| {
            walk(&five(Quorlock, World { quarantine: 0, ..World::forgetful(2, 2) }), seed, 100_000)
        }),
    ]
}

/// The same with wider bounds.
fn nightly() -> Vec<Case> {
    vec![
        case("nightly: three attempts and clocks that jump", Holds, Nightly, |_| {
            prove(three(Quorlock, World::jumping(2)), 2)
        }),
        case(
            "nightly: calendar clocks that are put forward while leases are renewed",
            Holds,
            Nightly,
            |_| {
                prove(
                    two(
                        Quorlock,
                        World { restarts: 2, puts_forward: 2, renewals: 2, ..World::put_forward() },
                    ),
                    2,
                )
            },
        ),
        case("nightly: a longer TTL", Holds, Nightly, |_| {
            prove(two(Quorlock, World { ttl: 4, quarantine: 4, ..World::forgetful(1, 2) }), 2)
        }),
        case("nightly: nodes forget three times while leases are renewed", Holds, Nightly, |_| {
            prove(two(Quorlock, World::forgetful(3, 2)), 2)
        }),
        case("nightly: three renewals and two restarts", Holds, Nightly, |_| {
            prove(two(Quorlock, World::forgetful(2, 3)), 2)
        }),
        case("nightly: three attempts, renewals, and two restarts", Holds, Nightly, |_| {
            prove(three(Quorlock, World::forgetful(2, 2)), 2)
        }),
        case("nightly: five nodes forget", Holds, Nightly, |_| {
            prove(Lock::<5, 2>::new(Quorlock, World::forgetful(2, 1)), 2)
        }),
        case("nightly: clocks that drift while nodes forget", Holds, Nightly, |_| {
            prove(two(Quorlock, World { restarts: 2, renewals: 2, ..World::drifting(1, 0) }), 2)
        }),
        case("nightly: pauses while nodes forget", Holds, Nightly, |_| {
            prove(two(Quorlock, World { pauses: Pauses::Possible, ..World::forgetful(2, 2) }), 2)
        }),
        case("nightly: a restart and a renewal without the shortcuts", Holds, Nightly, |_| {
            prove(two(Quorlock, World::forgetful(1, 1).literally()), 2)
        }),
        case("nightly: two restarts without the shortcuts", Holds, Nightly, |_| {
            prove(two(Quorlock, World::forgetful(2, 0).literally()), 2)
        }),
        case("nightly: three attempts and a restart without the shortcuts", Holds, Nightly, |_| {
            prove(three(Quorlock, World::forgetful(1, 0).literally()), 2)
        }),
        case("nightly: a million random walks at a lock", Holds, Nightly, |seed| {
            walk(&five(Quorlock, World::forgetful(3, 3)), seed, 1_000_000)
        }),
        case("nightly: random walks without the shortcuts", Holds, Nightly, |seed| {
            walk(&five(Quorlock, World::forgetful(2, 2).literally()), seed, 300_000)
        }),
    ]
}

/// A calendar clock is put forward before any client has met the process.
fn unmet() -> World {
    World { meeting: Meeting::WhenAsked, ..World::put_forward() }
}

/// So many roundings cost a key a millisecond each.
fn rounding(roundings: u8) -> World {
    let tick = Duration::from_millis(1);
    World { tick, ttl: 4, quarantine: 4, nodes_ahead: roundings, renewals: 1, ..World::calm() }
}

fn case(name: &'static str, expected: Expected, size: Size, run: fn(u64) -> Report) -> Case {
    Case { name, expected, size, run }
}

fn two(scheme: Scheme, world: World) -> Lock<3, 2> {
    Lock::new(scheme, world)
}

fn three(scheme: Scheme, world: World) -> Lock<3, 3> {
    Lock::new(scheme, world)
}

fn five(scheme: Scheme, world: World) -> Lock<5, 4> {
    Lock::new(scheme, world)
}
