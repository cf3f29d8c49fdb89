//! The possible steps and their effects.

use quorlock_protocol::{Moment, Term};

use super::state::{Attempt, Lease, Node, Phase, State};
use super::{Scheme, Several, Step};
use crate::clock::{is_valid, moment, renewed};
use crate::common::{Mail, Request, is_won};

/// The possible steps.
impl<const N: usize, const K: usize, const L: usize> Several<N, K, L> {
    pub(super) fn possible(&self, state: &State<N, K, L>, steps: &mut Vec<Step>) {
        if state.attempts.iter().any(|one| matches!(one.phase, Phase::Voting { .. } | Phase::Holding(_))) {
            steps.push(Step::Tick);
        }
        for (attempt, asking) in state.attempts.iter().enumerate() {
            if let Some(lease) = asking.lease() {
                steps.push(Step::End { attempt });
                if Self::asserts(asking) && lease.renewals < self.renewals {
                    steps.push(Step::Renew { attempt });
                }
            }
            // An attempt that is refused too often gives up; one that takes locks one after the
            // other waits instead.
            if asking.taken().is_some() && self.scheme != Scheme::OneByOne {
                steps.push(Step::End { attempt });
            }
            for (node, there) in state.nodes.iter().enumerate() {
                let mail = &there.mail[attempt];
                let votes = matches!(asking.phase, Phase::Idle) || mail.vote == Request::Unarrived;
                let is_over = matches!(asking.phase, Phase::Over { .. });
                if votes && !is_over && self.grants(there, node, attempt, asking.taken().unwrap_or(0)) {
                    steps.push(Step::Vote { attempt, node });
                }
                if mail.renewal == Request::Unarrived && !is_over {
                    steps.push(Step::Renewal { attempt, node });
                }
                if mail.release == Request::Unarrived {
                    steps.push(Step::Release { attempt, node });
                }
            }
        }
        if state.losses > 0 {
            for (node, there) in state.nodes.iter().enumerate() {
                let held = (0..L).filter(|lock| there.keys[*lock].is_some());
                steps.extend(held.map(|lock| Step::Lose { node, lock }));
            }
        }
    }

    /// Whether a node grants an attempt its vote. A repeated request would be granted again, without effect.
    fn grants(&self, there: &Node<K, L>, node: usize, attempt: usize, taken: usize) -> bool {
        let free = |lock: usize| there.keys[lock].is_none();
        let mut wanted = self.wanted(attempt);
        match self.scheme {
            Scheme::OneByOne => self.in_turn(attempt).nth(taken).is_some_and(free),
            Scheme::PartialNode if node == 0 => wanted.any(free),
            Scheme::PartialNode | Scheme::Quorlock | Scheme::SomeKept => wanted.all(free),
        }
    }
}

/// The effects.
impl<const N: usize, const K: usize, const L: usize> Several<N, K, L> {
    pub(super) fn after(&self, state: &State<N, K, L>, step: Step) -> State<N, K, L> {
        let mut state = *state;
        match step {
            Step::Tick => self.tick(&mut state),
            Step::Vote { attempt, node } => self.vote(&mut state, attempt, node),
            Step::Renew { attempt } => renew(&mut state, attempt),
            Step::Renewal { attempt, node } => self.renewal(&mut state, attempt, node),
            Step::End { attempt } => end(&mut state, attempt),
            Step::Release { attempt, node } => {
                let there = &mut state.nodes[node];
                there.mail[attempt].release = Request::Spent;
                there.keys = there.keys.map(|key| key.filter(|(holder, _)| *holder != attempt));
            }
            Step::Lose { node, lock } => self.lose(&mut state, node, lock),
        }
        self.tidy(&mut state);
        state
    }

    /// Whether the attempt may act as the holder, decided by [`Term`] as in the library.
    pub(super) fn asserts(attempt: &Attempt) -> bool {
        attempt.lease().is_some_and(|lease| is_valid(lease.until, moment(attempt.clock)))
    }

