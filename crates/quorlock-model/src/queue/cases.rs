//! What is to be found out about the queue.

use super::{Queue, Variant};
use crate::case::Expected::{Holds, Violated};
use crate::case::{Case, Expected, Size};
use crate::explore::{Report, hunt, prove};

/// All of them. The names are those of the tests.
#[must_use]
pub fn all() -> Vec<Case> {
    vec![
        case("in the queue nobody who lives is stranded whoever dies and whatever is lost", Holds, |_| {
            prove(queue::<4>(Variant::Right), 1)
        }),
        case("without heartbeats whoever is behind one who died in its turn is stranded", Violated, |_| {
            hunt(&queue::<3>(Variant::NoHeartbeat))
        }),
        case("a turn that never ends strands those behind one who died in it", Violated, |_| {
            hunt(&queue::<3>(Variant::EndlessTurn))
        }),
        case("a turn that is given up and told to nobody strands those who only listen", Violated, |_| {
            hunt(&Queue::<3> { deaths: 0, losses: 0, ..queue(Variant::TurnNotLeft) })
        }),
    ]
}

fn queue<const K: usize>(variant: Variant) -> Queue<K> {
    Queue { variant, deaths: 2, losses: 1, departures: 1 }
}

fn case(name: &'static str, expected: Expected, run: fn(u64) -> Report) -> Case {
    Case { name, expected, size: Size::Quick, run }
}
