//! Offers: a holder that releases the lock hands each node's key to a waiter, in one trip.
//!
//! A waiter repeatedly sends questions to a queue, each with a new token. A question stores nothing
//! on any node. A holder ends its lease, and then sends its offers: each asks a node to replace the
//! holder's token by the waiter's. The node does so only if it has the holder's token, and notifies
//! the waiter, which counts that as the node's vote. Validity counts from before the question was
//! sent, so that an offer is a vote whose request was slow.
//!
//! No record knows offers: to a record an offer is a transfer, which the model sends only where the holder has
//! the key. `Quorum`, `Tally`, `Drift`, `Term`, `Quarantine`, `FenceHint` and `FenceVotes` of
//! `quorlock_protocol` decide as in the library. An attempt is one token: a waiter that has asked
//! twice is two attempts. The queue is only a hint and is not modelled: a holder may offer to any
//! public token, and to a different one on each node.
//!
//! To keep the number of states small, much has no step of its own:
//!
//! | what happens | how it is modelled |
//! |---|---|
//! | a request is lost, or refused | it does not arrive |
//! | an attempt asks, or sends a renewal or its offers | with the first request that arrives; sending earlier would only shorten its validity |
//! | a question is sent | with the first offer that names its token, for the same reason |
//! | an offer arrives twice | while the node has the offering token, if no numbers are drawn |
//! | a push arrives late, or is lost | it arrives immediately: a waiter that has heard more may assert more |
//! | a process was old enough when the connection was made, after the question | it is old enough when it votes |
//! | a waiter gives up before it holds the lock | it has never asked |
//! | one command stores the key, and the next draws the number | one step, but for `Scheme::TwoCommands` |
//! | a released key still denies others | its keys and requests are gone immediately: they can only deny |
//!
//! In `Detail::Literal` questions, pushes, giving up and releases have steps of their own.

pub(crate) mod cases;
mod possible;
mod rules;
mod scheme;
pub(crate) mod state;
mod story;
mod tidy;

use quorlock_protocol::Quorum;
use stateright::{Model, Property};

pub(crate) use self::scheme::Scheme;
use self::state::{Kind, State};
use crate::scene::{self, Lease, Phase};
use crate::walk::Wander;
use crate::world::{Clocks, Fencing, World};

pub(crate) const EXCLUSIVE: &str = "no two hold the lock at the same time";
/// From its acquisition until it is last asserted, no other attempt asserts the lock.
pub(crate) const UNBROKEN: &str = "no other holds the lock during a lease";
/// A number is larger than those issued before its attempt began, or its question was sent.
pub(crate) const ORDERED: &str = "a number is above those issued before its question was sent";
/// While clocks are within their bounds, it is larger than all issued before.
pub(crate) const LATER: &str = "the later holder has the larger number";
pub(crate) const TAKEN_UP: &str = "an offer may be taken up";
pub(crate) const FOLLOWED: &str = "a plain client may come after one that took up an offer";
pub(crate) const OFFERED_AGAIN: &str = "a waiter may hold the lock after another one that took up an offer";
/// The lease may outlast the life of the offer.
pub(crate) const PROLONGED: &str = "a lease from an offer may be renewed to the full TTL";
/// A quorum may carry a number that no quorum drew.
pub(crate) const WRITTEN_BACK: &str = "a number may have to be written back";

/// The model of `N` nodes and `K` tokens.
#[derive(Clone, Debug)]
pub(crate) struct Offer<const N: usize, const K: usize> {
    quorum: Quorum,
    scheme: Scheme,
    kinds: [Kind; K],
    world: World,
}

/// A step of this model.
pub(crate) type Step = scene::Step<Act>;

/// A step that only this model has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// A node restarts with its data, and notifies the waiter again whose token it has.
    Remind { node: usize },
    /// A node's key vanishes, if there are no clocks.
    Vanish { node: usize },
    /// A waiter draws a token and sends its question.
    Question { attempt: usize },
    /// A waiter sends a question again with the same token.
    AskAgain { attempt: usize },
    /// An offer arrives; the holder ended its lease before sending the first one.
    Offer { attempt: usize, to: usize, node: usize },
    /// A push arrives.
    Push { attempt: usize, node: usize },
    /// A push arrives in the name of a node that has not sent it.
    Forge { attempt: usize, node: usize },
    /// A node draws the number for a key that it has stored before.
    Draw { attempt: usize, node: usize },
    /// An attempt decides on its number.
    Decide { attempt: usize },
    /// A request to carry a number arrives and is granted.
    WriteBack { attempt: usize, node: usize },
}

impl<const N: usize, const K: usize> Offer<N, K> {
    pub(crate) fn new(scheme: Scheme, kinds: [Kind; K], world: World) -> Offer<N, K> {
        Offer { quorum: Quorum::majority(N), scheme, kinds, world }
    }

