//! The lock: no two hold it at once.
//!
//! What is checked is the code of `quorlock_protocol`: `Quorum`, `Tally`, `Drift`, `Term` and
//! `Quarantine` decide here as they do in the library; the flow between them is a copy. The model adds
//! what the world may do to it: requests arrive in any order, late, or never; answers are lost;
//! clients stop, pause, and give up; clocks run at different rates; nodes restart and have forgotten
//! everything.
//!
//! An attempt *asserts* the lock while it has a lease whose term runs by its own clock. It asks the
//! term itself, so nothing but the rules of `Term` ends a lease: there is no timer that would.
//!
//! Much of this is there without a step of its own, which keeps the number of states small:
//!
//! | what happens | how it is in the model |
//! |---|---|
//! | a request is lost | it does not arrive |
//! | a request is refused | the same |
//! | an attempt begins, or sends a renewal | with its first request that arrives: any earlier, and it may trust its keys for less long |
//! | an answer comes late, or is lost | it comes at once: whoever has heard more may assert more |
//! | an attempt gives up before it has a quorum | it has never begun |
//! | what has been given back still denies | its keys and requests are gone at once: they can only deny |
//!
//! In [`Detail::Literal`] all of this has steps of its own, to see that the shortcuts hide nothing.
//! Requests on one connection keep no order in either, which is more than can happen.

pub(crate) mod cases;
mod rules;
pub(crate) mod state;
mod story;
mod tidy;
mod world;

use quorlock_protocol::Quorum;
use stateright::{Model, Property};

use self::state::{Attempt, Phase, State};
pub(crate) use self::world::{Addresses, JumpsAt, Meeting, Pauses, Scheme, Turns, World};
use crate::common::{Answer, Past};
use crate::walk::Wander;

/// Two attempts do not assert the lock at the same instant.
pub(crate) const EXCLUSIVE: &str = "no two hold the lock at once";
/// From when it is acquired until it is last asserted, a lease is nobody else's.
pub(crate) const UNBROKEN: &str = "nobody else holds the lock in the middle of a lease";
/// A lease that somebody has seen to end is never asserted again.
pub(crate) const ENDED_FOR_EVER: &str = "a lease that was seen to end is over for ever";
/// The lock may pass from one to another.
pub(crate) const PASSED_ON: &str = "the lock may pass from one to another";
/// A renewal may succeed.
pub(crate) const RENEWED: &str = "a lease may be renewed";
/// The strict rule is put to the test.
pub(crate) const LAPSED: &str = "a renewal may be under way when the lease ends";

/// The model, of `N` nodes and `K` attempts.
#[derive(Clone, Debug)]
pub(crate) struct Lock<const N: usize, const K: usize> {
    quorum: Quorum,
    scheme: Scheme,
    world: World,
}

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Time goes on by a tick.
    Tick { missed_by: Option<usize> },
    /// A node's clock runs ahead by a tick.
    RunAhead { node: usize },
    /// A node restarts, and has forgotten everything, unless it remembers.
    Restart { node: usize },
    /// The calendar clock of a node that has restarted is put far forward.
    PutForward { node: usize },
    /// A node's clock jumps past the end of its key.
    Jump { node: usize },
    /// An attempt that holds the lock asks a node again that lacks the key (I-38).
    AskAgain { attempt: usize, node: usize },
    /// An attempt reads its clock and asks all nodes for their votes.
    Begin { attempt: usize },
    /// A request for a vote arrives.
    Vote { attempt: usize, node: usize, answer: Answer },
    /// An attempt reads its clock and asks all nodes to renew its lease.
    Renew { attempt: usize },
    /// A request of the renewal that is under way arrives.
    Renewal { attempt: usize, node: usize, answer: Answer },
    /// A renewal is sent, and its first request arrives.
    NewRenewal { attempt: usize, node: usize },
    /// A request of an earlier renewal arrives.
    LateRenewal { attempt: usize, node: usize },
    /// An attempt that has paused counts a renewal.
    Count { attempt: usize },
    /// Somebody sees that a lease has ended.
    SeeEnd { attempt: usize },
    /// An attempt gives up, or gives the lock back.
    End { attempt: usize },
    /// A release arrives.
    Release { attempt: usize, node: usize },
}

impl<const N: usize, const K: usize> Lock<N, K> {
    /// The lock by these rules, in this world.
    pub(crate) fn new(scheme: Scheme, world: World) -> Lock<N, K> {
        // As many addresses as nodes, but that one leads to two of them.
        let addresses = if world.addresses == Addresses::Balanced { N - 1 } else { N };
        Lock { quorum: Quorum::majority(addresses), scheme, world }
    }
}

impl<const N: usize, const K: usize> Model for Lock<N, K> {
    type State = State<N, K>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<N, K>> {
        let mut state = State::new();
        for node in state.nodes.iter_mut().take(usize::from(self.world.remembering)) {
            node.remembers = true;
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
            Property::<Self>::always(ENDED_FOR_EVER, |model, state| {
                let has_ended = |attempt: &&Attempt| attempt.lease().is_some_and(|lease| lease.seen_to_end);
                !state.attempts.iter().filter(has_ended).any(|attempt| model.asserts(attempt))
            }),
            Property::<Self>::sometimes(PASSED_ON, |model, state| {
                let held = |attempt: &Attempt| matches!(attempt.phase, Phase::Over { past: Past::Held });
                state.attempts.iter().any(held) && state.attempts.iter().any(|attempt| model.asserts(attempt))
            }),
        ];
        if self.world.renewals > 0 {
            properties.push(Property::<Self>::sometimes(RENEWED, |model, state| {
                let first = model.world.deadline(0);
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

    fn format_step(&self, state: &State<N, K>, step: Step) -> Option<String> {
        Some(self.tell(state, step))
    }
}

/// So that many attempts acquire and renew, and some renewals come too late.
impl<const N: usize, const K: usize> Wander for Lock<N, K> {
    fn weight(&self, step: &Step) -> u32 {
        match step {
            Step::Vote { .. } | Step::Renewal { .. } | Step::Tick { missed_by: None } => 8,
            Step::NewRenewal { .. } | Step::Begin { .. } | Step::Count { .. } => 4,
            Step::LateRenewal { .. } | Step::Renew { .. } | Step::SeeEnd { .. } | Step::Release { .. } => 2,
            Step::Restart { .. }
            | Step::PutForward { .. }
            | Step::Jump { .. }
            | Step::AskAgain { .. }
            | Step::RunAhead { .. }
            | Step::End { .. }
            | Step::Tick { missed_by: Some(_) } => 1,
        }
    }
}
