//! Retries nodes that did not grant a lock which is held on no more than a quorum (rule I-38).
//!
//! If one node of that quorum lost the key, by a clock step or a manual delete, another client
//! would find a quorum without it. The missing nodes usually had granted a client that lost and
//! withdraws within a round trip, or were not connected yet. What they store now confirms nothing
//! and moves no deadline: it only reduces the number of nodes without the key.

use std::time::Duration;

use super::Keeper;
use crate::node::{Request, SharedRequest};
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::KeyState;
use quorlock_protocol::machine::KeyStates;
use quorlock_protocol::machine::NodeSet;
use quorlock_protocol::{Backoff, Moment};

/// The upper bound of the first pause: a few round trips in one datacenter, in which losing clients
/// withdraw. A lock held for less long sends nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// No pause is longer than this fraction (a tenth) of the TTL, as for failed renewals.
const LONGEST_PAUSE: u32 = 10;

/// When to retry the nodes without the key, until the first renewal, which asks all nodes.
pub(super) struct RepairSchedule {
    pub(super) at: Moment,
    pauses: Backoff,
    /// Whether they were retried before.
    asked: bool,
    /// Nodes that have not answered a retry in time. Another request would only queue behind it.
    silent: NodeSet,
}

impl Keeper {
    /// Schedules a retry if too many nodes are known to lack the key.
    pub(super) fn schedule_repair(&mut self, key_states: KeyStates) {
        let quorum = self.engine.nodes.quorum;
        let KeyCount { held, pending } = KeyCount::of(quorum.nodes(), |node| key_states.get(node));
        if held <= quorum.needed() && held + pending < quorum.nodes() {
            let pauses = Backoff::new(FIRST_PAUSE, self.ttl / LONGEST_PAUSE);
            let mut repair =
                RepairSchedule { at: Moment::NEVER, pauses, asked: false, silent: NodeSet::default() };
            repair.pause(self.engine.now(), self.engine.entropy.next_u64());
            self.repair = Some(Box::new(repair));
            self.state.stop_repair();
        }
    }

    /// Checks answers to the acquisition that arrived after the lease was delivered.
    pub(super) fn check_late_answers(&mut self) {
        if self.repair.is_none()
            && self.state.wants_repair()
            && let Some(key_states) = self.state.settled_key_states()
        {
            self.schedule_repair(key_states);
        }
    }

    /// Whether the retry is due at `now`.
    pub(super) fn is_repair_due(&self, now: Moment) -> bool {
        self.renewing.is_none() && self.repair.as_ref().is_some_and(|repair| now >= repair.at)
    }

    /// Retries the nodes without the key, unless enough have it by now.
    pub(super) fn repair(&mut self, now: Moment) {
        debug_assert!(self.renewing.is_none(), "a repair beside a renewal, which asks all nodes");
        let Some(mut repair) = self.repair.take() else { return };
        let (quorum, before) = (self.engine.nodes.quorum, self.key_states);
        let (latest, on_its_way_since) = self.state.latest_key_states();
        let key_state = |node: usize| match (before.get(node), latest.get(node)) {
            (KeyState::Holds, _) | (_, KeyState::Holds) => KeyState::Holds,
            (_, latest) => latest,
        };
        let held = KeyCount::of(quorum.nodes(), key_state).held;
        if held > quorum.needed() || held == quorum.nodes() {
            return;
        }
        repair.pause(now, self.engine.entropy.next_u64());
        let since = on_its_way_since.filter(|_| repair.asked);
        let waits = since.is_some_and(|sent| now.since(sent) < self.ttl / LONGEST_PAUSE);
        if since.is_some() && !waits {
            let pending = (0..quorum.nodes()).filter(|node| latest.get(*node) == KeyState::InFlight);
            repair.silent.add(pending.collect());
        }
        let lacks = |node: usize| {
            matches!(key_state(node), KeyState::Without | KeyState::Unknown) && !repair.silent.contains(node)
        };
        if !waits && !self.engine.are_many_renewing() && (0..quorum.nodes()).any(lacks) {
            let (claim, ttl, fencing_token) = (self.claim.clone(), self.ttl, self.state.fence);
            let request = SharedRequest::from(Request::Renew { claim, ttl, fencing_token });
            self.key_states = self.settle();
            let round = Round::start(&self.engine.nodes, Expect::Hold, ttl, |node| {
                lacks(node).then(|| request.clone())
            });
            self.state.follow(&round);
            repair.asked = true;
        }
        self.repair = Some(repair);
    }

    /// Ends the retries: from now on renewals ask all nodes.
    pub(super) fn cancel_repair(&mut self) {
        self.repair = None;
        self.state.stop_repair();
    }
}

impl RepairSchedule {
    fn pause(&mut self, now: Moment, random: u64) {
        self.at = now + self.pauses.next(random);
    }
}

/// How many nodes have the key.
struct KeyCount {
    held: usize,
    /// How many may have it, because a request is in flight.
    pending: usize,
}

impl KeyCount {
    fn of(nodes: usize, key_state: impl Fn(usize) -> KeyState) -> KeyCount {
        let count = |wanted| (0..nodes).filter(|node| key_state(*node) == wanted).count();
        KeyCount { held: count(KeyState::Holds), pending: count(KeyState::InFlight) }
    }
}
