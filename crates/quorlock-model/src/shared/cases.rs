//! The cases of shared locks.

use super::{Scheme, Shared};
use crate::case::{Case, holds, nightly, violated};
use crate::contest::{Bounds, Contest};
use crate::explore::{hunt, prove};
use crate::walk::walk;

use super::Scheme::Quorlock;

/// Returns all cases.
pub(crate) fn all() -> Vec<Case> {
    vec![
        holds("readers_share_the_lock_and_a_writer_is_exclusive", |_| prove(three(Quorlock, 1, 0), 1)),
        holds("two_writers_and_a_reader_exclude_each_other", |_| prove(three(Quorlock, 2, 0), 1)),
        holds("a_writer_may_become_a_reader_and_readers_renew", |_| {
            prove(Shared::new::<3, 2>(Quorlock, 1, bounds(2, 1)), 1)
        }),
        holds("five_nodes_readers_writers_and_downgrades_at_random", |seed| {
            walk(&five(Quorlock), seed, 50_000)
        }),
        violated("one_time_for_all_readers_ends_before_the_last_of_them", |_| {
            hunt(&three(Scheme::OneTtl, 1, 0))
        }),
        violated("a_count_of_readers_is_lowered_by_an_expired_reader", |_| {
            hunt(&Shared::new::<1, 3>(Scheme::Counting, 1, bounds(2, 0)))
        }),
        violated("a_leaving_reader_must_not_shorten_the_others_ttl", |_| {
            hunt(&three(Scheme::LeaverShortens, 1, 0))
        }),
        violated("a_writer_whose_downgrade_failed_is_no_longer_exclusive", |_| {
            hunt(&three(Scheme::FailedDowngrade, 1, 1))
        }),
        violated("a_minority_must_not_confirm_a_downgrade", |_| {
            hunt(&three(Scheme::MinorityDowngrade, 2, 1))
        }),
        violated("without_an_intent_new_readers_overtake_a_writer", |_| hunt(&three(Scheme::NoIntent, 1, 0))),
        violated("an_intent_at_one_node_does_not_keep_readers_out", |_| {
            hunt(&three(Scheme::OneIntent, 1, 0))
        }),
        nightly("nightly_two_readers_a_writer_that_becomes_one_and_renewals", |_| {
            prove(three(Quorlock, 1, 1), 2)
        }),
        nightly("nightly_a_longer_ttl_for_those_who_share", |_| {
            prove(Shared::new::<3, 2>(Quorlock, 1, bounds(4, 2)), 2)
        }),
        nightly("nightly_a_million_random_walks_among_readers", |seed| {
            walk(&five(Quorlock), seed, 1_000_000)
        }),
    ]
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
