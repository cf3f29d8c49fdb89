//! The lock: no two hold it at the same time.
//!
//! `Quorum`, `Tally`, `Drift`, `Term` and `Quarantine` of `quorlock_protocol` decide as in the library, and
//! a node's record answers the requests; the client's control flow between them is a copy. The model adds what
//! may happen to it: requests arrive in any order, late or never; answers are lost; clients stop, pause and give
//! up; clocks run at different rates; nodes restart and lose their data.
//!
//! An attempt *asserts* the lock while it has a lease whose term is valid by its own clock. It asks
//! the term, so only the rules of `Term` end a lease: there is no timer.
//!
//! To keep the number of states small, much of this has no step of its own:
//!
//! | what happens | how it is modelled |
//! |---|---|
//! | a request is lost | it does not arrive |
//! | a request is refused | the same |
//! | an attempt begins, or sends a renewal | with its first request that arrives; beginning earlier would only shorten its validity |
//! | an answer arrives late, or is lost | it arrives immediately: an attempt that has heard more may assert more |
//! | an attempt gives up before it has a quorum | it has never begun |
//! | a released key still denies others | its keys and requests are gone immediately: they can only deny |
//!
//! In `Detail::Literal` all of this has steps of its own, to check that the reductions hide no
//! violation. In both, requests on one connection may be reordered, which is more than can happen.

pub(crate) mod cases;
mod rules;
mod scheme;
pub(crate) mod state;
mod story;
mod tidy;

use quorlock_protocol::Quorum;
use stateright::{Model, Property};

pub(crate) use self::scheme::Scheme;
use self::state::{Attempt, Node, Past, State};
use crate::scene;
use crate::walk::Wander;
use crate::world::{Addresses, World};

pub(crate) const EXCLUSIVE: &str = "no two hold the lock at the same time";
/// From its acquisition until it is last asserted, no other attempt asserts the lock.
pub(crate) const UNBROKEN: &str = "no other holds the lock during a lease";
/// A lease whose end was observed is never asserted again.
pub(crate) const STAYS_ENDED: &str = "a lease whose end was observed stays over";
pub(crate) const PASSED_ON: &str = "the lock may pass from one to another";
pub(crate) const RENEWED: &str = "a lease may be renewed";
/// The strict rule (I-9) is exercised.
pub(crate) const LAPSED: &str = "a renewal may be in flight when the lease ends";

/// The model of `N` nodes and `K` attempts.
#[derive(Clone, Debug)]
pub(crate) struct Lock<const N: usize, const K: usize> {
    quorum: Quorum,
    scheme: Scheme,
    world: World,
}

/// A step of this model.
pub(crate) type Step = scene::Step<Act>;

/// A step that only this model has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// The calendar clock of a restarted node steps far forwards.
    PutForward { node: usize },
    /// A node's clock jumps past the expiry of its key.
    Jump { node: usize },
    /// A holder asks a node that lacks the key again (I-38).
    AskAgain { attempt: usize, node: usize },
    /// An attempt reads its clock and asks all nodes for their votes.
    Begin { attempt: usize },
    /// A request of an earlier renewal arrives.
    LateRenewal { attempt: usize, node: usize },
    /// An attempt that has paused counts a renewal.
    Count { attempt: usize },
    /// A caller checks a lease that has ended.
    SeeEnd { attempt: usize },
}

impl<const N: usize, const K: usize> Lock<N, K> {
    pub(crate) fn new(scheme: Scheme, world: World) -> Lock<N, K> {
        // One of the addresses leads to two nodes.
        let addresses = if world.addresses == Addresses::Balanced { N - 1 } else { N };
        Lock { quorum: Quorum::majority(addresses), scheme, world }
    }
}

impl<const N: usize, const K: usize> Model for Lock<N, K> {
    type State = State<N, K>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<N, K>> {
        let (past, attempts) = (Past::default(), [Attempt::default(); K]);
        let mut state = State { past, nodes: [Node::new(); N], attempts };
        for node in state.nodes.iter_mut().take(usize::from(self.world.remembering)) {
            node.own.remembers = true;
        }
        vec![state]
    }

    fn actions(&self, state: &State<N, K>, steps: &mut Vec<Step>) {
        self.possible(state, steps);
    }

    fn next_state(&self, state: &State<N, K>, step: Step) -> Option<State<N, K>> {
        Some(self.after(state, step))
    }

    fn properties(&self) -> Vec<Property<Lock<N, K>>> {
        let mut properties = vec![
            Property::<Self>::always(EXCLUSIVE, |model, state| {
                state.attempts.iter().filter(|attempt| model.asserts(attempt)).count() <= 1
            }),
            Property::<Self>::always(UNBROKEN, |model, state| {
                let is_broken = |attempt: &&Attempt| attempt.lease().is_some_and(|lease| lease.interrupted);
                !state.attempts.iter().filter(is_broken).any(|attempt| model.asserts(attempt))
            }),
            Property::<Self>::always(STAYS_ENDED, |model, state| {
                !state.attempts.iter().any(|attempt| attempt.own.seen_to_end && model.asserts(attempt))
            }),
            Property::<Self>::sometimes(PASSED_ON, |model, state| {
                state.attempts.iter().any(Attempt::has_held)
                    && state.attempts.iter().any(|attempt| model.asserts(attempt))
            }),
        ];
        if self.world.renewals > 0 {
            properties.push(Property::<Self>::sometimes(RENEWED, |model, state| {
                let first = model.deadline(0);
                state.attempts.iter().filter_map(Attempt::lease).any(|lease| lease.until > first)
            }));
            properties.push(Property::<Self>::sometimes(LAPSED, |model, state| {
                let is_late = |attempt: &Attempt| {
                    attempt.lease().is_some_and(|lease| lease.renewal.is_some()) && !model.asserts(attempt)
                };
                state.attempts.iter().any(is_late)
            }));
        }
        properties
    }

    fn format_step(&self, before: &State<N, K>, step: Step) -> Option<String> {
        Some(step.describe(before, &self.after(before, step), |act| self.describe(before, act)))
    }
}

impl<const N: usize, const K: usize> Wander for Lock<N, K> {
    fn weight(&self, step: &Step) -> u32 {
        step.weight(|act| match act {
            Act::Begin { .. } | Act::Count { .. } => 4,
            Act::LateRenewal { .. } | Act::SeeEnd { .. } => 2,
            Act::PutForward { .. } | Act::Jump { .. } | Act::AskAgain { .. } => 1,
        })
    }
}
