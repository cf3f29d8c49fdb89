//! The cases of several locks.

use super::Scheme::Quorlock;
use super::{Scheme, Several};
use crate::contest::Contest;

cases! {
    holds prove overlapping_sets_and_a_lock_alone_exclude_each_other: three(Quorlock);
    holds prove leases_of_several_are_renewed_and_a_node_loses_one_key_of_them: with_single(Quorlock, (2, 1));
    holds walk(50_000) sets_and_locks_on_five_nodes_at_random_with_keys_that_are_lost: five(Quorlock);
    violated hunt attempts_that_take_locks_one_by_one_deadlock: two(Scheme::OneByOne);
    violated hunt a_node_that_stores_some_of_the_keys_must_not_vote: three(Scheme::PartialNode);
    violated hunt a_node_that_has_lost_one_of_the_keys_must_not_confirm:
        with_single(Scheme::SomeKept, (2, 1));
    nightly prove nightly_leases_of_several_and_two_losses: with_single(Quorlock, (3, 2));
    nightly walk(1_000_000) nightly_a_million_random_walks_among_sets: five(Quorlock);
}

const YES: bool = true;
const NO: bool = false;

/// Two attempts want the same two locks.
fn two(scheme: Scheme) -> Contest<Several<2, 2>, 3, 2, 2> {
    Several::new(scheme, [[YES, YES]; 2], (0, 0))
}

/// One attempt wants two locks, the other one of these.
fn with_single(scheme: Scheme, bounds: (u8, u8)) -> Contest<Several<2, 2>, 3, 2, 2> {
    Several::new(scheme, [[YES, YES], [NO, YES]], bounds)
}

/// Two sets overlap, and the third attempt wants a single lock.
fn three(scheme: Scheme) -> Contest<Several<3, 3>, 3, 3, 3> {
    Several::new(scheme, [[YES, YES, NO], [NO, YES, YES], [YES, NO, NO]], (0, 0))
}

fn five(scheme: Scheme) -> Contest<Several<5, 3>, 5, 5, 3> {
    let wants = [[YES, YES, NO], [NO, YES, YES], [YES, NO, YES], [YES, YES, YES], [NO, YES, NO]];
    Several::new(scheme, wants, (3, 1))
}
