//! The queue of waiters that a node keeps for a lock (rules W-1 to W-7).

use std::time::Duration;

use crate::sibling::Sibling;
use crate::waiter::WaiterId;
use crate::{Moment, fraction, want_mark_sibling};

/// Returns the key whose change notifies `waiter` that it is its turn for the lock at `key`. It
/// exists for as long as the node waits for this waiter.
#[must_use]
pub fn turn_key(key: &str, waiter: WaiterId) -> String {
    Sibling::new("want", key, format!("mark:{waiter}")).to_string()
}

/// Returns the key whose presence says that a client waits for the lock at `key`. The other keys of
/// the queue begin with it.
#[must_use]
#[inline]
pub fn want_mark(key: &str) -> String {
    want_mark_sibling(key).to_string()
}

/// How many places of a queue a node distinguishes: a waiter with at least this many ahead of it
/// gets this number.
pub const MOST_PLACES: u32 = 8;
/// How long a node keeps a waiter that does not ask again: three of the longest heartbeats.
pub const QUEUE_PATIENCE: Duration = Duration::from_secs(6);
/// The shortest turn, the time in which a notified waiter must take the lock before the next one is
/// notified. Three round trips are added to it.
pub const LEAST_TURN: Duration = Duration::from_millis(25);
/// The heartbeat of the first two, which are notified of every change of the lock: plus or minus a
/// quarter.
const FIRST: Duration = Duration::from_millis(1_100);
/// The shortest heartbeat of the third, in a moving queue, and by how much that of each behind it is longer …
const SHORTEST: Duration = Duration::from_millis(100);
/// … the longest of these …
const LONGEST_NEAR: Duration = Duration::from_secs(1);
/// … and that of the others.
const LONGEST: Duration = Duration::from_secs(2);

/// Returns the length of a turn at this round trip time.
#[must_use]
pub fn turn(round_trip: Duration) -> Duration {
    LEAST_TURN.saturating_add(round_trip.saturating_mul(3))
}

/// Returns how long a caller of several locks that has `waited` keeps its turn at one of them, which then stays free while
/// another one is held (rule W-9): in proportion, so that it gets them in the end if none is held for more than 5 s.
#[must_use]
pub fn keeps_turn_for(waited: Duration) -> Duration {
    (waited / 8).min(LONGEST_KEPT)
}

/// Returns how long it keeps no further turn at that lock.
#[must_use]
pub fn rests_after_turn(kept: Duration) -> Duration {
    kept * 4
}

/// A lock that another one keeps free costs its own waiters this at most, at a time.
pub(crate) const LONGEST_KEPT: Duration = Duration::from_secs(5);

/// How many requests one wait may send in a row, and how often after that (rule W-10): more than a wait that is notified only of
/// changes needs.
const ASKS_IN_A_ROW: u32 = 16;
/// See [`ASKS_IN_A_ROW`].
const ASKS_EVERY: Duration = Duration::from_millis(100);

/// Bounds how often a waiter asks, however often it is notified.
///
/// A server that may remember few reads (`tracking-table-max-keys`) notifies a client of a key soon after each time it was
/// read, although it has not changed. A waiter that asks then reads it again.
#[derive(Clone, Copy, Debug, Default)]
pub struct AskPace {
    first: u32,
    /// When all that was asked so far would have been asked at an even pace.
    even: Moment,
}

impl AskPace {
    /// Counts a request, and returns when it may be sent, unless that is now.
    #[must_use]
    pub fn next(&mut self, now: impl FnOnce() -> Moment) -> Option<Moment> {
        if self.first < ASKS_IN_A_ROW {
            // The usual wait is over before, and reads no clock for this.
            self.first += 1;
            return None;
        }
        let now = now();
        self.even = self.even.max(now) + ASKS_EVERY;
        let from = self.even.back(ASKS_EVERY * ASKS_IN_A_ROW);
        (from > now).then_some(from)
    }
}

/// When a waiter in a node's queue asks again, unless it is notified first.
///
/// This is needed only when a client dies or a message is lost. Waiters near the front that are not
/// notified of the lock itself ask more often while the queue moves: one of them then notices that
/// the notified waiter has died.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueHeartbeat {
    ahead: Option<u32>,
    near: Duration,
}

