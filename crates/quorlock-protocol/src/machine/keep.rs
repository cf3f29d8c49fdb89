//! Keeps a lease: when it is renewed, what the verdict on a renewal means, and which nodes without the key are asked again.
//!
//! | state | what is due |
//! |---|---|
//! | at rest | a renewal by the [schedule](RenewalSchedule), or before the first one a repair |
//! | renewing | nothing: one renewal waits for its verdict at a time |
//!
//! # Events
//!
//! | event | effect |
//! |---|---|
//! | it is time ([`Keep::due`]) | A renewal, unless many others are in flight; else a repair. |
//! | a renewal is sent ([`Keep::renew`]) | Repairs are over. What the rounds before left on each node is kept. |
//! | its verdict ([`Keep::count`]) | Confirmed: the deadline moves, counted from before the renewal was sent. Not confirmed: nothing changes, and the renewal is retried. Too many nodes without the key: the lease is lost. |
//! | a node says that the key has changed ([`Keep::handle_hint`]) | The next renewal is due now: it restores the key, or finds that the lease is lost. |
//! | all nodes have answered in the round that won the lock ([`Keep::look`]) | A repair is planned if no more than a quorum holds the key. |
//! | a repair is due ([`Keep::repair`]) | Returns the nodes that lack the key and have answered. |
//!
//! # Repairs (I-38)
//!
//! If one node of a bare quorum lost the key, by a clock step or a manual delete, another client
//! would find a quorum without it. The missing nodes usually had granted a client that lost and
//! withdraws within a round trip, or were not connected yet. What they store now confirms nothing
//! and moves no deadline: it only reduces the number of nodes without the key.
//!
//! # Invariants
//!
//! - A quorum of all nodes confirms a renewal (I-8), before the old deadline (I-9). The deadline
//!   never moves back (I-6) and counts from before the renewal was sent (I-7).
//! - A failed renewal changes nothing, but `nodes - quorum + 1` nodes without the key end the lease
//!   (I-11).
//! - A hint counts for nothing: it only moves the next renewal forward (I-52).
//! - What earlier rounds left on each node is never forgotten: an unknown state stays unknown (I-40).

use std::time::Duration;

use super::{Deployment, KeyStates, NodeSet, Round};
use crate::{Backoff, Drift, KeyState, LeaseTiming, Moment, Quorum, RenewalSchedule, Term, Verdict};

/// The upper bound of the first pause before a repair: a few round trips in one datacenter, in which losing clients
/// withdraw. A lock held for less long sends nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// No pause is longer than this fraction (a tenth) of the TTL, as for failed renewals.
const LONGEST_PAUSE: u32 = 10;

/// Keeps one lease.
#[derive(Clone, Debug)]
pub struct Keep {
    /// What the rounds before the latest one left on each node.
    before: KeyStates,
    schedule: RenewalSchedule,
    is_renewing: bool,
    /// Whether a node has said since the latest renewal was sent that the key has changed.
    is_hinted: bool,
    /// How many renewals hints have asked for since the latest one that was due without them.
    hinted: u8,
    repair: Option<Box<Repair>>,
}

/// When to ask the nodes without the key again, until the first renewal, which asks all nodes.
#[derive(Clone, Debug)]
struct Repair {
    at: Moment,
    pauses: Backoff,
    /// Whether they were asked before.
    asked: bool,
    /// Nodes that have not answered in time. Another request would only queue behind that one.
    silent: NodeSet,
}

/// What the latest round left on the nodes so far.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the engine fills it in")]
pub struct Latest {
    /// The state of the key on each node.
    pub states: KeyStates,
    /// When it was sent, if some nodes have not answered.
    pub open_since: Option<Moment>,
}

/// What is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Due {
    /// A renewal.
    Renewal,
    /// A repair.
    Repair,
}

/// What the verdict on a renewal means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete")]
pub enum Renewed {
    /// The lease is valid until this moment.
    Confirmed(Moment),
    /// Nothing has changed.
    Unconfirmed,
    /// It was confirmed after the lease had expired.
    Late,
    /// Enough nodes lack the key for another client to have a quorum.
    QuorumLost,
}

