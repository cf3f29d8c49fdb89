//! The cases of late requests.

use super::{Late, Scheme, Server};

cases! {
    holds prove a_released_lock_stays_free_whatever_arrives_late: model(Scheme::Quorlock, Server::Patient);
    holds prove a_server_that_ends_earlier_connections_needs_no_tombstones:
        model(Scheme::NoLook, Server::EndsEarlier);
    violated hunt an_unknown_claim_that_is_only_released_comes_back:
        model(Scheme::OnlyReleased, Server::Patient);
    violated hunt an_unknown_claim_forgotten_after_a_later_answer_comes_back:
        model(Scheme::Forgotten, Server::Patient);
    violated hunt an_unknown_claim_left_by_a_transfer_comes_back:
        model(Scheme::TransferSettles, Server::Patient);
    violated hunt a_vote_that_ignores_the_tombstone_comes_back: model(Scheme::NoLook, Server::Patient);
    nightly prove nightly_four_renewals_and_four_connections_that_end:
        Late { renewals: 4, breaks: 4, ..model(Scheme::Quorlock, Server::Patient) };
}

fn model(scheme: Scheme, server: Server) -> Late {
    Late { scheme, server, renewals: 2, breaks: 2 }
}
