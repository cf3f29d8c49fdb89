//! Where a lock goes that its holder gives up: to the next waiter of its process, to all others, or to no one.
//!
//! | how | asks the nodes | when |
//! |---|---|---|
//! | handed over | nothing: token and deadline stay | unfenced, and the lease is [worth passing on](may_hand_over) as it is (I-21) |
//! | passed on | to replace the token, for a full TTL | a waiter of this process is next, and its [streak](Streak) goes on |
//! | released | to remove the token | no waiter is here, or others come first now |
//! | retained | to replace the token by one of no process | the holder wants that ([`Retention`], R-10) |
//!
//! # Events
//!
//! | event | effect |
//! |---|---|
//! | all nodes have answered a request to replace a token | The [old one](Replaced) is taken back where it may still be, or may yet arrive (I-40), unless the lock was retained: it keeps others out there, too. |
//! | a node says that it had lost the old token, or said so to the renewal that was in flight | Enough of them, and another client may have held the lock meanwhile (I-11). |
//! | that renewal is answered, or its outcome is unknown | Its own answer says whether it may still arrive ([`Replaced::settled`]). |
//! | a round that retains is not confirmed | Repeated after a pause, but not once the lease would have expired: others may have had the lock since. |
//!
//! # Invariants
//!
//! - The old lease has ended before the new one begins, and before anything is sent (I-15, I-21). The owner ensures it.
//! - A lease that is handed over ends when the old one would have.
//! - An unknown state of the old token stays unknown (I-40).

use std::time::Duration;

use super::{Deployment, Keep, KeyStates, NodeSet, Round, was_lost};
use crate::renewal::RetryPauses;
use crate::{KeyState, Moment, Verdict};

/// The smallest unit in which servers count.
const LEAST: Duration = Duration::from_millis(1);

/// Leases that were passed on between the waiters of a process, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Streak {
    began: Moment,
    passed: u32,
}

impl Streak {
    /// Begins with the first lease.
    #[must_use]
    pub fn new(now: Moment) -> Streak {
        Streak { began: now, passed: 0 }
    }

    /// Whether one more may follow at `now`, of `most`, and within `longest`: after that other processes come first.
    pub fn goes_on(&mut self, most: u32, longest: Duration, now: Moment) -> bool {
        let goes_on = self.passed < most && now.since(self.began) < longest;
        self.passed += 1;
        goes_on
    }
}

/// What the next waiter wants.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the engine fills it in")]
pub struct Successor {
    /// The TTL of its lease.
    pub ttl: Duration,
    /// Whether it wants a fencing token.
    pub is_fenced: bool,
    /// Whether its lease is renewed for it.
    pub is_renewed: bool,
}

/// Whether a lease that goes on until `end` is handed over at `now` without asking a node.
///
/// Only without fencing (the old lease `has_number` if it has one), since both leases share what the nodes store; only with
/// as much validity left as a renewal leaves in the worst case; only to a waiter with the same TTL and automatic renewal; and
/// not while a renewal of the old lease is due or in flight.
#[must_use]
pub fn may_hand_over(keep: &Keep, has_number: bool, next: Successor, (now, end): (Moment, Moment)) -> bool {
    let ttl = keep.schedule().ttl();
    // A lease that its holder renews has nothing due.
    let lasts = keep.schedule().due().is_some_and(|due| now < due) && end.since(now) >= ttl / 2;
    let is_alike = !has_number && !next.is_fenced && next.is_renewed && next.ttl == ttl;
    is_alike && lasts && !keep.is_renewing()
}

/// A token that a round replaces by another one.
#[derive(Clone, Copy, Debug)]
pub struct Replaced {
    before: KeyStates,
    /// The nodes that had lost it when an earlier round asked.
    lost: NodeSet,
}

impl Replaced {
    /// Begins with where the old token was `before`.
    #[must_use]
    pub fn new(before: KeyStates) -> Replaced {
        Replaced { before, lost: NodeSet::default() }
    }

    /// Whether a node had lost the old token, as far as the nodes have answered.
    #[must_use]
    pub fn has_lost(self, round: &Round) -> bool {
        !self.lost_in(round).lost.is_empty()
    }

    /// Records which nodes say in this round that they had lost the old token: in the next one they have the new one.
    #[must_use]
    pub fn lost_in(self, round: &Round) -> Replaced {
        self.also_lost(round.had_lost(self.before))
    }

    /// Records which nodes say so in the renewal that was in flight: it has stored the old token again.
    #[must_use]
    pub fn also_lost(self, nodes: NodeSet) -> Replaced {
        Replaced { lost: self.lost.union(nodes), ..self }
    }

    /// Whether the lock may have been [lost](was_lost) before, by a lease that was valid until then.
    pub fn was_lost(&self, nodes: &impl Deployment, round: &Round, valid_until: Moment, now: Moment) -> bool {
        was_lost(nodes.quorum(), self.before, self.lost_in(round).lost.len(), (valid_until, now))
    }