impl QueueHeartbeat {
    /// Returns the pause before asking again with `ahead` waiters in front. `free` means that the
    /// lock was free, in another waiter's `turn`.
    #[must_use]
    pub fn next(&mut self, ahead: u32, free: bool, turn: Duration, random: u64) -> Duration {
        let moved = self.ahead.replace(ahead) != Some(ahead);
        match ahead {
            0 if free => turn,
            0 | 1 if !free => FIRST * 3 / 4 + fraction(FIRST / 2, random),
            ..MOST_PLACES => {
                // One that asks early is enough.
                let shortest = (SHORTEST.max(turn * 2) * ahead.saturating_sub(1).max(1)).min(LONGEST_NEAR);
                self.near =
                    if moved || free { shortest } else { (self.near * 2).clamp(shortest, LONGEST_NEAR) };
                self.near / 2 + fraction(self.near / 2, random)
            }
            // Uniform, so that of many waiters that arrived together one asks soon, and notices if
            // no waiter takes the lock.
            MOST_PLACES.. => fraction(LONGEST, random),
        }
    }

    /// Like [`next`](QueueHeartbeat::next), for a node that sends no notifications: asking is the
    /// only way to learn of a turn.
    #[must_use]
    pub fn without_notice(&mut self, ahead: u32, random: u64) -> Duration {
        self.ahead = Some(ahead);
        let longest = if ahead < MOST_PLACES { SHORTEST } else { LONGEST };
        longest / 2 + fraction(longest / 2, random)
    }
}

impl QueueHeartbeat {
    /// Returns the pause before asking again, if the node did not know of the holder.
    #[must_use]
    pub fn forgotten(&mut self, random: u64) -> Duration {
        self.near = (self.near * 2).clamp(SHORTEST, LONGEST_NEAR);
        self.near / 2 + fraction(self.near / 2, random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = LEAST_TURN;

    #[test]
    fn waiters_near_the_front_of_a_moving_queue_ask_often_and_others_rarely() {
        let mut heartbeat = QueueHeartbeat::default();
        let millis = |rest: Duration| rest.as_millis();
        assert_eq!(millis(heartbeat.next(MOST_PLACES, false, TURN, u64::MAX)), 2_000);
        let mut near = |ahead| millis(heartbeat.next(ahead, false, TURN, u64::MAX));
        assert_eq!([7, 6, 6, 6, 4, 4, 3, 2].map(&mut near), [600, 500, 1_000, 1_000, 300, 600, 200, 100]);
        assert_eq!([2, 2, 2, 2, 2].map(&mut near), [200, 400, 800, 1_000, 1_000]);
        assert_eq!([1, 0].map(near), [1_375; 2], "the first two are notified of the lock");
        assert_eq!(millis(heartbeat.without_notice(0, u64::MAX)), 100);
    }

    #[test]
    fn the_next_waiter_asks_when_the_turn_ends() {
        assert_eq!(QueueHeartbeat::default().next(0, true, TURN, 0), TURN);
        assert_eq!(
            turn(Duration::from_millis(100)),
            Duration::from_millis(325),
            "three round trips and a rest"
        );
    }

    #[test]
    fn w10_a_wait_that_is_told_of_changes_without_end_asks_at_a_pace() {
        let (mut pace, mut now, start) = (AskPace::default(), Moment::ORIGIN, Moment::ORIGIN);
        let mut asked = 0;
        while now < start + Duration::from_secs(10) {
            if let Some(from) = pace.next(|| now) {
                now = from;
            }
            asked += 1;
        }
        assert!((100..=140).contains(&asked), "{asked} in ten seconds");
        now = now + Duration::from_secs(60);
        let at_once = (0..ASKS_IN_A_ROW).filter(|_| pace.next(|| now).is_none()).count();
        assert_eq!(at_once, ASKS_IN_A_ROW as usize, "after a rest it may ask in a row again");
    }

    #[test]
    fn three_of_the_longest_heartbeats_keep_a_place() {
        assert_eq!(QUEUE_PATIENCE, LONGEST * 3);
    }

    #[test]
    fn the_keys_of_a_queue_begin_like_the_mark() {
        let turn = turn_key("orders/42", WaiterId::new(7));
        assert_eq!(turn, format!("{}:0000000000000007", want_mark("orders/42")));
    }
}