    /// Whether two attempts are of different clients.
    fn is_other(&self, state: &State<N, K>, one: usize, other: usize) -> bool {
        let is_waiter = |attempt: usize| state.attempts[attempt].own.kind == Kind::Waiter;
        other != one && !(self.scheme == Scheme::TwoTokens && is_waiter(one) && is_waiter(other))
    }

    fn has(&self, kind: Kind, times: usize) -> bool {
        self.kinds.iter().filter(|other| **other == kind).count() >= times
    }

    /// Whether an offered lease is over, and an attempt of this kind asserts the lock.
    fn comes_after(&self, state: &State<N, K>, kind: Kind) -> bool {
        let gone = state.attempts.iter().any(|attempt| {
            let has_ended = matches!(attempt.phase, Phase::Ended | Phase::Over { held: true });
            attempt.own.kind == Kind::Waiter && has_ended
        });
        gone && state.attempts.iter().any(|attempt| attempt.own.kind == kind && self.believes(attempt))
    }
}

impl<const N: usize, const K: usize> Model for Offer<N, K> {
    type State = State<N, K>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<N, K>> {
        self.starts()
    }

    fn actions(&self, state: &State<N, K>, steps: &mut Vec<Step>) {
        self.possible(state, steps);
    }

    fn next_state(&self, state: &State<N, K>, step: Step) -> Option<State<N, K>> {
        Some(self.after(state, step))
    }

    fn properties(&self) -> Vec<Property<Offer<N, K>>> {
        let has_clocks = self.world.clocks == Clocks::Running;
        let mut properties = vec![Property::<Self>::sometimes(TAKEN_UP, |model, state| {
            state.attempts.iter().any(|one| one.own.kind == Kind::Waiter && model.believes(one))
        })];
        if has_clocks {
            properties.push(Property::<Self>::always(EXCLUSIVE, |model, state| {
                let believes = |one: usize| model.believes(&state.attempts[one]);
                let others = |one| (0..K).filter(move |other| model.is_other(state, one, *other));
                !(0..K).any(|one| believes(one) && others(one).any(believes))
            }));
            properties.push(Property::<Self>::always(UNBROKEN, |model, state| {
                let is_broken = |lease: &Lease| lease.interrupted;
                !state.attempts.iter().any(|one| one.lease().is_some_and(is_broken) && model.believes(one))
            }));
        }
        if self.world.fencing != Fencing::Without {
            properties.push(Property::<Self>::always(ORDERED, |_, state| {
                state.attempts.iter().all(|one| one.lease().is_none() || one.own.number > one.own.floor)
            }));
            if has_clocks {
                properties.push(Property::<Self>::always(LATER, |_, state| {
                    !state.attempts.iter().any(|attempt| attempt.own.overtaken)
                }));
            }
            properties.push(Property::<Self>::sometimes(WRITTEN_BACK, |_, state| {
                let writes_back =
                    |one: &state::Attempt| one.own.kind == Kind::Waiter && one.phase == Phase::WritingBack;
                state.attempts.iter().any(writes_back)
            }));
        }
        if self.has(Kind::Plain, 1) {
            properties.push(Property::<Self>::sometimes(FOLLOWED, |model, state| {
                model.comes_after(state, Kind::Plain)
            }));
        }
        if self.has(Kind::Waiter, 2) {
            properties.push(Property::<Self>::sometimes(OFFERED_AGAIN, |model, state| {
                model.comes_after(state, Kind::Waiter)
            }));
        }
        if self.world.renewals > 0 && has_clocks {
            properties.push(Property::<Self>::sometimes(PROLONGED, |model, state| {
                let first = model.world.deadline(0, model.world.offer);
                let is_prolonged = |lease: &Lease| lease.until > first;
                state.attempts.iter().any(|one| {
                    one.own.kind == Kind::Waiter
                        && one.lease().is_some_and(is_prolonged)
                        && model.believes(one)
                })
            }));
        }
        properties
    }

    fn format_step(&self, before: &State<N, K>, step: Step) -> Option<String> {
        Some(step.describe(before, &self.after(before, step), |act| self.describe(before, act)))
    }
}

/// Chosen so that many offers are taken up, and some things arrive late.
impl<const N: usize, const K: usize> Wander for Offer<N, K> {
    fn weight(&self, step: &Step) -> u32 {
        step.weight(|act| match act {
            Act::Offer { .. }
            | Act::Push { .. }
            | Act::Draw { .. }
            | Act::Decide { .. }
            | Act::WriteBack { .. } => 8,
            Act::Question { .. } => 4,
            Act::AskAgain { .. } => 2,
            Act::Remind { .. } | Act::Forge { .. } | Act::Vanish { .. } => 1,
        })
    }
}
