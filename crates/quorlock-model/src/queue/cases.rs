//! The cases of the queue.

use super::{Queue, Variant};
use crate::case::{Case, holds, violated};
use crate::explore::{hunt, prove};

/// Returns all cases.
pub(crate) fn all() -> Vec<Case> {
    vec![
        holds("live_waiters_are_never_stranded_by_crashes_and_lost_messages", |_| {
            prove(queue::<4>(Variant::Right), 1)
        }),
        violated("without_heartbeats_waiters_behind_a_crashed_one_are_stranded", |_| {
            hunt(&queue::<3>(Variant::NoHeartbeat))
        }),
        violated("a_turn_that_never_expires_strands_waiters_behind_a_crashed_one", |_| {
            hunt(&queue::<3>(Variant::EndlessTurn))
        }),
        violated("a_turn_given_up_without_a_hint_strands_waiters_that_only_listen", |_| {
            hunt(&Queue::<3> { deaths: 0, losses: 0, ..queue(Variant::TurnNotLeft) })
        }),
        holds("a_reader_in_the_queue_is_passed_over_once_by_each_other_at_most", |_| {
            prove(reader::<3>(Variant::Right), 1)
        }),
        violated("a_reader_without_a_place_is_passed_over_again_and_again", |_| {
            hunt(&reader::<3>(Variant::NoPlace))
        }),
    ]
}

fn reader<const K: usize>(variant: Variant) -> Queue<K> {
    Queue { variant, deaths: 0, losses: 0, departures: 0, reader: true, returns: 3 }
}

fn queue<const K: usize>(variant: Variant) -> Queue<K> {
    Queue { variant, deaths: 2, losses: 1, departures: 1, reader: false, returns: 0 }
}
