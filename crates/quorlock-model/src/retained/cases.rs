//! What is to be found out about locks that stay taken.

use super::{Renewals, Retained, Scheme};
use crate::case::Expected::{Holds, Violated};
use crate::case::{Case, Expected, Size};
use crate::explore::{Report, hunt, prove};

/// All of them. The names are those of the tests.
#[must_use]
pub fn all() -> Vec<Case> {
    vec![
        case("a slot that was confirmed has one run", Holds, |_| prove(model(Scheme::Quorlock, 0), 1)),
        case("a host that releases first and retains then lets another run in between", Violated, |_| {
            hunt(&model(Scheme::ReleaseFirst, 0))
        }),
        case("a slot that a minority confirms has two runs", Violated, |_| hunt(&model(Scheme::Minority, 0))),
        case("a slot that is confirmed after the end of the lease has two runs", Violated, |_| {
            hunt(&model(Scheme::AfterTheEnd, 0))
        }),
        case("a slot that is kept for one TTL has two runs", Violated, |_| hunt(&model(Scheme::OneTtl, 0))),
        case("a slot that only a quorum has is run again when one node forgets it", Violated, |_| {
            hunt(&model(Scheme::Quorlock, 1))
        }),
        case("a lost renewal does not take the lock again after the slot", Holds, |_| {
            prove(late(Scheme::Quorlock), 1)
        }),
        case("a lost renewal that nobody stops takes the lock again after the slot", Violated, |_| {
            hunt(&late(Scheme::NotStopped))
        }),
        Case {
            size: Size::Nightly,
            ..case("nightly: a lost renewal and a longer slot", Holds, |_| {
                prove(Retained { ttl: 2, slot: 3, ..late(Scheme::Quorlock) }, 2)
            })
        },
        case("a renewal that is cancelled before the slot is certain lets another run", Violated, |_| {
            hunt(&late(Scheme::StoppedFirst))
        }),
    ]
}

fn model(scheme: Scheme, forgets: u8) -> Retained<3> {
    Retained { scheme, ttl: 2, slot: 4, forgets, renewals: Renewals::None }
}

fn late(scheme: Scheme) -> Retained<3> {
    Retained { ttl: 1, slot: 2, renewals: Renewals::Lost, ..model(scheme, 0) }
}

fn case(name: &'static str, expected: Expected, run: fn(u64) -> Report) -> Case {
    Case { name, expected, size: Size::Quick, run }
}