impl Keep {
    /// Keeps a lease with this schedule.
    #[must_use]
    pub fn new(schedule: RenewalSchedule) -> Keep {
        let (before, hinted) = (KeyStates::default(), 0);
        Keep { before, schedule, is_renewing: false, is_hinted: false, hinted, repair: None }
    }

    /// Returns when renewals are due.
    #[must_use]
    pub fn schedule(&self) -> &RenewalSchedule {
        &self.schedule
    }

    /// Returns when renewals are due, to change that.
    pub fn schedule_mut(&mut self) -> &mut RenewalSchedule {
        &mut self.schedule
    }

    /// Whether a renewal waits for its verdict.
    #[must_use]
    pub fn is_renewing(&self) -> bool {
        self.is_renewing
    }

    /// Returns what all rounds have left on each node, of which the latest has left `latest`. Without one, nothing has
    /// changed: a request in flight is still in flight.
    #[must_use]
    pub fn left(&self, latest: Option<KeyStates>) -> KeyStates {
        latest.map_or(self.before, |latest| self.before.then(latest))
    }

    /// Keeps what a round has left, before another one begins.
    pub fn settle(&mut self, latest: Option<KeyStates>) {
        self.before = self.left(latest);
    }

    /// Returns when something is due, at the latest at the `end` of the lease.
    #[must_use]
    pub fn poll_timeout(&self, end: Moment) -> Moment {
        if self.is_renewing {
            return end;
        }
        let repair = self.repair.as_ref().map(|repair| repair.at);
        self.schedule.due().into_iter().chain(repair).chain([end]).min().unwrap_or(end)
    }

    /// Returns what is due at `now`. A renewal is put off while `many_renew`.
    pub fn due(
        &mut self,
        now: Moment,
        many_renew: impl FnOnce() -> bool,
        random: impl FnOnce() -> u64,
    ) -> Option<Due> {
        if self.is_renewing {
            return None;
        }
        if self.schedule.is_due(now) && !(many_renew() && self.schedule.put_off(now, random)) {
            return Some(Due::Renewal);
        }
        self.repair.as_ref().is_some_and(|repair| now >= repair.at).then_some(Due::Repair)
    }

    /// Records that every node is asked for a full TTL at `sent`, where the latest round has left `latest`.
    pub fn renew(&mut self, latest: Option<KeyStates>, sent: Moment) {
        debug_assert!(!self.is_renewing, "a renewal beside another one");
        self.settle(latest);
        self.repair = None;
        if !self.schedule.is_early() {
            self.hinted = 0;
        }
        self.schedule.send(sent);
        (self.is_renewing, self.is_hinted) = (true, false);
    }

    /// Records that the verdict on the renewal in flight does not apply any more.
    pub fn abandon(&mut self) {
        self.is_renewing = false;
    }

    /// Applies the verdict on a renewal, which `round` has asked for.
    ///
    /// A quorum of all nodes must have confirmed (rule I-8). The new deadline counts from before the renewal was
    /// sent (I-7), is no later than `hold_until`, and applies only if the old one has not passed (I-9). Otherwise
    /// nothing changes, and the renewal is retried until the deadline (I-11). If enough nodes are known to lack the
    /// key for another client to have a quorum, the lease is lost immediately: with a larger quorum that is more nodes
    /// than keep this one from being renewed.
    pub fn count(
        &mut self,
        nodes: &impl Deployment,
        (round, verdict): (&Round, Verdict),
        (term, hold_until, drift): (&Term, Moment, Drift),
        now: Moment,
    ) -> Renewed {
        debug_assert!(self.repair.is_none(), "a repair goes on after the first renewal");
        self.is_renewing = false;
        if round.tally(nodes, now).denied() >= nodes.quorum().needed() {
            return Renewed::QuorumLost;
        }
        if verdict == Verdict::Won {
            let deadline = drift.deadline(round.counts_from(nodes), self.schedule.ttl());
            let is_in_time = term.renew(hold_until.min(deadline), now);
            return if is_in_time { Renewed::Confirmed(deadline) } else { Renewed::Late };
        }
        let left = term.remaining(now).unwrap_or(now).since(now);
        self.schedule.fail(now, left, nodes.random());
        Renewed::Unconfirmed
    }

