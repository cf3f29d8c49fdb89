//! Shared locks: readers together or one writer, and a writer may become a reader.
//!
//! The rules about votes, deadlines and renewals are those of [`lock`](crate::lock), which has clocks,
//! restarts and pauses as well; here they are the same code again. What is added is what a node keeps of
//! readers, each with its own end, beside the end of the key; downgrades; releases that come late; and
//! writers that wait. A tick is so long that the margin of `Drift` costs nothing.
//!
//! As there, a request that is lost or refused is one that does not arrive, an attempt begins with its
//! first request that arrives, and an answer comes at once.
//!
//! That a writer is not starved is checked as a limit on overtaking: once its intent stands where it is
//! said, nobody gets in who begins after that. What is then left to wait for are readers that end.

pub(crate) mod cases;
mod rules;
pub(crate) mod state;

use quorlock_protocol::{Mode, Moment, Quorum};
use stateright::{Model, Property};

use self::state::{Attempt, Phase, State};
use crate::clock;
use crate::names::name;
use crate::walk::Wander;

/// A writer holds the lock alone.
pub(crate) const EXCLUSIVE: &str = "nobody holds the lock while a writer does";
/// Nobody gets in before a writer that waits who began after it.
pub(crate) const NOT_OVERTAKEN: &str = "no reader that is new goes before a writer that waits";
/// Readers hold the lock together.
pub(crate) const TOGETHER: &str = "two readers may hold the lock together";
/// A writer has become a reader, and others read.
pub(crate) const DOWNGRADED: &str = "a writer may read on together with others";
/// A writer comes after readers.
pub(crate) const PASSED_ON: &str = "a writer may come after a reader";

/// The rules: those of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    /// As the library does it.
    Quorlock,
    /// The time of the first reader is everybody's.
    OneTtl,
    /// A node counts its readers and knows nothing else of them.
    Counting,
    /// A node that has lost its last reader's time keeps the time of whoever left last.
    LeaverShortens,
    /// A writer holds the lock alone until its downgrade is confirmed, and goes on doing so if it is not.
    FailedDowngrade,
    /// One confirmation is enough for a downgrade, which also renews.
    MinorityDowngrade,
    /// Nodes let readers in whoever waits.
    NoIntent,
    /// A writer that waits says so at one node.
    OneIntent,
}

/// The model, of `N` nodes and `K` attempts, the first `writers` of which write.
#[derive(Clone, Debug)]
pub(crate) struct Shared<const N: usize, const K: usize> {
    quorum: Quorum,
    scheme: Scheme,
    writers: usize,
    ttl: u8,
    /// How often a share is renewed, downgrades included.
    renewals: u8,
}

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Time goes on by a tick.
    Tick,
    /// A request for a vote arrives where it is granted.
    Vote { attempt: usize, node: usize },
    /// An attempt asks all nodes to renew its share: a writer becomes a reader so.
    Renew { attempt: usize },
    /// A request of that arrives.
    Renewal { attempt: usize, node: usize },
    /// An attempt gives up, or gives the lock back.
    End { attempt: usize },
    /// A release arrives.
    Release { attempt: usize, node: usize },
    /// A node hears that a writer waits.
    Intend { attempt: usize, node: usize },
}

impl<const N: usize, const K: usize> Shared<N, K> {
    /// So many writers, the others read; each renews so often.
    pub(crate) fn new(scheme: Scheme, writers: usize, renewals: u8) -> Shared<N, K> {
        Shared { quorum: Quorum::majority(N), scheme, writers, ttl: 2, renewals }
    }

    /// The same with a longer TTL.
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
            Step::Tick => "time goes on by a tick".to_owned(),
            Step::Vote { attempt, node } => format!("node {node} grants {} its vote", name(attempt)),
            Step::Renew { attempt } => format!("{} asks for a share from now on", name(attempt)),
            Step::Renewal { attempt, node } => {
                format!("that request of {} arrives at node {node}", name(attempt))
            }
            Step::End { attempt } => format!("{} gives the lock back", name(attempt)),
            Step::Release { attempt, node } => {
                format!("the release of {} arrives at node {node}", name(attempt))
            }
            Step::Intend { attempt, node } => format!("node {node} hears that {} waits", name(attempt)),
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