    /// Records what the rounds about the old token have `left` by the time at which all nodes have answered the request
    /// to replace it: a renewal that was in flight has its answer then. Without one it may still arrive, as that the
    /// node has the new token says nothing about another connection.
    #[must_use]
    pub fn settled(self, left: KeyStates) -> Replaced {
        let before = self.before.with(left, |before, left| match (before, left) {
            (KeyState::InFlight, KeyState::InFlight) => KeyState::Unknown,
            (KeyState::InFlight, left) => left,
            (before, _) => before,
        });
        Replaced { before, ..self }
    }

    /// Returns where the old token may still be stored, or may yet arrive, after the lock was passed on.
    #[must_use]
    pub fn left_behind(self, replaced: KeyStates) -> KeyStates {
        self.before.with(replaced, KeyState::left_behind)
    }

    /// Returns where a renewal may still arrive after the lock was retained: it would store the old token again once the new
    /// one has expired (rule R-13). Nothing is taken back from nodes not known to have stored the new token.
    #[must_use]
    pub fn may_come_back(self, replaced: KeyStates) -> KeyStates {
        self.before.with(replaced, |before, replaced| match (before, replaced) {
            (KeyState::Unknown, KeyState::Holds) => KeyState::Unknown,
            _ => KeyState::Without,
        })
    }
}

/// A lock that is left taken until a given moment.
#[derive(Clone, Debug)]
pub struct Retention {
    until: Moment,
    /// When the lease would have ended.
    end: Moment,
    pauses: RetryPauses,
}

/// What the verdict on a round that retains means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Retained {
    /// The lock is retained, also at nodes that had lost its key before.
    Confirmed,
    /// The nodes are asked again then.
    Again(Moment),
    /// It is not known to be, and the nodes are not asked again.
    Unconfirmed,
}

impl Retention {
    /// Retains the lock of a lease that goes on until `end`. Returns `None` if no time is left to retain it.
    #[must_use]
    pub fn new(until: Moment, (now, end): (Moment, Moment)) -> Option<Retention> {
        let pauses = RetryPauses::new(end.min(until).since(now));
        (until.since(now) >= LEAST).then_some(Retention { until, end, pauses })
    }

    /// Returns for how long the nodes store the new token if they are asked at `now`: only the remaining time each time, as
    /// the first request that a node executes may be the last.
    #[must_use]
    pub fn ttl(&self, now: Moment) -> Duration {
        self.until.since(now).max(LEAST)
    }

