//! The queue of the waiters for a lock, stored with it. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::WaiterId;

use super::word::visible;

/// The processes that wait for a lock. Moments are microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Ordered by the start of the wait, which is the order of their turns.
    waiters: BTreeMap<(u64, WaiterId), Waiting>,
    /// When the last turn began; 0 for never.
    turned: u64,
    /// The waiter whose turn that is, unless it has asked since.
    whose: Option<WaiterId>,
    /// The recent time from one turn to the next, in microseconds; 0 if unknown.
    pace: u64,
}

/// A waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiting {
    /// When the entry expires unless the waiter asks again.
    ends: u64,
    /// Describes the waiter's process, for display.
    context: String,
}

/// The maximum number of waiters in a record. Later ones retry until there is a place.
const MOST_WAITERS: usize = 256;
/// How long after its expiry a waiter keeps its place, and for how long the last turn is remembered; in
/// microseconds.
const KEPT: u64 = 60_000_000;
/// A waiter that asks again is rewritten once this fraction (one third) of its patience has passed: of the
/// six seconds that it asks for, at least four remain, which are two of the longest heartbeats.
const REFRESHED_AFTER: u64 = 3;

impl Queue {
    /// Returns the queue without entries that expired long ago.
    pub(super) fn at(mut self, now: u64) -> Queue {
        self.waiters.retain(|_, waiting| waiting.ends.saturating_add(KEPT) > now);
        if self.turned.saturating_add(KEPT) < now {
            (self.turned, self.whose, self.pace) = (0, None, 0);
        }
        self
    }

