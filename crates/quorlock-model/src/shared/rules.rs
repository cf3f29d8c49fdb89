//! The possible steps and their effects.

use quorlock_protocol::{Mode, Term};

use super::state::{Attempt, Holder, Lease, Node, Phase, State};
use super::{Scheme, Shared, Step};
use crate::clock::{is_valid, moment, renewed};
use crate::common::{Mail, Request, is_won};

/// The possible steps.
impl<const N: usize, const K: usize> Shared<N, K> {
    pub(super) fn possible(&self, state: &State<N, K>, steps: &mut Vec<Step>) {
        if state.attempts.iter().any(|one| matches!(one.phase, Phase::Voting | Phase::Holding(_))) {
            steps.push(Step::Tick);
        }
        for (attempt, asking) in state.attempts.iter().enumerate() {
            if let Some(lease) = asking.lease() {
                steps.push(Step::End { attempt });
                if Self::asserts(asking).is_some() && lease.renewals < self.renewals {
                    steps.push(Step::Renew { attempt });
                }
            }
            for (node, there) in state.nodes.iter().enumerate() {
                let mail = &there.mail[attempt];
                let votes = matches!(asking.phase, Phase::Idle) || mail.vote == Request::Unarrived;
                let is_over = matches!(asking.phase, Phase::Over { .. });
                if votes && !is_over && self.grants(there, attempt) {
                    steps.push(Step::Vote { attempt, node });
                }
                if mail.renewal == Request::Unarrived && !is_over {
                    steps.push(Step::Renewal { attempt, node });
                }
                if mail.release == Request::Unarrived {
                    steps.push(Step::Release { attempt, node });
                }
                let waits = matches!(asking.phase, Phase::Idle | Phase::Voting)
                    && self.role(attempt) == Mode::Exclusive;
                let says = self.scheme != Scheme::OneIntent || node == 0;
                if waits && says && !there.intents[attempt] && matches!(there.key, Some((Holder::Readers, _)))
                {
                    steps.push(Step::Intend { attempt, node });
                }
            }
        }
    }

    /// Whether a node grants an attempt its vote.
    fn grants(&self, node: &Node<K>, attempt: usize) -> bool {
        match self.role(attempt) {
            Mode::Exclusive => node.key.is_none(),
            Mode::Shared => {
                let kept_out = self.scheme != Scheme::NoIntent && node.intents.contains(&true);
                !kept_out && !matches!(node.key, Some((Holder::Alone(_), _)))
            }
        }
    }

    /// Returns the waiting writer whose intent enough nodes have.
    pub(super) fn waiting(&self, state: &State<N, K>) -> Option<usize> {
        let needed = if self.scheme == Scheme::OneIntent { 1 } else { self.quorum.needed() };
        (0..self.writers).find(|&writer| {
            let knows = |node: &&Node<K>| node.intents[writer];
            matches!(state.attempts[writer].phase, Phase::Voting)
                && state.nodes.iter().filter(knows).count() >= needed
        })
    }
}

/// The effects.
impl<const N: usize, const K: usize> Shared<N, K> {
    pub(super) fn after(&self, state: &State<N, K>, step: Step) -> State<N, K> {
        let mut state = *state;
        match step {
            Step::Tick => self.tick(&mut state),
            Step::Vote { attempt, node } => {
                self.begin(&mut state, attempt);
                self.vote(&mut state, attempt, node);
            }
            Step::Renew { attempt } => self.renew(&mut state, attempt),
            Step::Renewal { attempt, node } => self.renewal(&mut state, attempt, node),
            Step::End { attempt } => end(&mut state, attempt),
            Step::Release { attempt, node } => {
                state.nodes[node].mail[attempt].release = Request::Spent;
                self.release(&mut state.nodes[node], attempt);
            }
            // An attempt refused by every node begins with this.
            Step::Intend { attempt, node } => {
                self.begin(&mut state, attempt);
                state.nodes[node].intents[attempt] = true;
            }
        }
        self.tidy(&mut state);
        state
    }

