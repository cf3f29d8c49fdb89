//! The cases of the queue.

use super::{Queue, Variant};
use crate::case::{Case, holds, violated};
use crate::explore::{hunt, prove};

/// Returns all cases.
pub(crate) fn all() -> Vec<Case> {
    vec![
        holds("in_the_queue_nobody_who_lives_is_stranded_whoever_dies_and_whatever_is_lost", |_| {
            prove(queue::<4>(Variant::Right), 1)
        }),
        violated("without_heartbeats_whoever_is_behind_one_who_died_in_its_turn_is_stranded", |_| {
            hunt(&queue::<3>(Variant::NoHeartbeat))
        }),
        violated("a_turn_that_never_ends_strands_those_behind_one_who_died_in_it", |_| {
            hunt(&queue::<3>(Variant::EndlessTurn))
        }),
        violated("a_turn_that_is_given_up_and_told_to_nobody_strands_those_who_only_listen", |_| {
            hunt(&Queue::<3> { deaths: 0, losses: 0, ..queue(Variant::TurnNotLeft) })
        }),
    ]
}

fn queue<const K: usize>(variant: Variant) -> Queue<K> {
    Queue { variant, deaths: 2, losses: 1, departures: 1 }
}
