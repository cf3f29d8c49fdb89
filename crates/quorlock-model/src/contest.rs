//! Attempts that contend for locks: what the models of shared locks, of several locks and of leases passed on
//! have in common.
//!
//! The rules about votes, deadlines and renewals are those of [`lock`](crate::lock), which also models clocks,
//! restarts and pauses. Here releases may be late as well. A tick is so long that the margin of `Drift` costs
//! nothing.
//!
//! As there, a lost or refused request does not arrive, an attempt begins with its first request that arrives,
//! and an answer arrives immediately.

use std::fmt::Debug;
use std::hash::Hash;

use quorlock_protocol::{Quorum, Term};
use stateright::{Model, Property};

use crate::clock::{deadline, moment, renewed};
use crate::common::{Answer, is_won};
use crate::record::{Kept, Reply};
use crate::scene;
pub(crate) use crate::scene::{Attempt, Lease, Own, Phase, Step};
use crate::walk::Wander;

/// The past is the number of keys that may still be lost.
pub(crate) type State<A, const N: usize, const K: usize, const L: usize> =
    scene::State<u8, Node<K, L>, Attempt<A>, N, K>;
pub(crate) type Node<const K: usize, const L: usize> = scene::Node<(), Mail, K, L>;

/// An attempt's requests to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Mail {
    pub(crate) vote: Sent,
    /// To renew the lease; of a shared lock, also to downgrade it.
    pub(crate) renewal: Sent,
    pub(crate) release: Sent,
}

/// A request to a node, and the answer to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) enum Sent {
    #[default]
    Unsent,
    /// In flight, or lost.
    Unarrived,
    /// Granted and counted.
    Counted,
    /// Of no further use.
    Spent,
}

/// The bounds of a model, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) ttl: u8,
    /// How often each lease is renewed.
    pub(crate) renewals: u8,
    /// How many keys are lost.
    pub(crate) losses: u8,
}

/// What distinguishes the models: the requests of their attempts, and what their wrong variants do.
pub(crate) trait Rules<const N: usize, const K: usize, const L: usize>: Sized {
    /// What an attempt has besides.
    type Own: Own + Hash + Debug + Default + Send + Sync;
    type Step: Copy + PartialEq + Debug;

    fn bounds(&self) -> Bounds;

    /// A node carries out a request for a vote.
    fn vote(&self, at: &mut [Kept; L], node: usize, attempt: usize, own: &Self::Own) -> Reply;

    /// A node carries out a renewal.
    fn renewal(&self, at: &mut [Kept; L], attempt: usize) -> Reply;

    fn release(&self, at: &mut [Kept; L], attempt: usize);

    /// Whether an attempt that is refused too often gives up; otherwise it waits.
    fn gives_up(&self) -> bool {
        true
    }

    /// The attempt begins.
    fn begin(&self, _: &mut State<Self::Own, N, K, L>, _: usize) {}

    /// A quorum has voted for the attempt. Returns since when its lease counts; `None` if it needs more votes.
    fn acquired_at(&self, _: &mut State<Self::Own, N, K, L>, _: usize) -> Option<u8> {
        Some(0)
    }

    /// The attempt renews its lease, and later counts the renewal.
    fn renew(&self, _: &mut Self::Own, _counts: bool) {}

    /// Whether one answer is enough, to a request for a vote or a renewal.
    fn one_is_enough(&self, _: usize, _renews: bool) -> bool {
        false
    }

    fn possible(&self, _: &State<Self::Own, N, K, L>, _: &mut Vec<Step<Self::Step>>) {}

    fn after(&self, state: &mut State<Self::Own, N, K, L>, step: Self::Step);

    /// Removes what can make no difference any more.
    fn tidy(&self, _: &mut State<Self::Own, N, K, L>) {}

    fn properties(&self) -> Vec<Property<Contest<Self, N, K, L>>>;

    fn describe(step: Self::Step) -> String;

    /// Returns the weight of the step in random walks.
    fn weight(step: &Self::Step) -> u32;
}

/// The model of `N` nodes, `K` attempts and `L` locks.
#[derive(Clone, Debug)]
pub(crate) struct Contest<R, const N: usize, const K: usize, const L: usize>(pub(crate) R);

