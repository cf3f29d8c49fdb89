//! Several locks acquired together, alongside others acquired alone.
//!
//! The rules about votes, deadlines and renewals are those of [`lock`](crate::lock), which also models
//! clocks, restarts and pauses. In addition, an attempt wants a set of locks, and a node may lose one key of
//! a lease and keep the others. A tick is so long that the margin of `Drift` costs nothing.
//!
//! As there, a lost or refused request does not arrive, an attempt begins with its first request
//! that arrives, and an answer arrives immediately.
//!
//! A node that loses a key breaks an assumption: its holder relies on the lease until the last
//! deadline it knows, and another client may hold the lock in the meantime. What must not happen is
//! that the lease is extended.

pub(crate) mod cases;
mod rules;
pub(crate) mod state;

use quorlock_protocol::{Moment, Quorum};
use stateright::{Model, Property};

use self::state::{Attempt, Phase, State};
use crate::clock;
use crate::names::name;
use crate::walk::Wander;

/// No attempt holds a lock that another holds validly.
pub(crate) const EXCLUSIVE: &str = "no two hold a lock that both want";
/// No waiting attempt has a lock that another one waits for, while waiting for a lock of that one.
pub(crate) const NO_DEADLOCK: &str = "no two wait for each other";
pub(crate) const TOGETHER: &str = "two that want different locks may hold them together";
pub(crate) const PASSED_ON: &str = "one may hold a lock after another that had it in its set";

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// An attempt takes its locks one after the other, and keeps what it has while it waits.
    OneByOne,
    /// One node grants its vote if it can store some of the keys.
    PartialNode,
    /// A node confirms a renewal if some of the keys are left, and stores the others that are free.
    SomeKept,
}

/// The model of `N` nodes, `K` attempts and `L` locks.
#[derive(Clone, Debug)]
pub(crate) struct Several<const N: usize, const K: usize, const L: usize> {
    quorum: Quorum,
    scheme: Scheme,
    /// The locks that each attempt wants.
    wants: [[bool; L]; K],
    ttl: u8,
    /// How often a lease is renewed.
    renewals: u8,
    /// How many keys are lost.
    losses: u8,
}

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A tick passes.
    Tick,
    /// A request for a vote arrives and is granted.
    Vote { attempt: usize, node: usize },
    /// A holder asks all nodes to renew its lease.
    Renew { attempt: usize },
    /// A request of the renewal arrives.
    Renewal { attempt: usize, node: usize },
    /// An attempt releases its locks, or gives up.
    End { attempt: usize },
    /// A release arrives.
    Release { attempt: usize, node: usize },
    /// A node loses a key.
    Lose { node: usize, lock: usize },
}

impl<const N: usize, const K: usize, const L: usize> Several<N, K, L> {
    pub(crate) fn new(scheme: Scheme, wants: [[bool; L]; K]) -> Several<N, K, L> {
        Several { quorum: Quorum::majority(N), scheme, wants, ttl: 2, renewals: 0, losses: 0 }
    }

    /// Sets how often each lease is renewed, and how many keys are lost.
    pub(crate) fn with(self, renewals: u8, losses: u8) -> Several<N, K, L> {
        Several { renewals, losses, ..self }
    }

    fn deadline(&self, sent: u8) -> Moment {
        clock::deadline(sent, self.ttl)
    }

    fn wanted(&self, attempt: usize) -> impl Iterator<Item = usize> {
        let wants = self.wants[attempt];
        (0..L).filter(move |lock| wants[*lock])
    }

    /// Returns the order in which it takes its locks: reversed for every second attempt.
    fn in_turn(&self, attempt: usize) -> impl Iterator<Item = usize> {
        let mut wanted: Vec<usize> = self.wanted(attempt).collect();
        if attempt % 2 == 1 {
            wanted.reverse();
        }
        wanted.into_iter()
    }

    fn share_a_lock(&self, one: usize, other: usize) -> bool {
        self.wanted(one).any(|lock| self.wants[other][lock])
    }

