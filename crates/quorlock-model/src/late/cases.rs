//! What is to be found out about requests that come late.

use super::{Late, Scheme, Server};
use crate::case::Expected::{Holds, Violated};
use crate::case::{Case, Expected, Size};
use crate::explore::{Report, hunt, prove};

/// All of them. The names are those of the tests.
#[must_use]
pub fn all() -> Vec<Case> {
    vec![
        case("what is given back stays free whatever comes late", Holds, |_| {
            prove(model(Scheme::Quorlock, Server::Patient), 1)
        }),
        case("a server that ends earlier connections need not look for tombstones", Holds, |_| {
            prove(model(Scheme::NoLook, Server::EndsEarlier), 1)
        }),
        case("what is unknown and only released comes back", Violated, |_| {
            hunt(&model(Scheme::OnlyReleased, Server::Patient))
        }),
        case("what is unknown and forgotten after a later answer comes back", Violated, |_| {
            hunt(&model(Scheme::Forgotten, Server::Patient))
        }),
        case("what is unknown and left behind by a transfer comes back", Violated, |_| {
            hunt(&model(Scheme::TransferSettles, Server::Patient))
        }),
        case("a vote without a look for the tombstone comes back", Violated, |_| {
            hunt(&model(Scheme::NoLook, Server::Patient))
        }),
        Case {
            size: Size::Nightly,
            ..case("nightly: four renewals and four connections that end", Holds, |_| {
                prove(Late { renewals: 4, breaks: 4, ..model(Scheme::Quorlock, Server::Patient) }, 2)
            })
        },
    ]
}

fn model(scheme: Scheme, server: Server) -> Late {
    Late { scheme, server, renewals: 2, breaks: 2 }
}

fn case(name: &'static str, expected: Expected, run: fn(u64) -> Report) -> Case {
    Case { name, expected, size: Size::Quick, run }
}
