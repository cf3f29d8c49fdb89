//! The cases of late requests.

use super::{Late, Scheme, Server};
use crate::case::{Case, holds, nightly, violated};
use crate::explore::{hunt, prove};

/// Returns all cases.
pub(crate) fn all() -> Vec<Case> {
    vec![
        holds("a_released_lock_stays_free_whatever_arrives_late", |_| {
            prove(model(Scheme::Quorlock, Server::Patient), 1)
        }),
        holds("a_server_that_ends_earlier_connections_needs_no_tombstones", |_| {
            prove(model(Scheme::NoLook, Server::EndsEarlier), 1)
        }),
        violated("an_unknown_claim_that_is_only_released_comes_back", |_| {
            hunt(&model(Scheme::OnlyReleased, Server::Patient))
        }),
        violated("an_unknown_claim_forgotten_after_a_later_answer_comes_back", |_| {
            hunt(&model(Scheme::Forgotten, Server::Patient))
        }),
        violated("an_unknown_claim_left_by_a_transfer_comes_back", |_| {
            hunt(&model(Scheme::TransferSettles, Server::Patient))
        }),
        violated("a_vote_that_ignores_the_tombstone_comes_back", |_| {
            hunt(&model(Scheme::NoLook, Server::Patient))
        }),
        nightly("nightly_four_renewals_and_four_connections_that_end", |_| {
            prove(Late { renewals: 4, breaks: 4, ..model(Scheme::Quorlock, Server::Patient) }, 2)
        }),
    ]
}

fn model(scheme: Scheme, server: Server) -> Late {
    Late { scheme, server, renewals: 2, breaks: 2 }
}
