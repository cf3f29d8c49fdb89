//! Shared locks: readers together or one writer, and a writer may downgrade to a reader.
//!
//! The rules about votes, deadlines and renewals are those of [`lock`](crate::lock), which also
//! models clocks, restarts and pauses. In addition, a node stores the expiry of each reader besides
//! that of the key; there are downgrades, late releases, and waiting writers. A tick is so long
//! that the margin of `Drift` costs nothing.
//!
//! As there, a lost or refused request does not arrive, an attempt begins with its first request
//! that arrives, and an answer arrives immediately.
//!
//! Writer starvation is checked as a bound on overtaking: once enough nodes have a writer's intent, no
//! attempt that begins later acquires the lock before it. The writer then waits only for readers to end.

pub(crate) mod cases;
mod rules;
pub(crate) mod state;

use quorlock_protocol::{Mode, Moment, Quorum};
use stateright::{Model, Property};

use self::state::{Attempt, Phase, State};
use crate::clock;
use crate::names::name;
use crate::walk::Wander;

pub(crate) const EXCLUSIVE: &str = "no other holds the lock while a writer does";
/// No attempt that begins after a waiting writer acquires the lock before it.
pub(crate) const NOT_OVERTAKEN: &str = "no new reader overtakes a waiting writer";
pub(crate) const TOGETHER: &str = "two readers may hold the lock together";
pub(crate) const DOWNGRADED: &str = "a writer may downgrade and share the lock with readers";
pub(crate) const PASSED_ON: &str = "a writer may come after a reader";

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// The expiry of the first reader applies to all.
    OneTtl,
    /// A node only counts its readers.
    Counting,
    /// When the last reader leaves, a node keeps the expiry of that reader.
    LeaverShortens,
    /// A writer holds the lock exclusively until its downgrade is confirmed, even if that fails.
    FailedDowngrade,
    /// One confirmation is enough for a downgrade, which also renews.
    MinorityDowngrade,
    /// Nodes grant readers while a writer waits.
    NoIntent,
    /// A waiting writer stores its intent on one node only.
    OneIntent,
}

/// The model of `N` nodes and `K` attempts, the first `writers` of which write.
#[derive(Clone, Debug)]
pub(crate) struct Shared<const N: usize, const K: usize> {
    quorum: Quorum,
    scheme: Scheme,
    writers: usize,
    ttl: u8,
    /// How often a share is renewed, including downgrades.
    renewals: u8,
}

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A tick passes.
    Tick,
    /// A request for a vote arrives and is granted.
    Vote { attempt: usize, node: usize },
    /// An attempt asks all nodes to renew its share; this downgrades a writer.
    Renew { attempt: usize },
    /// A request of the renewal arrives.
    Renewal { attempt: usize, node: usize },
    /// An attempt releases the lock, or gives up.
    End { attempt: usize },
    /// A release arrives.
    Release { attempt: usize, node: usize },
    /// A writer's intent arrives.
    Intend { attempt: usize, node: usize },
}

impl<const N: usize, const K: usize> Shared<N, K> {
    /// Creates the model with this many writers; the other attempts read. Each renews this often.
    pub(crate) fn new(scheme: Scheme, writers: usize, renewals: u8) -> Shared<N, K> {
        Shared { quorum: Quorum::majority(N), scheme, writers, ttl: 2, renewals }
    }

    pub(crate) fn with_ttl(self, ttl: u8) -> Shared<N, K> {
        Shared { ttl, ..self }
    }

    fn deadline(&self, sent: u8) -> Moment {
        clock::deadline(sent, self.ttl)
    }

    fn role(&self, attempt: usize) -> Mode {
        if attempt < self.writers { Mode::Exclusive } else { Mode::Shared }
    }
}

impl<const N: usize, const K: usize> Model for Shared<N, K> {
    type State = State<N, K>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<N, K>> {
        vec![State::new()]
    }

    fn actions(&self, state: &State<N, K>, steps: &mut Vec<Step>) {
        self.possible(state, steps);
    }

    fn next_state(&self, state: &State<N, K>, step: Step) -> Option<State<N, K>> {
        Some(self.after(state, step))
    }

    fn properties(&self) -> Vec<Property<Shared<N, K>>> {
        let mut properties = vec![
            Property::<Self>::always(EXCLUSIVE, |_, state| {
                let modes: Vec<Mode> = state.attempts.iter().filter_map(Self::asserts).collect();
                modes.len() < 2 || modes.iter().all(|mode| *mode == Mode::Shared)
            }),
            Property::<Self>::always(NOT_OVERTAKEN, |_, state| {
                let overtakes = |one: &Attempt| one.behind.is_some() && one.lease().is_some();
                !state.attempts.iter().any(overtakes)
            }),
        ];
        if K - self.writers > 1 {
            properties.push(Property::<Self>::sometimes(TOGETHER, |model, state| {
                let reads = |index: &usize| Self::asserts(&state.attempts[*index]).is_some();
                (model.writers..K).filter(reads).count() > 1
            }));
        }
        if self.writers > 0 {
            properties.push(Property::<Self>::sometimes(PASSED_ON, |model, state| {
                let has_read = |one: &Attempt| matches!(one.phase, Phase::Over { held: true });
                let writes = |one: &Attempt| Self::asserts(one) == Some(Mode::Exclusive);
                state.attempts[model.writers..].iter().any(has_read) && state.attempts.iter().any(writes)
            }));
        }
        if self.writers > 0 && self.renewals > 0 {
            properties.push(Property::<Self>::sometimes(DOWNGRADED, |model, state| {
                let (writers, readers) = state.attempts.split_at(model.writers);
                let reads = |one: &Attempt| Self::asserts(one) == Some(Mode::Shared);
                writers.iter().any(reads) && readers.iter().any(reads)
            }));
        }
        properties
    }

    fn format_step(&self, _: &State<N, K>, step: Step) -> Option<String> {
        Some(match step {
            Step::Tick => "a tick passes".to_owned(),
            Step::Vote { attempt, node } => format!("node {node} grants {} its vote", name(attempt)),
            Step::Renew { attempt } => format!("{} requests to renew its share", name(attempt)),
            Step::Renewal { attempt, node } => {
                format!("the renewal of {} arrives at node {node}", name(attempt))
            }
            Step::End { attempt } => format!("{} releases the lock", name(attempt)),
            Step::Release { attempt, node } => {
                format!("the release of {} arrives at node {node}", name(attempt))
            }
            Step::Intend { attempt, node } => {
                format!("the intent of {} arrives at node {node}", name(attempt))
            }
        })
    }
}

impl<const N: usize, const K: usize> Wander for Shared<N, K> {
    fn weight(&self, step: &Step) -> u32 {
        match step {
            Step::Vote { .. } | Step::Renewal { .. } | Step::Intend { .. } => 8,
            Step::Tick => 6,
            Step::Renew { .. } | Step::Release { .. } => 3,
            Step::End { .. } => 1,
        }
    }
}