    /// Returns the mode in which the attempt may act, decided by [`Term`] as in the library.
    pub(super) fn asserts(attempt: &Attempt) -> Option<Mode> {
        let lease = attempt.lease()?;
        is_valid(lease.until, moment(attempt.clock)).then_some(lease.mode)
    }

    fn begin(&self, state: &mut State<N, K>, attempt: usize) {
        if !matches!(state.attempts[attempt].phase, Phase::Idle) {
            return;
        }
        let waiting = self.waiting(state).filter(|_| self.role(attempt) == Mode::Shared);
        state.attempts[attempt].behind = waiting;
        state.attempts[attempt].phase = Phase::Voting;
        state.nodes.iter_mut().for_each(|node| node.mail[attempt].vote = Request::Unarrived);
    }

    fn tick(&self, state: &mut State<N, K>) {
        for attempt in &mut state.attempts {
            if matches!(attempt.phase, Phase::Voting | Phase::Holding(_)) {
                // By then, everything has ended.
                attempt.clock = (attempt.clock + 1).min(self.ttl * (self.renewals + 2));
            }
        }
        for node in &mut state.nodes {
            let older = |left: u8| (left > 1).then(|| left - 1);
            node.key = node.key.and_then(|(holder, left)| Some((holder, older(left)?)));
            node.shares = node.shares.map(|share| share.and_then(older));
        }
    }

    fn vote(&self, state: &mut State<N, K>, attempt: usize, node: usize) {
        let there = &mut state.nodes[node];
        match self.role(attempt) {
            Mode::Exclusive => there.key = Some((Holder::Alone(attempt), self.ttl)),
            Mode::Shared => self.join(there, attempt, self.ttl),
        }
        there.mail[attempt].vote = Request::Counted;
        let asking = &state.attempts[attempt];
        let carried = self.carried(&state.nodes, |mail| mail[attempt].vote == Request::Counted);
        if !matches!(asking.phase, Phase::Voting) || !carried {
            return;
        }
        let (until, mode) = (self.deadline(0), self.role(attempt));
        if moment(asking.clock) >= until {
            return end(state, attempt);
        }
        state.attempts[attempt].phase = Phase::Holding(Lease { until, mode, renewals: 0, renewing: None });
    }

    /// Like `readers.lua`: each share has its own expiry, and the key that of the last.
    fn join(&self, node: &mut Node<K>, attempt: usize, ttl: u8) {
        let left = match node.key {
            Some((Holder::Readers, left)) => left,
            // Without the marker there are no shares.
            Some((Holder::Alone(_), _)) | None => {
                (node.shares, node.count) = ([None; K], 0);
                0
            }
        };
        let is_new = node.shares[attempt].is_none();
        node.shares[attempt] = Some(node.shares[attempt].unwrap_or(0).max(ttl));
        node.count += u8::from(is_new);
        let first_counts = self.scheme == Scheme::OneTtl && left > 0;
        node.key = Some((Holder::Readers, if first_counts { left } else { left.max(ttl) }));
    }

    /// Like `Keeper::renew` and `Keeper::downgrade`: the holder immediately claims only a share.
    fn renew(&self, state: &mut State<N, K>, attempt: usize) {
        let asking = &mut state.attempts[attempt];
        let sent = asking.clock;
        let Phase::Holding(lease) = &mut asking.phase else { return };
        lease.renewals += 1;
        lease.renewing = Some(sent);
        if self.scheme != Scheme::FailedDowngrade {
            lease.mode = Mode::Shared;
        }
        state.nodes.iter_mut().for_each(|node| node.mail[attempt].renewal = Request::Unarrived);
    }