    /// Returns how many nodes have the attempt's key of this lock.
    pub(super) fn has(state: &State<N, K, L>, attempt: usize, lock: usize) -> usize {
        let ours = |node: &&Node<K, L>| matches!(node.keys[lock], Some((holder, _)) if holder == attempt);
        state.nodes.iter().filter(ours).count()
    }

    fn tick(&self, state: &mut State<N, K, L>) {
        for attempt in &mut state.attempts {
            if matches!(attempt.phase, Phase::Voting { .. } | Phase::Holding(_)) {
                // By then, everything has ended.
                attempt.clock = (attempt.clock + 1).min(self.ttl * (self.renewals + 2));
            }
        }
        for node in &mut state.nodes {
            node.keys =
                node.keys.map(|key| key.filter(|(_, left)| *left > 1).map(|(who, left)| (who, left - 1)));
        }
    }

    fn vote(&self, state: &mut State<N, K, L>, attempt: usize, node: usize) {
        if matches!(state.attempts[attempt].phase, Phase::Idle) {
            state.attempts[attempt].phase = Phase::Voting { taken: 0 };
            state.nodes.iter_mut().for_each(|node| node.mail[attempt].vote = Request::Unarrived);
        }
        let asking = state.attempts[attempt];
        let taken = asking.taken().unwrap_or(0);
        let there = &mut state.nodes[node];
        for lock in self.wanted(attempt) {
            let is_next = self.scheme != Scheme::OneByOne || self.in_turn(attempt).nth(taken) == Some(lock);
            if is_next && there.keys[lock].is_none() {
                there.keys[lock] = Some((attempt, self.ttl));
            }
        }
        there.mail[attempt].vote = Request::Counted;
        let carried = self.carried(&state.nodes, |mail| mail[attempt].vote == Request::Counted);
        if asking.taken().is_none() || !carried {
            return;
        }
        if self.scheme == Scheme::OneByOne && taken + 1 < self.wanted(attempt).count() {
            state.attempts[attempt].phase = Phase::Voting { taken: taken + 1 };
            return state.nodes.iter_mut().for_each(|node| node.mail[attempt].vote = Request::Unarrived);
        }
        let until = self.deadline(0);
        if moment(asking.clock) >= until {
            return end(state, attempt);
        }
        let lease = Lease { until, renewals: 0, renewing: None };
        state.attempts[attempt].phase = Phase::Holding(lease);
    }

    /// Like `renew_several.lua`.
    fn renewal(&self, state: &mut State<N, K, L>, attempt: usize, node: usize) {
        let there = &mut state.nodes[node];
        let holder = |lock: usize| there.keys[lock].map(|(holder, _)| holder);
        let is_ours = |lock: usize| holder(lock) == Some(attempt);
        let foreign = self.wanted(attempt).any(|lock| holder(lock).is_some_and(|holder| holder != attempt));
        let counts = match self.scheme {
            Scheme::SomeKept => self.wanted(attempt).any(is_ours),
            Scheme::Quorlock | Scheme::OneByOne | Scheme::PartialNode => self.wanted(attempt).all(is_ours),
        };
        if !foreign || self.scheme == Scheme::SomeKept {
            for lock in self.wanted(attempt) {
                match &mut there.keys[lock] {
                    Some((holder, left)) if *holder == attempt => *left = (*left).max(self.ttl),
                    Some(_) => {}
                    free @ None => *free = Some((attempt, self.ttl)),
                }
            }
        }
        there.mail[attempt].renewal = if counts { Request::Counted } else { Request::Spent };
        let carried = self.carried(&state.nodes, |mail| mail[attempt].renewal == Request::Counted);
        let asking = &mut state.attempts[attempt];
        let now = moment(asking.clock);
        let Phase::Holding(lease) = &mut asking.phase else { return };
        let Some(sent) = lease.renewing.filter(|_| carried) else { return };
        let Some(until) = renewed(&Term::until(lease.until), self.deadline(sent), now) else {
            return end(state, attempt);
        };
        lease.until = until;
        lease.renewing = None;
    }