impl<R: Rules<N, K, L>, const N: usize, const K: usize, const L: usize> Model for Contest<R, N, K, L> {
    type State = State<R::Own, N, K, L>;
    type Action = Step<R::Step>;

    fn init_states(&self) -> Vec<Self::State> {
        let (nodes, attempts) = ([Node::new(); N], [Attempt::default(); K]);
        vec![State { past: self.0.bounds().losses, nodes, attempts }]
    }

    fn actions(&self, state: &Self::State, steps: &mut Vec<Self::Action>) {
        if state.attempts.iter().any(Attempt::is_running) {
            steps.push(Step::Tick { missed_by: None });
        }
        for (attempt, asking) in state.attempts.iter().enumerate() {
            if asking.lease().is_some() || (asking.phase == Phase::Voting && self.0.gives_up()) {
                steps.push(Step::End { attempt });
            }
            let may_renew = |lease: &Lease| lease.renewals < self.0.bounds().renewals && asking.asserts();
            if asking.lease().is_some_and(may_renew) {
                steps.push(Step::Renew { attempt });
            }
            for node in 0..N {
                self.requests_possible(state, attempt, node, steps);
            }
        }
        self.0.possible(state, steps);
    }

    fn next_state(&self, state: &Self::State, step: Self::Action) -> Option<Self::State> {
        let mut state = *state;
        match step {
            Step::Tick { .. } => self.tick(&mut state),
            Step::Vote { attempt, node, .. } => self.vote(&mut state, attempt, node),
            Step::Renew { attempt } => self.renew(&mut state, attempt),
            Step::Renewal { attempt, node, .. } => self.renewal(&mut state, attempt, node),
            Step::End { attempt } => end(&mut state, attempt),
            Step::Release { attempt, node } => {
                state.nodes[node].mail[attempt].release = Sent::Spent;
                self.0.release(&mut state.nodes[node].kept, attempt);
            }
            Step::Own(step) => self.0.after(&mut state, step),
            Step::RunAhead { .. } | Step::Restart { .. } | Step::NewRenewal { .. } => return None,
        }
        self.tidy(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.0.properties()
    }

    fn format_step(&self, before: &Self::State, step: Self::Action) -> Option<String> {
        Some(step.describe(before, &self.next_state(before, step)?, R::describe))
    }
}

impl<R: Rules<N, K, L>, const N: usize, const K: usize, const L: usize> Wander for Contest<R, N, K, L> {
    fn weight(&self, step: &Self::Action) -> u32 {
        step.weight(R::weight)
    }
}

impl<R: Rules<N, K, L>, const N: usize, const K: usize, const L: usize> Contest<R, N, K, L> {
    fn requests_possible(
        &self,
        state: &State<R::Own, N, K, L>,
        attempt: usize,
        node: usize,
        steps: &mut Vec<Step<R::Step>>,
    ) {
        let (there, asking) = (&state.nodes[node], &state.attempts[attempt]);
        let mail = &there.mail[attempt];
        let asks = asking.phase == Phase::Idle || (asking.is_running() && mail.vote == Sent::Unarrived);
        let mut kept = there.kept;
        // A repeated request would be granted again, without effect.
        if asks
            && self.0.vote(&mut kept, node, attempt, &asking.own) == Reply::Granted
            && (kept != there.kept || !kept.iter().any(|kept| kept.has(attempt)))
        {
            steps.push(Step::Vote { attempt, node, answer: Answer::Heard });
        }
        if mail.renewal == Sent::Unarrived
            && asking.is_running()
            && self.0.renewal(&mut there.kept.clone(), attempt) != Reply::Refused
        {
            steps.push(Step::Renewal { attempt, node, answer: Answer::Heard });
        }
        if mail.release == Sent::Unarrived {
            steps.push(Step::Release { attempt, node });
        }
    }

    fn tick(&self, state: &mut State<R::Own, N, K, L>) {
        let Bounds { ttl, renewals, .. } = self.0.bounds();
        state.tick(None);
        for attempt in &mut state.attempts {
            // By then, everything has ended.
            attempt.clock = attempt.clock.min(ttl * (renewals + 2));
        }
    }

