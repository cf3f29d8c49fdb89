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
    ]
}

fn queue<const K: usize>(variant: Variant) -> Queue<K> {
    Queue { variant, deaths: 2, losses: 1, departures: 1 }
}