    fn lose(&self, state: &mut State<N, K, L>, node: usize, lock: usize) {
        state.losses -= 1;
        let Some((robbed, _)) = state.nodes[node].keys[lock].take() else { return };
        let lacks_one = |node: &Node<K, L>| {
            self.wanted(robbed).any(|lock| node.keys[lock].is_none_or(|(holder, _)| holder != robbed))
        };
        let counted = |node: &Node<K, L>| node.mail[robbed].renewal == Request::Counted;
        let has_confirmed = state.nodes.iter().any(|node| counted(node) && lacks_one(node));
        let attempt = &mut state.attempts[robbed];
        // What nodes said before they lost their keys may still be counted, for a renewal in flight as well.
        let told = match attempt.phase {
            Phase::Voting { .. } => self.deadline(0),
            Phase::Holding(lease) => {
                let renewing = lease.renewing.filter(|_| has_confirmed);
                renewing.map_or(lease.until, |sent| self.deadline(sent).max(lease.until))
            }
            Phase::Idle | Phase::Over { .. } => return,
        };
        attempt.robbed = attempt.robbed.max(Some(told));
    }

    /// Whether a quorum of nodes has all of its keys until the latest deadline it may know.
    fn lasts(&self, state: &State<N, K, L>, attempt: usize, told: Moment) -> bool {
        let left = told.since(moment(state.attempts[attempt].clock)).as_secs_f64();
        let kept = |key: Option<(usize, u8)>| {
            key.is_some_and(|(who, ticks)| who == attempt && f64::from(ticks) >= left)
        };
        let all = |node: &&Node<K, L>| self.wanted(attempt).all(|lock| kept(node.keys[lock]));
        state.nodes.iter().filter(all).count() >= self.quorum.needed()
    }

    fn carried(&self, nodes: &[Node<K, L>; N], grants: impl Fn(&[Mail; K]) -> bool) -> bool {
        is_won(self.quorum, nodes.iter().filter(|node| grants(&node.mail)).count())
    }

    /// Clears `robbed` where it no longer applies, and removes what can make no difference any more.
    fn tidy(&self, state: &mut State<N, K, L>) {
        for attempt in 0..K {
            let asking = state.attempts[attempt];
            let robbed = asking.robbed.filter(|told| !self.lasts(state, attempt, *told));
            state.attempts[attempt].robbed = robbed;
            let late = moment(asking.clock) >= self.deadline(0);
            // A lease that has ended is never revived. A crashed holder sends releases as well,
            // which need not arrive.
            let lapsed = asking.lease().is_some() && !Self::asserts(&asking);
            if lapsed || (asking.taken().is_some() && late) {
                end(state, attempt);
            }
            if matches!(state.attempts[attempt].phase, Phase::Over { .. }) {
                state.attempts[attempt].clock = 0;
                state.attempts[attempt].robbed = None;
            }
        }
    }
}

/// Like `Keeper::renew`.
fn renew<const N: usize, const K: usize, const L: usize>(state: &mut State<N, K, L>, attempt: usize) {
    let asking = &mut state.attempts[attempt];
    let sent = asking.clock;
    let Phase::Holding(lease) = &mut asking.phase else { return };
    lease.renewals += 1;
    lease.renewing = Some(sent);
    state.nodes.iter_mut().for_each(|node| node.mail[attempt].renewal = Request::Unarrived);
}

/// Ends an attempt. Its release is sent to all nodes; its other requests can only deny, and are dropped.
fn end<const N: usize, const K: usize, const L: usize>(state: &mut State<N, K, L>, attempt: usize) {
    let held = state.attempts[attempt].lease().is_some();
    state.attempts[attempt].phase = Phase::Over { held };
    state.nodes.iter_mut().for_each(|node| node.mail[attempt] = Mail::OVER);
}
