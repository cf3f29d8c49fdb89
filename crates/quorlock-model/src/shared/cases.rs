//! The cases of shared locks.

use super::Scheme::Quorlock;
use super::{Scheme, Shared};
use crate::contest::{Bounds, Contest};

cases! {
    holds prove readers_share_the_lock_and_a_writer_is_exclusive: three(Quorlock, 1, 0);
    holds prove two_writers_and_a_reader_exclude_each_other: three(Quorlock, 2, 0);
    holds prove a_writer_may_become_a_reader_and_readers_renew:
        Shared::new::<3, 2>(Quorlock, 1, bounds(2, 1));
    holds walk(50_000) five_nodes_readers_writers_and_downgrades_at_random: five(Quorlock);
    violated hunt one_time_for_all_readers_ends_before_the_last_of_them: three(Scheme::OneTtl, 1, 0);
    violated hunt a_count_of_readers_is_lowered_by_an_expired_reader:
        Shared::new::<1, 3>(Scheme::Counting, 1, bounds(2, 0));
    violated hunt a_leaving_reader_must_not_shorten_the_others_ttl: three(Scheme::LeaverShortens, 1, 0);
    violated hunt a_writer_whose_downgrade_failed_is_no_longer_exclusive:
        three(Scheme::FailedDowngrade, 1, 1);
    violated hunt a_minority_must_not_confirm_a_downgrade: three(Scheme::MinorityDowngrade, 2, 1);
    violated hunt without_an_intent_new_readers_overtake_a_writer: three(Scheme::NoIntent, 1, 0);
    violated hunt an_intent_at_one_node_does_not_keep_readers_out: three(Scheme::OneIntent, 1, 0);
    nightly prove nightly_two_readers_a_writer_that_becomes_one_and_renewals: three(Quorlock, 1, 1);
    nightly prove nightly_a_longer_ttl_for_those_who_share: Shared::new::<3, 2>(Quorlock, 1, bounds(4, 2));
    nightly walk(1_000_000) nightly_a_million_random_walks_among_readers: five(Quorlock);
}

fn three(scheme: Scheme, writers: usize, renewals: u8) -> Contest<Shared, 3, 3, 1> {
    Shared::new(scheme, writers, bounds(2, renewals))
}

fn five(scheme: Scheme) -> Contest<Shared, 5, 5, 1> {
    Shared::new(scheme, 2, bounds(2, 3))
}

fn bounds(ttl: u8, renewals: u8) -> Bounds {
    Bounds { ttl, renewals, losses: 0 }
}