    /// Schedules the renewal after one that is valid until `deadline`. Returns whether to warn that what it proves is old.
    pub fn confirmed(
        &mut self,
        nodes: &impl Deployment,
        timing: &LeaseTiming,
        deadline: Moment,
        now: Moment,
    ) -> bool {
        self.schedule.confirm(timing, (deadline, now), || nodes.random());
        if self.is_hinted {
            self.handle_hint(nodes, now);
        }
        let is_short = deadline.since(now) < timing.warned_below(timing.renewal_every());
        self.schedule.is_failing() && is_short && self.schedule.begins_series()
    }

    /// A node says that the key has changed there, as when it was deleted or evicted (rule I-52). Returns whether the next
    /// renewal is due earlier than it was. One that is in flight may have been answered there before. As many as there are
    /// nodes follow without a pause: an operator deletes a key on one after the other.
    pub fn handle_hint(&mut self, nodes: &impl Deployment, now: Moment) -> bool {
        if self.is_renewing {
            self.is_hinted = true;
            return false;
        }
        let is_earlier =
            self.schedule.begin_for_hint(now, usize::from(self.hinted) >= nodes.quorum().nodes());
        self.hinted = self.hinted.saturating_add(is_earlier.into());
        is_earlier
    }

    /// Plans a repair if too many nodes are known to lack the key. Returns whether one is planned.
    pub fn look(&mut self, nodes: &impl Deployment, states: KeyStates, now: Moment) -> bool {
        let KeyCount { held, pending } = KeyCount::of(nodes.quorum(), |node| states.get(node));
        if self.repair.is_none() && held <= nodes.quorum().needed() && held + pending < nodes.quorum().nodes()
        {
            let mut pauses = Backoff::new(FIRST_PAUSE, self.schedule.ttl() / LONGEST_PAUSE);
            let at = now + pauses.next(nodes.random());
            self.repair = Some(Box::new(Repair { at, pauses, asked: false, silent: NodeSet::default() }));
        }
        self.repair.is_some()
    }

    /// Returns the nodes to ask again, which lack the key; none if enough have it by now, and not yet while `many_renew`.
    pub fn repair(
        &mut self,
        nodes: &impl Deployment,
        latest: Latest,
        now: Moment,
        many_renew: impl FnOnce() -> bool,
    ) -> Option<NodeSet> {
        debug_assert!(!self.is_renewing, "a repair beside a renewal, which asks all nodes");
        let mut repair = self.repair.take()?;
        let (count, before, Latest { states, open_since }) = (nodes.quorum().nodes(), self.before, latest);
        let key_state = |node: usize| match (before.get(node), states.get(node)) {
            (KeyState::Holds, _) | (_, KeyState::Holds) => KeyState::Holds,
            (_, latest) => latest,
        };
        let held = KeyCount::of(nodes.quorum(), key_state).held;
        if held > nodes.quorum().needed() || held == count {
            return None;
        }
        repair.at = now + repair.pauses.next(nodes.random());
        let since = open_since.filter(|_| repair.asked);
        let waits = since.is_some_and(|sent| now.since(sent) < self.schedule.ttl() / LONGEST_PAUSE);
        if since.is_some() && !waits {
            repair.silent.add((0..count).filter(|node| states.get(*node) == KeyState::InFlight).collect());
        }
        let lacks = |node: &usize| {
            matches!(key_state(*node), KeyState::Without | KeyState::Unknown)
                && !repair.silent.contains(*node)
        };
        let lacking: NodeSet = (0..count).filter(lacks).collect();
        let asks = !waits && !lacking.is_empty() && !many_renew();
        repair.asked |= asks;
        self.repair = Some(repair);
        asks.then_some(lacking)
    }

    /// Ends the repairs: from now on renewals ask all nodes.
    pub fn stop_repairs(&mut self) {
        self.repair = None;
    }
}

/// How many nodes have the key.
struct KeyCount {
    held: usize,
    /// How many may have it, because a request is in flight.
    pending: usize,
}

impl KeyCount {
    fn of(quorum: Quorum, key_state: impl Fn(usize) -> KeyState) -> KeyCount {
        let count = |wanted| (0..quorum.nodes()).filter(|node| key_state(*node) == wanted).count();
        KeyCount { held: count(KeyState::Holds), pending: count(KeyState::InFlight) }
    }
}

#[cfg(test)]
mod tests;
