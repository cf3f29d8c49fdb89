//! A place in the queue of one lock for those who cannot wait there alone: readers, and callers of several locks.
//!
//! It accepts no offer: when it is first, the lock is released openly (rule W-9). A caller of several locks may find another
//! of them held in each turn. So it keeps its turn for a while, in which the lock stays free: for an eighth of the time for
//! which it has waited, and then not again for four times as long, so that a lock which is held for hours takes at most a
//! fifth of the others' time.
//!
//! | state | becomes, when |
//! |---|---|
//! | queued | kept, when its turn comes, and the lock was in the way |
//! | kept | resting, when it has been kept for the longest time |
//! | resting | queued, when it has rested |

use std::time::Duration;

use super::{ASKED_AGAIN, Place};
use crate::votes::VoteReport;
use crate::{Moment, keeps_turn_for, rests_after_turn};

/// How often a place is confirmed: well within the time for which nodes keep it.
const CONFIRMED_EVERY: Duration = Duration::from_secs(1);

/// A place that accepts no offer.
#[derive(Clone, Debug)]
pub struct OpenPlace {
    /// When to ask for it again.
    next: Moment,
    /// Since when it has kept its turn.
    kept_since: Option<Moment>,
    /// It keeps no turn before.
    rests_until: Moment,
    /// The holders, if it was first behind them when it was confirmed just now.
    first_behind: Option<VoteReport>,
    /// Whether it was first when it was last confirmed.
    is_first: bool,
}

/// What is due at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum PlaceDue {
    /// Nothing.
    Nothing,
    /// It is to be asked for.
    Ask,
    /// Its turn goes to the next.
    PassOn,
}

/// What an answer about a place means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum PlaceAnswer {
    /// It waits on.
    Waits,
    /// It keeps its turn, which has begun anew and has taken it out of the queue: it is to be asked for once more.
    KeepsTurn,
    /// Its turn has come.
    HasTurn,
}

impl OpenPlace {
    /// Begins to ask for a place.
    #[must_use]
    pub fn new(now: Moment) -> OpenPlace {
        OpenPlace { next: now, kept_since: None, rests_until: now, first_behind: None, is_first: false }
    }

    /// Returns when to ask for it again.
    #[must_use]
    pub fn next(&self) -> Moment {
        self.next
    }