    /// Like `renew_shared.lua`.
    fn renewal(&self, state: &mut State<N, K>, attempt: usize, node: usize) {
        let there = &mut state.nodes[node];
        let counts = match there.key {
            Some((Holder::Alone(holder), left)) if holder == attempt => {
                self.join(there, attempt, self.ttl.max(left));
                true
            }
            Some((Holder::Alone(_), _)) => false,
            Some((Holder::Readers, _)) if there.shares[attempt].is_some() => {
                self.join(there, attempt, self.ttl);
                true
            }
            // Stored again: it does not count.
            Some((Holder::Readers, _)) | None => {
                self.join(there, attempt, self.ttl);
                false
            }
        };
        there.mail[attempt].renewal = if counts { Request::Counted } else { Request::Spent };
        let carried = self.carried(&state.nodes, |mail| mail[attempt].renewal == Request::Counted);
        let enough = carried || (counts && self.scheme == Scheme::MinorityDowngrade);
        let asking = &mut state.attempts[attempt];
        let now = moment(asking.clock);
        let Phase::Holding(lease) = &mut asking.phase else { return };
        let Some(sent) = lease.renewing.filter(|_| enough) else { return };
        let Some(until) = renewed(&Term::until(lease.until), self.deadline(sent), now) else {
            return end(state, attempt);
        };
        lease.until = until;
        lease.renewing = None;
        lease.mode = Mode::Shared;
    }

    /// Like `leave` in `readers.lua`.
    fn release(&self, node: &mut Node<K>, attempt: usize) {
        match node.key {
            Some((Holder::Alone(holder), _)) if holder == attempt => node.key = None,
            Some((Holder::Readers, left)) if self.scheme == Scheme::Counting => {
                node.count = node.count.saturating_sub(1);
                node.key = (node.count > 0).then_some((Holder::Readers, left));
            }
            Some((Holder::Readers, _)) if node.shares[attempt].is_some() => {
                let own = node.shares[attempt].take();
                let last = node.shares.iter().flatten().copied().max();
                let last = if self.scheme == Scheme::LeaverShortens { last.min(own) } else { last };
                node.key = last.map(|left| (Holder::Readers, left));
            }
            Some(_) | None => {}
        }
    }

    fn carried(&self, nodes: &[Node<K>; N], grants: impl Fn(&[Mail; K]) -> bool) -> bool {
        is_won(self.quorum, nodes.iter().filter(|node| grants(&node.mail)).count())
    }

    /// Removes what can make no difference any more.
    fn tidy(&self, state: &mut State<N, K>) {
        for attempt in 0..K {
            let asking = state.attempts[attempt];
            let late = moment(asking.clock) >= self.deadline(0);
            // A lease that has ended is never revived. A crashed holder sends releases as well,
            // which need not arrive.
            let lapsed = asking.lease().is_some() && Self::asserts(&asking).is_none();
            if lapsed || (matches!(asking.phase, Phase::Voting) && late) {
                end(state, attempt);
            }
            if !matches!(state.attempts[attempt].phase, Phase::Voting) {
                // It has the lock, or no longer waits.
                state.nodes.iter_mut().for_each(|node| node.intents[attempt] = false);
                for other in &mut state.attempts {
                    other.behind = other.behind.filter(|&writer| writer != attempt);
                }
            }
            if matches!(state.attempts[attempt].phase, Phase::Over { .. }) {
                state.attempts[attempt].clock = 0;
                state.attempts[attempt].behind = None;
            }
        }
        for node in &mut state.nodes {
            if !matches!(node.key, Some((Holder::Readers, _))) {
                (node.shares, node.count) = ([None; K], 0);
            }
            if self.scheme != Scheme::Counting {
                node.count = 0;
            }
        }
    }
}

/// Ends an attempt. Its release is sent to all nodes; its other requests can only deny, and are dropped.
fn end<const N: usize, const K: usize>(state: &mut State<N, K>, attempt: usize) {
    let held = state.attempts[attempt].lease().is_some();
    state.attempts[attempt].phase = Phase::Over { held };
    state.nodes.iter_mut().for_each(|node| node.mail[attempt] = Mail::OVER);
}
