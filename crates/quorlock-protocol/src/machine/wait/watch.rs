//! When an observer of a key looks at it again: when enough nodes hint at a change that may matter, when its keys expire,
//! and every second or two, because hints may get lost. At most a hundred times a second.
//!
//! A holder is lost once enough nodes have changed to break its quorum; a new one cannot have a quorum before as many nodes
//! as that takes have changed.

use std::time::Duration;

use crate::machine::NodeSet;
use crate::node::{Expiry, Holding};
use crate::votes::{VoteOutcome, VoteReport};
use crate::{Backoff, EXPIRY_JITTER, HEARTBEAT, Moment, fraction};

/// The shortest time between two rounds: faster changes are returned as one.
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// The first pause after too few nodes have answered.
const OUTAGE_PAUSE: Duration = Duration::from_millis(100);

/// Decides when to look next.
#[derive(Clone, Debug)]
pub struct Watch {
    look: Look,
    /// Pauses while too few nodes answer: nothing notifies of their return.
    outage: Backoff,
}

/// When to look next.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the engine waits by it")]
pub struct Look {
    /// Never before that.
    pub least: Moment,
    /// At this time, or as soon as this many nodes have hinted at a change…
    pub until: Moment,
    /// See `until`.
    pub wanted: usize,
    /// …among these.
    pub among: NodeSet,
}

impl Watch {
    /// Begins, and looks immediately.
    #[must_use]
    pub fn new(now: Moment) -> Watch {
        let look = Look { least: now, until: now, wanted: 0, among: NodeSet::default() };
        Watch { look, outage: Backoff::new(OUTAGE_PAUSE, HEARTBEAT) }
    }

    /// Returns when to look next.
    #[must_use]
    pub fn next(&self) -> Look {
        self.look
    }

    /// Records what the nodes store at `now`.
    pub fn seen(&mut self, report: &VoteReport, mut random: impl FnMut() -> u64, now: Moment) {
        let count = Count::of(report);
        let heartbeat = HEARTBEAT / 2 + fraction(HEARTBEAT, random());
        let least = now + LEAST_PAUSE;
        if count.is_unknown() {
            let until = now + self.outage.next(random());
            self.look = Look { least, until, wanted: usize::MAX, among: NodeSet::default() };
            return;
        }
        self.outage = Backoff::new(OUTAGE_PAUSE, HEARTBEAT);
        let (wanted, end) = if count.leads() {
            let wanted = count.held - count.needed + 1;
            let end = count
                .ends
                .get(wanted - 1)
                .map(|end| *end + Duration::from_millis(1) + fraction(EXPIRY_JITTER, random()));
            (wanted, end.unwrap_or(heartbeat))
        } else {
            let freed = count.taken.saturating_sub(count.spare);
            let matters = count.needed - count.held;
            (if freed > 0 { freed.min(matters) } else { matters }, heartbeat)
        };
        self.look = Look { least, until: now + end.min(heartbeat), wanted, among: count.answered };
    }
}

/// The nodes' votes for the token that most of them store.
#[derive(Clone, Debug)]
pub struct Count {
    needed: usize,
    /// How many nodes a quorum can do without.
    spare: usize,
    /// Nodes that store any token.
    taken: usize,
    /// Nodes that store it.
    held: usize,
    /// Nodes that may store it: they have not answered.
    silent: usize,
    /// Those of them that do not answer until they are reconfigured. One whose key never expires does answer, and is free
    /// once another program deletes that.
    misconfigured: usize,
    /// Nodes that have answered.
    answered: NodeSet,
    /// When its keys expire that do, soonest first.
    ends: Vec<Duration>,
}

impl Count {
    /// Counts the votes.
    #[must_use]
    pub fn of(report: &VoteReport) -> Count {
        let holder = report.holder();
        let mut count = Count {
            needed: report.quorum().needed(),
            spare: report.quorum().nodes() - report.quorum().needed(),
            taken: 0,
            held: 0,
            silent: 0,
            misconfigured: 0,
            answered: NodeSet::default(),
            ends: Vec::new(),
        };
        for (index, vote) in report.votes().iter().enumerate() {
            let is_held = matches!(vote.outcome, VoteOutcome::Held(_));
            count.misconfigured += usize::from(vote.misconfigured() && !is_held);
            count.taken += usize::from(is_held);
            match &vote.outcome {
                VoteOutcome::Held(Holding { token, expiry, .. }) => {
                    count.answered.insert(index);
                    if holder.as_ref().is_some_and(|holder| holder.token == *token) {
                        count.held += 1;
                        count.ends.extend(if let Expiry::In(end) = expiry { Some(*end) } else { None });
                    }
                }
                VoteOutcome::Free
                | VoteOutcome::Granted
                | VoteOutcome::NotYourTurn
                | VoteOutcome::FenceAhead
                | VoteOutcome::Restored => {
                    count.answered.insert(index);
                }
                VoteOutcome::Quarantined { .. }
                | VoteOutcome::Duplicate { .. }
                | VoteOutcome::Pending
                | VoteOutcome::Failed(_)
                | VoteOutcome::Skipped => count.silent += 1,
            }
        }
        count.ends.sort_unstable();
        count
    }