    /// Applies the verdict that is known at `now`.
    pub fn count(
        &mut self,
        verdict: Verdict,
        is_closing: bool,
        now: Moment,
        random: impl FnOnce() -> u64,
    ) -> Retained {
        if verdict == Verdict::Won && now < self.end {
            return Retained::Confirmed;
        }
        let end = self.end.min(self.until);
        let again = now + self.pauses.next(end.since(now), random());
        let is_in_vain = verdict == Verdict::Contended || is_closing || again >= end;
        if is_in_vain { Retained::Unconfirmed } else { Retained::Again(again) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::{FIVE, response};
    use crate::machine::{Asked, Expect, Machine as _, Question};
    use crate::node::{Expiry, Holding, Vote};
    use crate::{RenewalSchedule, Token};

    const TTL: Duration = Duration::from_secs(30);

    fn at(second: u64) -> Moment {
        Moment::ORIGIN + Duration::from_secs(second)
    }

    fn states(states: [KeyState; 5]) -> KeyStates {
        KeyStates::of(states)
    }

    #[test]
    fn a_streak_ends_after_so_many_leases_or_so_long() {
        let mut streak = Streak::new(at(0));
        assert!([1, 2].iter().all(|second| streak.goes_on(2, TTL, at(*second))));
        assert!(!streak.goes_on(2, TTL, at(3)), "two have followed the first");
        assert!(!Streak::new(at(0)).goes_on(2, TTL, at(30)));
        assert!(!Streak::new(at(0)).goes_on(0, TTL, at(0)));
    }

    #[test]
    fn i21_a_lease_is_handed_over_only_if_it_is_as_good_as_a_new_one() {
        let keep = |every| Keep::new(RenewalSchedule::new(every, TTL, at(0)));
        let automatic = keep(Some(TTL / 3));
        let next = Successor { ttl: TTL, is_fenced: false, is_renewed: true };
        let times = (at(9), at(29));
        assert!(may_hand_over(&automatic, false, next, times));
        assert!(!may_hand_over(&automatic, true, next, times), "it has a number");
        assert!(!may_hand_over(&automatic, false, Successor { is_fenced: true, ..next }, times));
        assert!(!may_hand_over(&automatic, false, Successor { is_renewed: false, ..next }, times));
        assert!(!may_hand_over(&automatic, false, Successor { ttl: TTL / 2, ..next }, times));
        assert!(!may_hand_over(&automatic, false, next, (at(10), at(29))), "a renewal is due");
        assert!(!may_hand_over(&automatic, false, next, (at(9), at(23))), "less than half is left");
        assert!(!may_hand_over(&keep(None), false, next, times), "its holder renews");
        let mut renewing = keep(Some(TTL / 3));
        renewing.renew(None, at(9));
        assert!(!may_hand_over(&renewing, false, next, times));
    }

    #[test]
    fn i40_an_old_token_is_taken_back_where_it_may_still_be_or_may_yet_arrive() {
        use KeyState::{Holds, InFlight, Unknown, Without};
        let replaced = Replaced::new(states([Holds, Unknown, InFlight, Without, Holds]));
        let passed = states([Holds, Holds, Unknown, InFlight, Without]);
        assert_eq!(replaced.left_behind(passed), states([Without, Unknown, Unknown, Without, Holds]));
        let come_back = states([Without, Unknown, Without, Without, Without]);
        assert_eq!(replaced.may_come_back(passed), come_back, "r13: elsewhere it keeps others out");
    }

    /// The answer to the renewal itself says what became of it, not that the node has the new token.
    #[test]
    fn i40_r13_a_renewal_in_flight_is_what_it_has_answered_once_the_token_is_replaced() {
        use KeyState::{Holds, InFlight, Unknown, Without};
        let replaced = Replaced::new(states([InFlight, InFlight, InFlight, InFlight, Holds]))
            .settled(states([Unknown, InFlight, Holds, Without, Holds]));
        let passed = states([Holds; 5]);
        let late = states([Unknown, Unknown, Without, Without, Without]);
        assert_eq!((replaced.left_behind(passed), replaced.may_come_back(passed)), (late, late));
    }

    #[test]
    fn i11_an_old_token_was_lost_if_enough_of_the_nodes_that_had_it_say_so_in_time() {
        use KeyState::{Holds, Without};
        let question = Question { expect: Expect::Hold, takes_free: true, ttl: TTL };
        let mut round = Round::new(&FIVE, question, at(0), |_| Asked::Now);
        let replaced = Replaced::new(states([Holds, Holds, Holds, Without, Holds]));
        let hear = |round: &mut Round, node: usize, vote| {
            round.handle_response(&FIVE, node, Ok(response(node, vote)), at(1));
        };
        let lost = |round: &Round, now| replaced.was_lost(&FIVE, round, at(20), now);
        hear(&mut round, 3, Vote::Restored);
        hear(&mut round, 4, Vote::Granted);
        assert!(!replaced.has_lost(&round), "one never had it, and one has it");
        hear(&mut round, 0, Vote::Restored);
        assert!(replaced.has_lost(&round) && !lost(&round, at(2)), "two of five are without it");
        hear(&mut round, 1, Holding::new(Token::new(9, ""), Expiry::In(TTL)).into());
        assert!(lost(&round, at(2)), "three are a quorum for another client");
        assert!(!lost(&round, at(20)), "it may have expired");
        let behind = |nodes: [usize; 2]| replaced.also_lost(nodes.into_iter().collect());
        let quiet = Round::new(&FIVE, question, at(0), |_| Asked::Now);
        assert!(behind([1, 4]).was_lost(&FIVE, &quiet, at(20), at(2)), "a renewal has stored it again");
        assert!(!behind([1, 1]).was_lost(&FIVE, &quiet, at(20), at(2)));
    }

    #[test]
    fn r11_a_lock_is_not_retained_once_its_lease_would_have_expired() {
        let begin = |until| Retention::new(until, (at(0), at(10)));
        assert!(begin(at(0)).is_none(), "it is released");
        let mut retention = begin(at(60)).unwrap();
        let (won, closing) = (Verdict::Won, false);
        assert_eq!(retention.ttl(at(20)), Duration::from_secs(40), "only what remains");
        assert_eq!(retention.ttl(at(70)), Duration::from_millis(1));
        assert_eq!(retention.count(won, closing, at(9), || 0), Retained::Confirmed);
        assert_eq!(retention.count(won, closing, at(10), || 0), Retained::Unconfirmed, "too late");
        let unavailable = Verdict::Unavailable;
        assert_eq!(retention.count(unavailable, closing, at(1), || 0), Retained::Again(at(1)));
        assert_eq!(retention.count(unavailable, true, at(1), || 0), Retained::Unconfirmed);
        assert_eq!(retention.count(Verdict::Contended, closing, at(1), || 0), Retained::Unconfirmed);
        let mut short = begin(at(2)).unwrap();
        assert_eq!(short.count(unavailable, closing, at(2), || 0), Retained::Unconfirmed, "the time is over");
    }

    #[test]
    fn r11_a_lock_whose_lease_ends_soon_is_retained_by_another_request_before_that_end() {
        let mut retention = Retention::new(at(60), (at(0), at(1))).unwrap();
        let again = retention.count(Verdict::Unavailable, false, at(0), || u64::MAX);
        assert_eq!(again, Retained::Again(at(0) + Duration::from_millis(10)));
    }
}
