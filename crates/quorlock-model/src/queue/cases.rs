//! The cases of the queue.

use super::{Queue, Variant};

cases! {
    holds prove live_waiters_are_never_stranded_by_crashes_and_lost_messages: queue::<4>(Variant::Right);
    violated hunt without_heartbeats_waiters_behind_a_crashed_one_are_stranded:
        queue::<3>(Variant::NoHeartbeat);
    violated hunt a_turn_that_never_expires_strands_waiters_behind_a_crashed_one:
        queue::<3>(Variant::EndlessTurn);
    violated hunt a_turn_given_up_without_a_hint_strands_waiters_that_only_listen:
        Queue::<3> { deaths: 0, losses: 0, ..queue(Variant::TurnNotLeft) };
    holds prove a_reader_in_the_queue_is_passed_over_once_by_each_other_at_most: reader::<3>(Variant::Right);
    violated hunt a_reader_without_a_place_is_passed_over_again_and_again: reader::<3>(Variant::NoPlace);
}

fn reader<const K: usize>(variant: Variant) -> Queue<K> {
    Queue { variant, deaths: 0, losses: 0, departures: 0, reader: true, returns: 3 }
}

fn queue<const K: usize>(variant: Variant) -> Queue<K> {
    Queue { variant, deaths: 2, losses: 1, departures: 1, reader: false, returns: 0 }
}
