//! Contends for a lock on behalf of one waiter after the other: what it does next, and what a refusal means.
//!
//! ```text
//!           ┌──────────────────────── refused ───────────────────────┐
//!           ▼                                                        │
//!  next ──► Queue ── turn ──► ask the nodes ──► won, in time         │
//!     ├───► TakeOffer ──────────┘          └──► lost ──► in vain: the waiter fails
//!     └───► Ask ────────────────┘                  └───► then: immediately again, in places, or after a pause
//! ```
//!
//! # Events
//!
//! | event | effect |
//! |---|---|
//! | a waiter [begins](Contest::begin) | What was learnt for those before it is kept, and what concerns one wait is forgotten. |
//! | [what is next](Contest::next)? | Takes an offer, if there is one. Where others want the lock, a waiter of one lock goes into the queue, unless it is its turn or no node has one. Otherwise it asks. |
//! | its [turn](Contest::has_turn) comes, or [no node queues it](Contest::is_not_queued) | It asks. |
//! | the attempt has [won](Contest::won) | Its number and its votes are kept in mind, if others wanted the lock. |
//! | it was [lost](Contest::lost) | Learns from the votes. A waiter that asks once, and any for which waiting is in vain, fails; except that a split vote is repeated a few times, after which one of the contenders has the lock. |
//! | and [then](Contest::then)? | A waiter of one lock that was refused goes into the queue immediately, or waits for the rest of its turn. One that has places waits there. All others pause. |
//!
//! # Invariants
//!
//! - A place or a turn is no vote: each way ends in asking all nodes (W-1).
//! - A turn ends: after it the waiter queues again (W-5).
//! - A waiter that no node queued asks for a place again a second later (Q-2, W-6).
//! - A writer announces itself only while it is in no queue, or first there (S-5).

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::{ASKED_AGAIN, AskOrder, Learnt, Pause};
use crate::machine::NodeSet;
use crate::votes::VoteReport;
use crate::{Backoff, FencingToken, Moment, Verdict};

/// The upper bound of the first pause after a split vote: a few round trips in one datacenter, to
/// desynchronize the contenders.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause. No hint announces the end of a split.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// How often a caller that asks once repeats a vote in which no client had a quorum. The repetitions
/// take 150 ms at most in one datacenter, and one of the contenders then has the lock.
const SPLITS: usize = 5;

/// What a waiter waits by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum WaitsBy {
    /// It asks once.
    Nothing,
    /// The queue of a node: a waiter of one exclusive lock.
    Queue,
    /// A place in the queue of each lock: a reader, or a waiter of several locks.
    Places,
}

/// How long a waiter waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Patience {
    /// Not at all.
    None,
    /// Until this moment.
    Until(Moment),
    /// As long as it takes.
    Endless,
}

/// What is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Step {
    /// To collect the votes that were offered.
    TakeOffer,
    /// To wait in the queue of a node.
    Queue,
    /// To ask the nodes.
    Ask,
}

/// What a lost attempt means for the waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Lost {
    /// It fails: the servers do not fit together.
    Misconfigured,
    /// It fails with the verdict.
    InVain,
    /// It goes on.
    GoesOn,
}

/// What a waiter that goes on does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Then {
    /// It looks immediately what is next.
    Next,
    /// It keeps its places.
    Places,
    /// It pauses.
    Pause,
}

/// Contends for one key, or several.
#[derive(Clone, Debug)]
pub struct Contest {
    order: AskOrder,
    learnt: Learnt,
    /// The largest fencing token seen; zero if it is only known that others want the lock.
    seen: Option<FencingToken>,
    /// The pauses after split votes, and where nodes do not send hints.
    pauses: Backoff,
    waits_by: WaitsBy,
    patience: Patience,
    /// How many split votes of the present waiter were repeated.
    splits: usize,
    /// Whether no node has queued it.
    is_unqueued: bool,
    /// When its turn ends.
    turn: Option<Moment>,
    /// Whether its next attempt is that of its turn.
    is_due: bool,
}

impl Contest {
    /// Begins without knowing more than whether others wanted the key a moment ago.
    #[must_use]
    pub fn new(is_contended: bool) -> Contest {
        Contest {
            order: AskOrder::AllAtOnce,
            learnt: Learnt::default(),
            seen: is_contended.then_some(FencingToken::ZERO),
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            waits_by: WaitsBy::Nothing,
            patience: Patience::None,
            splits: 0,
            is_unqueued: false,
            turn: None,
            is_due: false,
        }
    }

    /// Begins to contend for the next waiter.
    pub fn begin(&mut self, waits_by: WaitsBy, patience: Patience) {
        let waits_by = if patience == Patience::None { WaitsBy::Nothing } else { waits_by };
        (self.waits_by, self.patience) = (waits_by, patience);
        (self.splits, self.is_unqueued, self.turn, self.is_due) = (0, false, None, false);
    }

    /// Lets those go first who wanted the lock while this process had it: from now on others are known to want it.
    pub fn back_off(&mut self) {
        self.order = self.learnt.order();
        self.seen = self.seen.max(Some(FencingToken::ZERO));
    }

