//! What is to be found out about fencing tokens.

use super::Scheme::{
    AnyHintDraws, AnyHolderConfirms, AnyNodeConfirms, NoCounterConfirms, NoWriteBack, Quorlock,
};
use super::{Fence, Scheme, World};
use crate::case::Expected::{Holds, Violated};
use crate::case::Size::{Nightly, Quick};
use crate::case::{Case, Expected, Size};
use crate::explore::{Report, hunt, prove};
use crate::walk::walk;

/// All of them. The names are those of the tests.
#[must_use]
pub fn all() -> Vec<Case> {
    [asynchronous(), forgetful(), pruning(), walks(), nightly()].concat()
}

/// No node forgets. Then nothing is asked of any clock.
fn asynchronous() -> Vec<Case> {
    vec![
        case("the scheme never hands out a number twice or out of order", Holds, Quick, |_| {
            prove(two_attempts(Quorlock, World::timeless(&[0])), 1)
        }),
        case("hints change nothing about it", Holds, Quick, |_| {
            prove(two_attempts(Quorlock, World::timeless(&[0, 1, 2, 3])), 1)
        }),
        case("three attempts keep the order as well", Holds, Quick, |_| {
            prove(three_attempts(Quorlock, World::timeless(&[0])), 1)
        }),
        case("without a write-back a number is handed out twice", Violated, Quick, |_| {
            hunt(&two_attempts(NoWriteBack, World::timeless(&[0])))
        }),
        case("a write-back to nodes whose key has gone hands out a number twice", Violated, Quick, |_| {
            hunt(&two_attempts(AnyNodeConfirms, World::timeless(&[0])))
        }),
        case("a write-back to counters that are ahead hands out a number twice", Violated, Quick, |_| {
            hunt(&two_attempts(AnyHolderConfirms, World::timeless(&[0])))
        }),
        case("the shortcuts of the model hide nothing that breaks the scheme", Holds, Quick, |_| {
            prove(two_attempts(Quorlock, World::literal()), 1)
        }),
    ]
}

/// Nodes lose their counters. Then it is the clocks that keep the order.
fn forgetful() -> Vec<Case> {
    vec![
        case("nodes may forget while clocks agree within half of the quarantine", Holds, Quick, |_| {
            prove(two_attempts(Quorlock, World::forgetful(&[0, 1, 2])), 1)
        }),
        case(
            "clocks that differ by the quarantine break the order once a node forgets",
            Violated,
            Quick,
            |_| prove(two_attempts(Quorlock, World { lead: 9, ..World::forgetful(&[0, 4]) }), 1),
        ),
        case("a clock that is far ahead does no harm since nodes cut its hint", Holds, Quick, |_| {
            prove(two_attempts(Quorlock, World::forgetful(&[0, 9])), 1)
        }),
        case("without a quarantine nodes must not forget", Violated, Quick, |_| {
            prove(two_attempts(Quorlock, World { quarantine: 0, ..World::forgetful(&[0, 1]) }), 1)
        }),
        case("attempts that outlast the quarantine hand out a number twice", Violated, Quick, |_| {
            prove(two_attempts(Quorlock, World { limit: 5, ..World::forgetful(&[0]) }), 1)
        }),
    ]
}

/// Counters end, some minutes after their numbers.
fn pruning() -> Vec<Case> {
    vec![
        case("counters may end whatever the clocks of clients show", Holds, Quick, |_| {
            prove(two_attempts(Quorlock, World::pruning(&[0, 4, 8])), 1)
        }),
        case("a node without a counter that draws from any hint breaks the order", Violated, Quick, |_| {
            prove(two_attempts(AnyHintDraws, World::pruning(&[0, 4])), 1)
        }),
        case("a node without a counter that confirms any number breaks the order", Violated, Quick, |_| {
            prove(two_attempts(NoCounterConfirms, World::pruning(&[0, 4])), 1)
        }),
        case("counters may end early by clocks that are put forward", Holds, Quick, |_| {
            prove(
                two_attempts(Quorlock, World { clock_steps: 1, clock_step: 4, ..World::pruning(&[0, 4]) }),
                1,
            )
        }),
    ]
}