    /// Whether it keeps its turn.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kept_since.is_some()
    }

    /// Whether it was first when it was last confirmed.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    /// Returns the holders, if it was first behind them when it was confirmed; once.
    pub fn take_first_behind(&mut self) -> Option<VoteReport> {
        self.first_behind.take()
    }

    /// Asks for it immediately.
    pub fn ask_at(&mut self, now: Moment) {
        self.next = now;
    }

    /// Records that a node has announced its turn.
    pub fn note_turn(&mut self, now: Moment) {
        if now >= self.rests_until {
            self.kept_since.get_or_insert(now);
            self.next = now;
        }
    }

    /// Returns what is due for a waiter that has `waited`, and `is_missing` if it has no place while it keeps another one.
    pub fn due(&mut self, waited: Duration, is_missing: bool, now: Moment) -> PlaceDue {
        let is_allowed = self.kept_since.is_none_or(|since| since >= self.rests_until);
        debug_assert!(is_allowed, "a turn was kept too soon after another");
        if now < self.next && !is_missing {
            return PlaceDue::Nothing;
        }
        let longest = keeps_turn_for(waited);
        if self.kept_since.is_some_and(|since| now.since(since) >= longest) {
            (self.kept_since, self.is_first) = (None, false);
            self.rests_until = now + rests_after_turn(longest);
            self.next = now + CONFIRMED_EVERY;
            return PlaceDue::PassOn;
        }
        PlaceDue::Ask
    }

    /// Records that no node has answered.
    pub fn is_unanswered(&mut self, now: Moment) {
        self.next = now + ASKED_AGAIN;
    }

    /// Records the answer to a request of `asked`. A turn of a lock that was free is none, as it `blocks` no attempt.
    pub fn answered(&mut self, place: Place, blocks: bool, asked: Moment) -> PlaceAnswer {
        let (is_turn, is_kept) = (place.queued.is_none(), self.is_kept());
        let is_free = place.is_near() && !place.is_held();
        self.next = asked
            + if is_kept || (is_turn && blocks) {
                // Twice in each turn, before others may come.
                place.turn / 2
            } else if is_free {
                // Reserved for a turn, which may be this one.
                place.turn * (1 + place.ahead())
            } else {
                CONFIRMED_EVERY
            };
        self.is_first = place.ahead() == 0;
        self.first_behind = place.is_first_behind_holder().then_some(place.report);
        if is_turn && is_kept {
            return PlaceAnswer::KeepsTurn;
        }
        if !(is_turn && blocks) {
            return PlaceAnswer::Waits;
        }
        if asked >= self.rests_until {
            self.kept_since = Some(asked);
        }
        PlaceAnswer::HasTurn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::{at, held, report};
    use crate::node::Queued;
    use crate::votes::VoteOutcome;

    const TURN: Duration = Duration::from_millis(100);
    const MS: Duration = Duration::from_millis(1);
    const WAITED: Duration = Duration::from_secs(80);

    fn place(queued: Option<Queued>) -> Place {
        Place { home: 0, queued, report: report([VoteOutcome::Free]), turn: TURN }
    }

    fn behind(ahead: u32, is_held: bool) -> Place {
        place(Some(Queued::new(ahead, is_held.then_some(held(7)))))
    }

    #[test]
    fn w9_a_turn_is_kept_for_a_while_and_then_not_for_longer() {
        let mut open = OpenPlace::new(at(0));
        assert_eq!(open.due(WAITED, false, at(0)), PlaceDue::Ask);
        assert_eq!(open.answered(place(None), true, at(0)), PlaceAnswer::HasTurn);
        assert!(open.is_kept());
        assert_eq!(open.next(), at(50), "twice in each turn");
        assert_eq!(open.due(WAITED, false, at(49)), PlaceDue::Nothing);
        assert_eq!(open.due(WAITED, true, at(49)), PlaceDue::Ask, "its place is missing");
        assert_eq!(open.answered(place(None), true, at(50)), PlaceAnswer::KeepsTurn);
        let longest = keeps_turn_for(WAITED);
        assert_eq!(open.due(WAITED, false, (at(0) + longest).back(MS)), PlaceDue::Ask);
        let end = at(0) + longest;
        assert_eq!(open.due(WAITED, false, end), PlaceDue::PassOn);
        assert!(!open.is_kept() && open.next() == end + 1_000 * MS);
        let rested = end + rests_after_turn(longest);
        open.note_turn(rested.back(MS));
        assert!(!open.is_kept(), "it rests");
        assert_eq!(open.answered(place(None), true, rested.back(MS)), PlaceAnswer::HasTurn);
        assert!(!open.is_kept(), "it asks, and keeps no turn");
        open.note_turn(rested);
        assert!(open.is_kept() && open.next() == rested);
    }

    #[test]
    fn w9_the_turn_of_a_lock_that_was_in_the_way_of_no_attempt_is_not_kept() {
        let mut open = OpenPlace::new(at(0));
        assert_eq!(open.answered(place(None), false, at(0)), PlaceAnswer::Waits);
        assert!(!open.is_kept() && open.next() == at(1_000));
    }

    #[test]
    fn a_place_is_confirmed_each_second_and_sooner_where_the_lock_is_free() {
        let next = |answer| {
            let mut open = OpenPlace::new(at(0));
            assert_eq!(open.answered(answer, true, at(0)), PlaceAnswer::Waits);
            (open.next(), open.is_first(), open.take_first_behind().is_some())
        };
        assert_eq!(next(behind(0, true)), (at(1_000), true, true));
        assert_eq!(next(behind(1, true)), (at(1_000), false, false));
        assert_eq!(next(behind(1, false)), (at(200), false, false), "after the turn of the first");
        let mut open = OpenPlace::new(at(0));
        open.is_unanswered(at(5));
        assert_eq!(open.next(), at(1_005));
        open.ask_at(at(7));
        assert_eq!(open.due(WAITED, false, at(7)), PlaceDue::Ask);
    }
}