    /// Whether other clients were seen to want the lock, so that there is something to remember.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.seen.is_some()
    }

    /// Returns the largest fencing token seen.
    #[must_use]
    pub fn seen(&self) -> Option<FencingToken> {
        self.seen
    }

    /// Returns the nodes that hold a token that no quorum holds.
    #[must_use]
    pub fn outliers(&self) -> NodeSet {
        self.learnt.outliers()
    }

    /// Whether the waiter asks once.
    #[must_use]
    pub fn asks_once(&self) -> bool {
        self.patience == Patience::None
    }

    /// Whether the waiter has places.
    #[must_use]
    pub fn keeps_places(&self) -> bool {
        self.waits_by == WaitsBy::Places
    }

    fn queues(&self, has_queue: bool) -> bool {
        has_queue && self.waits_by == WaitsBy::Queue
    }

    /// Returns what is next at `now`, where a node `has_queue`, and `has_offers` if the lock was offered.
    #[must_use]
    pub fn next(&self, has_offers: bool, has_queue: bool, now: Moment) -> Step {
        if has_offers {
            // Also during its turn.
            return Step::TakeOffer;
        }
        let is_out_of_turn = self.turn.is_none_or(|turn| turn <= now);
        if self.queues(has_queue) && self.is_contended() && is_out_of_turn { Step::Queue } else { Step::Ask }
    }

    /// Records that it is the turn of the waiter, until this moment.
    pub fn has_turn(&mut self, until: Moment) {
        (self.turn, self.is_due) = (Some(until), true);
    }

    /// Records that the lock was offered to the waiter in the queue.
    pub fn is_offered(&mut self) {
        self.turn = None;
    }

    /// Records that no node has queued the waiter.
    pub fn is_not_queued(&mut self) {
        (self.is_unqueued, self.turn) = (true, None);
    }

    /// Records that it is the turn of the waiter at one of its places: all nodes are asked.
    pub fn is_due(&mut self) {
        (self.order, self.is_due) = (AskOrder::AllAtOnce, true);
    }

    /// Whether the next attempt is sent at the pace of turns, and not of the waiter (rule W-10): it is the first in
    /// its turn, which would pass meanwhile.
    pub fn takes_its_turn(&mut self) -> bool {
        mem::take(&mut self.is_due)
    }

    /// Returns in which order the nodes are asked.
    pub fn order(&mut self, has_queue: bool) -> AskOrder {
        if self.asks_once() || self.queues(has_queue) {
            // A call that asks once needs the verdict of all nodes, not one node's refusal; and
            // in our turn there is no competition.
            self.order = AskOrder::AllAtOnce;
        }
        self.order
    }

    /// Records that the attempt has won, with its votes and the largest number if others want the lock.
    pub fn won(&mut self, votes: Option<(VoteReport, Option<FencingToken>)>) {
        self.pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        if let Some((report, largest)) = votes {
            self.seen = self.seen.max(largest);
            self.learnt.learn(&report, self.order);
            self.order = self.learnt.order();
        }
    }

    /// Records that the attempt was lost which had asked at `asked`, and returns what that means for the waiter.
    pub fn lost(
        &mut self,
        report: &VoteReport,
        largest: Option<FencingToken>,
        (asked, now): (Moment, Moment),
    ) -> Lost {
        // Even if no node has reported a number: others want the lock.
        self.seen = self.seen.max(largest).max(Some(FencingToken::ZERO));
        self.learnt.learn(report, self.order);
        if self.asks_once() && self.splits < SPLITS && report.is_split() {
            if self.splits == 0 {
                // Longer than the others' votes are in flight, or all would collide again.
                let first = FIRST_PAUSE.max(now.since(asked));
                self.pauses = Backoff::new(first, LONGEST_PAUSE.max(first * 4));
            }
            self.splits += 1;
            return Lost::GoesOn;
        }
        let in_vain = match self.patience {
            Patience::None => true,
            // Quarantines end at a known time. Better to fail now than after the wait.
            Patience::Until(end) => !report.may_win_within(end.since(now)),
            Patience::Endless => false,
        };
        if report.misconfigured() {
            Lost::Misconfigured
        } else if in_vain {
            Lost::InVain
        } else {
            Lost::GoesOn
        }
    }

    /// Decides how long to wait, and for which nodes: see [`Pause::after`].
    pub fn pause(
        &mut self,
        (verdict, report): (Verdict, &VoteReport),
        hearing: impl FnOnce(&[Arc<str>], NodeSet) -> usize,
        random: impl FnMut() -> u64,
        now: Moment,
    ) -> Pause {
        let asked_one_first = matches!(self.order, AskOrder::PreferredFirst(_));
        Pause::after((verdict, report), asked_one_first, hearing, &mut self.pauses, random, now)
    }

    /// Whether a writer that was refused tells the readers: one that waits in a queue does so from there.
    #[must_use]
    pub fn announces_writer(&self, has_queue: bool) -> bool {
        !self.asks_once() && (self.is_unqueued || !(self.queues(has_queue) || self.keeps_places()))
    }

    /// Returns what the waiter does after this verdict, and shortens its `pause`.
    pub fn then(&mut self, verdict: Verdict, has_queue: bool, pause: &mut Pause, now: Moment) -> Then {
        self.order = self.learnt.order();
        if verdict != Verdict::Contended {
            return Then::Pause;
        }
        if self.keeps_places() {
            return Then::Places;
        }
        if self.queues(has_queue) {
            // The other nodes may have released a moment after the one that hinted. If not, we queue.
            if let Some(turn) = self.turn {
                pause.until = pause.until.min(turn);
            } else if mem::take(&mut self.is_unqueued) {
                pause.until = pause.until.min(now + ASKED_AGAIN);
            } else {
                return Then::Next;
            }
        }
        Then::Pause
    }
}

#[cfg(test)]
mod tests;