/// Five nodes and four attempts, at random.
fn walks() -> Vec<Case> {
    vec![
        case("five nodes and four attempts keep the order at random", Holds, Quick, |seed| {
            walk(&five_nodes(Quorlock, World::timeless(&[0, 2])), seed, 100_000)
        }),
        case("random walks find the missing write-back", Violated, Quick, |seed| {
            walk(&five_nodes(NoWriteBack, World::timeless(&[0])), seed, 20_000)
        }),
        case("random walks find write-backs to nodes whose key has gone", Violated, Quick, |seed| {
            walk(&five_nodes(AnyNodeConfirms, World::timeless(&[0])), seed, 20_000)
        }),
        case("random walks find write-backs to counters that are ahead", Violated, Quick, |seed| {
            walk(&five_nodes(AnyHolderConfirms, World::timeless(&[0])), seed, 100_000)
        }),
        case("five nodes may forget at random", Holds, Quick, |seed| {
            walk(&five_nodes(Quorlock, World { restarts: 3, ..World::forgetful(&[0, 2]) }), seed, 50_000)
        }),
        case("random walks find the missing quarantine", Violated, Quick, |seed| {
            let world = World { restarts: 3, quarantine: 0, ..World::forgetful(&[0, 2]) };
            walk(&five_nodes(Quorlock, world), seed, 100_000)
        }),
    ]
}

/// The same with wider bounds.
fn nightly() -> Vec<Case> {
    vec![
        case("nightly: three attempts with hints", Holds, Nightly, |_| {
            prove(three_attempts(Quorlock, World::timeless(&[0, 1, 3])), 2)
        }),
        case("nightly: three attempts without the shortcuts", Holds, Nightly, |_| {
            prove(three_attempts(Quorlock, World { counters_up_to: 1, ..World::literal() }), 2)
        }),
        case("nightly: four attempts at random", Holds, Nightly, |seed| {
            walk(&Fence::<3, 4>::new(Quorlock, World::timeless(&[0, 2])), seed, 2_000_000)
        }),
        case("nightly: four nodes", Holds, Nightly, |_| {
            prove(Fence::<4, 3>::new(Quorlock, World { counters_up_to: 1, ..World::timeless(&[0]) }), 2)
        }),
        case("nightly: five nodes", Holds, Nightly, |_| {
            prove(Fence::<5, 2>::new(Quorlock, World::timeless(&[0, 2])), 2)
        }),
        case("nightly: two nodes forget", Holds, Nightly, |_| {
            prove(two_attempts(Quorlock, World { restarts: 2, ..World::forgetful(&[0, 1, 2]) }), 2)
        }),
        case("nightly: a node forgets twice in a longer time", Holds, Nightly, |_| {
            prove(two_attempts(Quorlock, World { restarts: 2, ticks: 9, ..World::forgetful(&[0, 2]) }), 2)
        }),
        case("nightly: clocks that differ by less than the quarantine", Holds, Nightly, |_| {
            prove(two_attempts(Quorlock, World { lead: 9, ..World::forgetful(&[0, 3]) }), 2)
        }),
        case("nightly: millions of random walks", Holds, Nightly, |seed| {
            walk(&five_nodes(Quorlock, World::timeless(&[0, 2])), seed, 2_000_000)
        }),
        case("nightly: millions of random walks with forgetful nodes", Holds, Nightly, |seed| {
            walk(&five_nodes(Quorlock, World { restarts: 3, ..World::forgetful(&[0, 2]) }), seed, 1_000_000)
        }),
    ]
}

fn case(name: &'static str, expected: Expected, size: Size, run: fn(u64) -> Report) -> Case {
    Case { name, expected, size, run }
}

fn two_attempts(scheme: Scheme, world: World) -> Fence<3, 2> {
    Fence::new(scheme, world)
}

fn three_attempts(scheme: Scheme, world: World) -> Fence<3, 3> {
    Fence::new(scheme, world)
}

fn five_nodes(scheme: Scheme, world: World) -> Fence<5, 4> {
    Fence::new(scheme, world)
}