    /// Whether each of the two waits for a lock that the other has.
    fn wait_for_each_other(&self, state: &State<N, K, L>, one: usize, other: usize) -> bool {
        let waits = |attempt: usize| state.attempts[attempt].taken().is_some();
        let keeps_from = |one: usize, other: usize| {
            let has = |lock: &usize| Self::has(state, one, *lock) >= self.quorum.needed();
            self.wanted(other).any(|lock| self.wants[one][lock] && has(&lock))
        };
        waits(one) && waits(other) && keeps_from(one, other) && keeps_from(other, one)
    }
}

/// Whether it relies on a deadline from before a node lost its key.
fn is_excused(attempt: &Attempt) -> bool {
    attempt.robbed.zip(attempt.lease()).is_some_and(|(told, lease)| lease.until <= told)
}

fn pairs<const K: usize>() -> impl Iterator<Item = (usize, usize)> {
    (0..K).flat_map(|one| (one + 1..K).map(move |other| (one, other)))
}

impl<const N: usize, const K: usize, const L: usize> Model for Several<N, K, L> {
    type State = State<N, K, L>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<N, K, L>> {
        vec![State::new(self.losses)]
    }

    fn actions(&self, state: &State<N, K, L>, steps: &mut Vec<Step>) {
        self.possible(state, steps);
    }

    fn next_state(&self, state: &State<N, K, L>, step: Step) -> Option<State<N, K, L>> {
        Some(self.after(state, step))
    }

    fn properties(&self) -> Vec<Property<Several<N, K, L>>> {
        let mut properties = vec![
            Property::<Self>::always(EXCLUSIVE, |model, state| {
                let holds = |attempt: usize| {
                    let asking = &state.attempts[attempt];
                    Self::asserts(asking) && !is_excused(asking)
                };
                let mut together = pairs::<K>().filter(|(one, other)| holds(*one) && holds(*other));
                !together.any(|(one, other)| model.share_a_lock(one, other))
            }),
            Property::<Self>::always(NO_DEADLOCK, |model, state| {
                !pairs::<K>().any(|(one, other)| model.wait_for_each_other(state, one, other))
            }),
        ];
        if pairs::<K>().any(|(one, other)| !self.share_a_lock(one, other)) {
            properties.push(Property::<Self>::sometimes(TOGETHER, |_, state| {
                pairs::<K>()
                    .any(|(one, other)| [one, other].iter().all(|one| Self::asserts(&state.attempts[*one])))
            }));
        }
        properties.push(Property::<Self>::sometimes(PASSED_ON, |model, state| {
            let has_held = |one: usize| matches!(state.attempts[one].phase, Phase::Over { held: true });
            pairs::<K>().any(|(one, other)| {
                let follows =
                    |one: usize, other: usize| has_held(one) && Self::asserts(&state.attempts[other]);
                model.share_a_lock(one, other) && (follows(one, other) || follows(other, one))
            })
        }));
        properties
    }

    fn format_step(&self, _: &State<N, K, L>, step: Step) -> Option<String> {
        Some(match step {
            Step::Tick => "a tick passes".to_owned(),
            Step::Vote { attempt, node } => format!("node {node} grants {} its vote", name(attempt)),
            Step::Renew { attempt } => format!("{} requests a renewal", name(attempt)),
            Step::Renewal { attempt, node } => {
                format!("the renewal of {} arrives at node {node}", name(attempt))
            }
            Step::End { attempt } => format!("{} releases its locks", name(attempt)),
            Step::Release { attempt, node } => {
                format!("the release of {} arrives at node {node}", name(attempt))
            }
            Step::Lose { node, lock } => format!("node {node} loses the key of lock {lock}"),
        })
    }
}

impl<const N: usize, const K: usize, const L: usize> Wander for Several<N, K, L> {
    fn weight(&self, step: &Step) -> u32 {
        match step {
            Step::Vote { .. } | Step::Renewal { .. } => 8,
            Step::Tick => 6,
            Step::Renew { .. } | Step::Release { .. } => 3,
            Step::End { .. } | Step::Lose { .. } => 1,
        }
    }
}