    fn vote(&self, state: &mut State<R::Own, N, K, L>, attempt: usize, node: usize) {
        if state.attempts[attempt].phase == Phase::Idle {
            self.0.begin(state, attempt);
            ask(state, attempt);
        }
        let own = state.attempts[attempt].own;
        self.0.vote(&mut state.nodes[node].kept, node, attempt, &own);
        state.nodes[node].mail[attempt].vote = Sent::Counted;
        if state.attempts[attempt].phase != Phase::Voting || !self.is_carried(state, attempt, false) {
            return;
        }
        let Some(sent) = self.0.acquired_at(state, attempt) else { return };
        let asking = &mut state.attempts[attempt];
        let until = deadline(sent, self.0.bounds().ttl);
        if moment(asking.clock) >= until {
            return end(state, attempt);
        }
        asking.phase = Phase::Holding(Lease::new(until));
    }

    /// Like `Keeper::renew`.
    fn renew(&self, state: &mut State<R::Own, N, K, L>, attempt: usize) {
        let Attempt { clock, phase: Phase::Holding(lease), own, .. } = &mut state.attempts[attempt] else {
            return;
        };
        lease.renewals += 1;
        lease.renewal = Some(*clock);
        self.0.renew(own, false);
        state.nodes.iter_mut().for_each(|node| node.mail[attempt].renewal = Sent::Unarrived);
    }

    fn renewal(&self, state: &mut State<R::Own, N, K, L>, attempt: usize, node: usize) {
        // A key that was stored again does not count.
        let counts = self.0.renewal(&mut state.nodes[node].kept, attempt) == Reply::Granted;
        state.nodes[node].mail[attempt].renewal = if counts { Sent::Counted } else { Sent::Spent };
        let is_carried = self.is_carried(state, attempt, true);
        let Attempt { clock, phase: Phase::Holding(lease), own, .. } = &mut state.attempts[attempt] else {
            return;
        };
        let Some(sent) = lease.renewal.filter(|_| is_carried) else { return };
        let to = deadline(sent, self.0.bounds().ttl);
        let Some(until) = renewed(&Term::until(lease.until), to, moment(*clock)) else {
            return end(state, attempt);
        };
        (lease.until, lease.renewal) = (until, None);
        self.0.renew(own, true);
    }

    fn is_carried(&self, state: &State<R::Own, N, K, L>, attempt: usize, renews: bool) -> bool {
        let answer = |mail: &Mail| if renews { mail.renewal } else { mail.vote };
        let counted = state.nodes.iter().filter(|node| answer(&node.mail[attempt]) == Sent::Counted).count();
        is_won(Quorum::majority(N), counted) || (counted > 0 && self.0.one_is_enough(attempt, renews))
    }

    /// Removes what can make no difference any more.
    fn tidy(&self, state: &mut State<R::Own, N, K, L>) {
        for attempt in 0..K {
            let asking = &state.attempts[attempt];
            let late = moment(asking.clock) >= deadline(0, self.0.bounds().ttl);
            // A lease that has ended is never revived. A crashed holder sends releases as well,
            // which need not arrive.
            let lapsed = asking.lease().is_some() && !asking.asserts();
            if lapsed || (asking.phase == Phase::Voting && late) {
                end(state, attempt);
            }
        }
        self.0.tidy(state);
    }
}

/// An attempt asks all nodes for their votes.
pub(crate) fn ask<A, const N: usize, const K: usize, const L: usize>(
    state: &mut State<A, N, K, L>,
    attempt: usize,
) {
    state.attempts[attempt].phase = Phase::Voting;
    state.nodes.iter_mut().for_each(|node| node.mail[attempt].vote = Sent::Unarrived);
}

/// Ends an attempt. Its release is sent to all nodes; its other requests can only deny, and are dropped.
pub(crate) fn end<A: Default, const N: usize, const K: usize, const L: usize>(
    state: &mut State<A, N, K, L>,
    attempt: usize,
) {
    let held = state.attempts[attempt].lease().is_some();
    state.attempts[attempt] = Attempt { phase: Phase::Over { held }, ..Attempt::default() };
    let over = Mail { vote: Sent::Spent, renewal: Sent::Spent, release: Sent::Unarrived };
    state.nodes.iter_mut().for_each(|node| node.mail[attempt] = over);
}