    /// Returns how many waiters are ahead. `None` if it is not in the queue: it has had its turn, or has
    /// left.
    #[must_use]
    pub fn place(&self, waiter: WaiterId) -> Option<usize> {
        self.waiters.keys().position(|(_, other)| *other == waiter)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Whether it is this waiter's turn if the lock is free: it was notified, or no turn has begun for
    /// `turn`.
    pub(super) fn is_turn_of(&self, waiter: WaiterId, now: u64, turn: u64) -> bool {
        self.whose == Some(waiter) || self.turned == 0 || self.turned.saturating_add(turn) <= now
    }

    /// Whether no live waiter is ahead of one that began to wait at `since`.
    pub(super) fn is_first(&self, waiter: WaiterId, since: u64, now: u64) -> bool {
        let kept = self.waiters.keys().find(|(_, other)| *other == waiter);
        let place = kept.copied().unwrap_or((since, waiter));
        !self.waiters.range(..place).any(|(_, waiting)| waiting.ends > now)
    }

    /// Whether the waiter has a place that lasts nearly until `ends`, which is `patience` from now.
    pub(super) fn keeps(&self, waiter: WaiterId, ends: u64, patience: u64) -> bool {
        let place = self.waiters.iter().find(|((_, other), _)| *other == waiter);
        place.is_some_and(|(_, waiting)| waiting.ends.saturating_add(patience / REFRESHED_AFTER) >= ends)
    }

    /// Returns the first waiter that has not expired.
    #[must_use]
    pub fn first(&self, now: u64) -> Option<WaiterId> {
        self.living(now).next().map(|(waiter, ..)| waiter)
    }

    /// Removes the waiters that have not asked for the time of their patience.
    pub(super) fn drop_silent(&mut self, now: u64) {
        self.waiters.retain(|_, waiting| waiting.ends > now);
    }

    /// Reserves the free lock for the first, whose turn begins. Returns whether there is one.
    pub(super) fn reserve(&mut self, now: u64) -> bool {
        let first = self.first(now);
        (self.turned, self.whose) = (now, first);
        first.is_some()
    }

    /// Removes the first, if the lock has been reserved for it for `turn`, and another one asks.
    pub(super) fn end_turn(&mut self, asks: WaiterId, now: u64, turn: u64) {
        let Some(first) = self.first(now).filter(|first| *first != asks) else { return };
        if self.whose != Some(first) {
            // The lock has expired.
            self.reserve(now);
        } else if self.turned.saturating_add(turn) <= now {
            self.leave(first);
            self.reserve(now);
        }
    }

    /// Whether a turn is remembered.
    pub(super) fn has_turn(&self) -> bool {
        self.turned > 0
    }

    /// Forgets the last turn: its waiter has released the lock, and no other one is in the queue.
    pub(super) fn end_all_turns(&mut self) {
        (self.turned, self.whose) = (0, None);
    }

    /// Adds a waiter, or extends its place.
    pub fn join(&mut self, waiter: WaiterId, since: u64, ends: u64, context: &str) {
        if let Some((_, waiting)) = self.waiters.iter_mut().find(|((_, other), _)| *other == waiter) {
            waiting.ends = ends;
        } else if self.waiters.len() < MOST_WAITERS {
            self.waiters.insert((since, waiter), Waiting { ends, context: context.to_owned() });
        }
    }

    /// Removes a waiter. Returns whether it was in the queue.
    pub(super) fn leave(&mut self, waiter: WaiterId) -> bool {
        let before = self.waiters.len();
        self.waiters.retain(|(_, other), _| *other != waiter);
        self.waiters.len() < before
    }

    /// Begins the turn of a waiter that has asked, and so knows it.
    pub(super) fn begin_turn(&mut self, waiter: WaiterId, now: u64) {
        self.leave(waiter);
        (self.turned, self.whose) = (now, None);
    }

    /// Begins the turn of the first waiter that has not expired, and removes it from the queue. Returns
    /// whether there is one.
    pub fn next_turn(&mut self, now: u64) -> bool {
        while let Some(((_, waiter), waiting)) = self.waiters.pop_first() {
            if waiting.ends > now {
                let took = now.saturating_sub(self.turned);
                // Decreases in one step and increases slowly: an unnecessary look costs less than a missed
                // turn.
                self.pace = match self.pace {
                    _ if self.turned == 0 => 0,
                    0 => took,
                    pace if took < pace => took,
                    pace => pace + (took - pace) / 8,
                };
                (self.turned, self.whose) = (now, Some(waiter));
                return true;
            }
        }
        false
    }

    /// Returns the recent time from one turn to the next, in microseconds; 0 if it is unknown.
    #[must_use]
    pub fn pace(&self) -> u64 {
        self.pace
    }

    /// Returns the live waiters in the order of their turns: when each began to wait, and its context.
    pub fn living(&self, now: u64) -> impl Iterator<Item = (WaiterId, u64, &str)> {
        let living = self.waiters.iter().filter(move |(_, waiting)| waiting.ends > now);
        living.map(|((since, waiter), waiting)| (*waiter, *since, &*waiting.context))
    }

    /// Returns when everything in it has expired; 0 if it is empty.
    pub(super) fn ends(&self) -> u64 {
        let turned = if self.turned == 0 { 0 } else { self.turned.saturating_add(KEPT) };
        self.waiters.values().map(|waiting| waiting.ends).fold(turned, u64::max)
    }
}

impl Queue {
    /// Encodes when the last turn began, the pace and whose turn it is; then the waiters.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        if self.turned > 0 {
            let whose = self.whose.map_or_else(|| "-".to_owned(), |waiter| waiter.to_string());
            let _ = writeln!(text, "turn {} {} {whose}", self.turned, self.pace);
        }
        for ((since, waiter), Waiting { ends, context }) in &self.waiters {
            let _ = writeln!(text, "waiter {waiter} {since} {ends} {}", visible(context.as_bytes()));
        }
        text
    }

    pub(super) fn set_turn(&mut self, began: u64, pace: u64, whose: Option<WaiterId>) {
        (self.turned, self.pace, self.whose) = (began, pace, whose);
    }

    pub(super) fn add(&mut self, waiter: WaiterId, since: u64, ends: u64, context: String) {
        self.waiters.insert((since, waiter), Waiting { ends, context });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(waiters: impl IntoIterator<Item = (u64, u64, u64)>) -> Queue {
        let mut queue = Queue::default();
        for (waiter, since, ends) in waiters {
            queue.join(WaiterId::new(waiter), since, ends, "anna:1");
        }
        queue
    }

    #[test]
    fn silent_waiters_keep_their_places_and_get_no_turn() {
        let mut queue = queue([(1, 10, 50), (2, 20, 90), (3, 30, 90)]);
        assert_eq!(queue.place(WaiterId::new(3)), Some(2));
        assert_eq!(
            queue.living(50).map(|(waiter, ..)| waiter).collect::<Vec<_>>(),
            [2, 3].map(WaiterId::new)
        );
        assert!(queue.next_turn(50), "the second is waited for");
        assert_eq!([1, 2, 3].map(|waiter| queue.place(WaiterId::new(waiter))), [None, None, Some(0)]);
        assert!(!queue.next_turn(90), "the third is waited for no longer");
    }

    #[test]
    fn a_turn_is_reserved_for_its_waiter_until_it_ends() {
        let mut queue = queue([(1, 10, 90), (2, 20, 90)]);
        assert!(queue.is_turn_of(WaiterId::new(2), 29, 25), "no turn has ever begun");
        assert!(queue.next_turn(30));
        assert!(
            queue.is_turn_of(WaiterId::new(1), 31, 25),
            "even where it asks again before it has seen that"
        );
        assert_eq!([54, 55].map(|now| queue.is_turn_of(WaiterId::new(2), now, 25)), [false, true]);
        queue.begin_turn(WaiterId::new(2), 55);
        assert_eq!([1, 2].map(|waiter| queue.is_turn_of(WaiterId::new(waiter), 56, 25)), [false; 2]);
    }

    #[test]
    fn the_first_is_the_live_waiter_that_began_first() {
        let queue = queue([(1, 10, 50), (2, 20, 90)]);
        let is_first = |waiter, since, now| queue.is_first(WaiterId::new(waiter), since, now);
        assert!(is_first(1, 99, 49), "by when it began, not by what it says now");
        assert!(!is_first(2, 0, 49) && is_first(2, 0, 50), "the other one has expired");
        assert!(is_first(3, 5, 49) && !is_first(3, 15, 49), "one that is not in the queue yet");
    }

    #[test]
    fn a_turn_is_over_when_its_waiter_has_released_and_no_other_waits() {
        let mut queue = queue([(1, 10, 90)]);
        queue.begin_turn(WaiterId::new(1), 30);
        assert!(!queue.is_turn_of(WaiterId::new(2), 31, 25), "it is about to take the lock");
        queue.end_all_turns();
        assert!(queue.is_turn_of(WaiterId::new(2), 31, 25) && !queue.has_turn());
    }

    #[test]
    fn a_place_is_rewritten_after_a_third_of_the_patience() {
        let queue = queue([(1, 10, 800)]);
        let keeps = |now: u64| queue.keeps(WaiterId::new(1), now + 800, 800);
        assert_eq!([0, 266, 267].map(keeps), [true, true, false]);
        assert!(!queue.keeps(WaiterId::new(2), 0, 800));
    }

    #[test]
    fn the_pace_falls_with_the_first_short_turn_and_rises_slowly() {
        let mut queue = queue((1..9).map(|waiter| (waiter, waiter, u64::MAX)));
        let mut pace = |now| {
            assert!(queue.next_turn(now));
            queue.pace()
        };
        assert_eq!([1_000, 9_000, 9_080, 9_240].map(&mut pace), [0, 8_000, 80, 90]);
    }

    #[test]
    fn a_full_queue_takes_no_more_and_keeps_those_it_has() {
        let most = u64::try_from(MOST_WAITERS).unwrap();
        let mut queue = queue((0..=most).map(|waiter| (waiter, waiter, 90)));
        assert_eq!(queue.place(WaiterId::new(most - 1)), Some(MOST_WAITERS - 1));
        assert_eq!(queue.place(WaiterId::new(most)), None);
        queue.join(WaiterId::new(0), 0, 99, "anna:1");
        assert!(queue.keeps(WaiterId::new(0), 99, 1), "it is prolonged all the same");
        assert!(queue.leave(WaiterId::new(0)));
        queue.join(WaiterId::new(most), most, 90, "anna:1");
        assert_eq!(queue.place(WaiterId::new(most)), Some(MOST_WAITERS - 1));
    }

    #[test]
    fn a_queue_lives_as_long_as_its_last_waiter_and_a_minute_after_its_last_turn() {
        assert_eq!(queue([(1, 10, 50), (2, 20, 90)]).ends(), 90);
        let mut empty = Queue::default();
        assert_eq!(empty.ends(), 0);
        empty.begin_turn(WaiterId::new(1), 7);
        assert_eq!(empty.ends(), 60_000_007);
        assert_eq!(empty.at(60_000_008), Queue::default());
        assert!(queue([(1, 10, 50)]).at(60_000_049).place(WaiterId::new(1)).is_some());
        assert!(queue([(1, 10, 50)]).at(60_000_050).place(WaiterId::new(1)).is_none());
    }
}