    /// Whether a quorum stores the same token.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.held >= self.needed
    }

    /// Whether the nodes that have not answered could make a holder.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        !self.leads() && self.held + self.silent >= self.needed
    }

    /// Whether that stays so until nodes are reconfigured, whatever the others report.
    #[must_use]
    pub fn is_misconfigured(&self) -> bool {
        self.misconfigured >= self.needed
    }

    /// Whether enough nodes report that no client holds the lock, and that a new one could have it: while a lock is passed
    /// on, or a slot is retained, no token has a quorum, and no node is free.
    #[must_use]
    pub fn is_free(&self) -> bool {
        !self.leads() && !self.is_unknown() && self.taken <= self.spare
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;
    use crate::machine::tests::{at, report};

    fn held(token: u128, millis: u64) -> VoteOutcome {
        VoteOutcome::Held(Holding::new(Token::new(token, ""), Expiry::In(Duration::from_millis(millis))))
    }

    fn after(watch: &mut Watch, outcomes: [VoteOutcome; 5]) -> (Moment, usize, usize) {
        watch.seen(&report(outcomes), || u64::MAX / 2, at(0));
        let Look { least, until, wanted, among } = watch.next();
        assert_eq!(least, at(10), "at most a hundred times a second");
        (until, wanted, among.len())
    }

    #[test]
    fn it_looks_again_when_enough_nodes_have_changed_to_matter() {
        use VoteOutcome::{Free, Pending};
        let mut watch = Watch::new(at(0));
        assert_eq!((watch.next().until, watch.next().wanted), (at(0), 0), "immediately");
        let four = [held(7, 900), held(7, 300), held(7, 800), held(7, 700), Pending];
        let (until, wanted, among) = after(&mut watch, four);
        assert_eq!((wanted, among), (2, 4), "two of four, and the quorum is broken");
        assert!(at(700) < until && until <= at(701) + EXPIRY_JITTER, "when two have expired: {until:?}");
        let (until, wanted, among) = after(&mut watch, [held(7, 900), Free, Free, Free, Free]);
        assert_eq!((wanted, among), (2, 5), "one has it, and three are a quorum");
        assert!(at(0) + HEARTBEAT / 2 <= until && until <= at(0) + HEARTBEAT * 3 / 2, "{until:?}");
    }

    #[test]
    fn a_lock_that_is_passed_on_is_not_free_and_is_looked_at_when_a_node_changes() {
        use VoteOutcome::Free;
        let split = || [held(7, 900), held(7, 900), held(8, 900), Free, Free];
        assert!(!Count::of(&report(split())).is_free(), "three nodes hold a token, and two cannot grant");
        assert_eq!(after(&mut Watch::new(at(0)), split()).1, 1);
        assert!(Count::of(&report([held(7, 900), held(8, 900), Free, Free, Free])).is_free(), "leftovers");
    }

    #[test]
    fn a_key_that_never_expires_is_waited_for_and_a_node_that_must_be_reconfigured_is_not() {
        let stored = || VoteOutcome::Held(Holding::new(Token::new(7, ""), Expiry::Never));
        let count = Count::of(&report([stored(), stored(), stored(), stored(), stored()]));
        assert!(!count.is_free() && !count.is_misconfigured());
        let same = || VoteOutcome::Duplicate { of: "n".into() };
        let count = Count::of(&report([VoteOutcome::Free, VoteOutcome::Free, same(), same(), same()]));
        assert!(!count.is_free() && count.is_misconfigured());
    }

    #[test]
    fn while_too_few_nodes_answer_it_looks_ever_less_often() {
        use VoteOutcome::{Free, Pending};
        let mut watch = Watch::new(at(0));
        let mut unknown = || after(&mut watch, [held(7, 900), Pending, Pending, Free, Free]);
        let (first, wanted, _) = unknown();
        assert!(first <= at(100) && wanted == usize::MAX, "no hint tells: {first:?}");
        assert!((0..9).all(|_| unknown().0 <= at(0) + HEARTBEAT) && unknown().0 > at(400));
        after(&mut watch, [Free, Free, Free, Pending, Pending]);
        let again = after(&mut watch, [held(7, 900), Pending, Pending, Free, Free]);
        assert_eq!(again.0, first, "from the beginning");
    }
}
