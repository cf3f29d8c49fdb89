//! Fencing tokens: no number is issued twice, and a later attempt has a larger one.
//!
//! `Quorum`, `Tally`, `FenceHint`, `FenceVotes` and `Quarantine` of `quorlock_protocol` decide as in the library. The
//! model adds what may happen to it: requests arrive in any order, late or never; answers are lost; clients stop; locks
//! share a counter; clocks of nodes are set; nodes restart and lose their data.
//!
//! No node has keys here. A vote may be granted at any time, whichever others have one: the order rests on counters alone.
//! To keep the number of states small, much else has no step of its own:
//!
//! | what happens | how it is modelled |
//! |---|---|
//! | a key vanishes, is released, or expires; readers share the lock | a vote is granted at any time |
//! | one command stores the key, and the next draws the number ([ADR 4](../../../docs/adr/0004-fencing.md)) | the vote is granted with the second |
//! | a request is lost | it does not arrive |
//! | a client stops, or gives up | the attempt takes no further step; its requests may still arrive |
//! | an answer is lost, or arrives after the decision | the vote is granted *unheard* |
//! | an answer arrives late, before the decision | the same as immediately: nothing is decided from it earlier |
//! | an acknowledgement of a write-back is lost | the same as heard, which only lets more attempts return |
//! | a vote is refused | the same as a lost request, but it may raise the counter, up to a bound |
//! | a node draws twice for an attempt, or stores its key again | one draws, and another lock raises the counter |
//! | an attempt begins | without clocks: with its first vote; beginning earlier would guarantee it less |
//!
//! Requests that cannot affect an attempt that may still return do not arrive either. `Detail::Literal` does without
//! most of these reductions, to check that they hide no violation.

pub(crate) mod cases;
mod rules;
pub(crate) mod state;
mod story;
mod tidy;
mod world;

use quorlock_protocol::{FencingToken, Quorum};
use stateright::{Model, Property};

use self::state::{Attempt, Phase, State, Way};
pub(crate) use self::world::{Scheme, World};
use crate::common::Answer;
use crate::walk::Wander;

pub(crate) const UNIQUE: &str = "no number is issued twice";
/// An attempt that begins after another has returned gets the larger number.
pub(crate) const ORDERED: &str = "a later attempt has the larger number";
pub(crate) const ALL_RETURN: &str = "all attempts may return";
/// A quorum may carry a number that no quorum drew.
pub(crate) const WRITTEN_BACK: &str = "a number may be written back";

/// The model of `N` nodes and `K` attempts.
#[derive(Clone, Debug)]
pub(crate) struct Fence<const N: usize, const K: usize> {
    quorum: Quorum,
    scheme: Scheme,
    world: World,
}

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A tick passes.
    Tick,
    /// A node restarts without its data.
    Restart { node: usize },
    /// A node's wall clock steps forwards, or back to where it was.
    SetClock { node: usize },
    /// An attempt reads its clock and asks all nodes.
    Begin { attempt: usize },
    /// A request for a vote arrives and is granted.
    Vote { attempt: usize, node: usize, answer: Answer },
    /// A request for a vote arrives, is refused, but raises the counter: it may ask again.
    Refuse { attempt: usize, node: usize },
    /// An attempt with votes of a quorum decides on its number.
    Decide { attempt: usize },
    /// A request to carry a number arrives and is granted.
    WriteBack { attempt: usize, node: usize, answer: Answer },
    /// A lock that shares the node's counter raises it.
    Raise { node: usize },
}

impl<const N: usize, const K: usize> Fence<N, K> {
    pub(crate) fn new(scheme: Scheme, world: World) -> Fence<N, K> {
        Fence { quorum: Quorum::majority(N), scheme, world }
    }
}

impl<const N: usize, const K: usize> Model for Fence<N, K> {
    type State = State<N, K>;
    type Action = Step;

    /// One of each set of states that differ only in the names of nodes and attempts.
    fn init_states(&self) -> Vec<State<N, K>> {
        let numbers: Vec<u64> = (0..=self.world.counters_up_to).collect();
        let counters = multisets::<u64, N>(&numbers);
        let clocks = multisets::<u8, K>(&self.world.clocks_ahead);
        let start = |counters: &[u64; N], ahead| State::new(counters.map(token), ahead);
        counters.iter().flat_map(|counters| clocks.iter().map(|&ahead| start(counters, ahead))).collect()
    }

    fn actions(&self, state: &State<N, K>, steps: &mut Vec<Step>) {
        self.possible(state, steps);
    }

    fn next_state(&self, state: &State<N, K>, step: Step) -> Option<State<N, K>> {
        Some(self.after(state, step))
    }

    fn properties(&self) -> Vec<Property<Fence<N, K>>> {
        vec![
            Property::<Self>::always(UNIQUE, |_, state| {
                let returned = || state.attempts.iter().filter_map(Attempt::returned);
                returned()
                    .enumerate()
                    .all(|(index, token)| !returned().take(index).any(|other| other == token))
            }),
            Property::<Self>::always(ORDERED, |_, state| {
                let kept = |attempt: &Attempt| attempt.returned().is_none_or(|token| token > attempt.floor);
                state.attempts.iter().all(kept)
            }),
            Property::<Self>::sometimes(ALL_RETURN, |_, state| {
                state.attempts.iter().all(|attempt| attempt.returned().is_some())
            }),
            Property::<Self>::sometimes(WRITTEN_BACK, |_, state| {
                let written_back =
                    |attempt: &Attempt| matches!(attempt.phase, Phase::Returned { by: Way::WrittenBack, .. });
                state.attempts.iter().any(written_back)
            }),
        ]
    }

    fn format_step(&self, state: &State<N, K>, step: Step) -> Option<String> {
        Some(self.describe(state, step))
    }
}

/// Chosen so that many attempts return, and most restarts come between two of them.
impl<const N: usize, const K: usize> Wander for Fence<N, K> {
    fn weight(&self, step: &Step) -> u32 {
        match step {
            Step::Vote { answer: Answer::Heard, .. } | Step::Decide { .. } | Step::WriteBack { .. } => 8,
            Step::Vote { answer: Answer::Unheard, .. } | Step::Tick | Step::Begin { .. } => 2,
            Step::Restart { .. } | Step::SetClock { .. } | Step::Raise { .. } | Step::Refuse { .. } => 1,
        }
    }
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap_or(FencingToken::MAX)
}

/// Returns all multisets of `items`, each in the order of `items`.
fn multisets<T: Copy, const SIZE: usize>(items: &[T]) -> Vec<[T; SIZE]> {
    fn choose<T: Copy, const SIZE: usize>(items: &[T], chosen: &mut Vec<T>, all: &mut Vec<[T; SIZE]>) {
        if let Ok(full) = <[T; SIZE]>::try_from(chosen.as_slice()) {
            all.push(full);
            return;
        }
        for (index, &item) in items.iter().enumerate() {
            chosen.push(item);
            choose(&items[index..], chosen, all);
            chosen.pop();
        }
    }
    let mut all = Vec::new();
    choose(items, &mut Vec::with_capacity(SIZE), &mut all);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scheme that never issues a number would pass all other cases.
    #[test]
    fn an_undisturbed_attempt_that_hears_a_quorum_gets_a_number() {
        let model = Fence::<3, 1>::new(Scheme::Quorlock, World::timeless(&[0, 2]));
        for start in model.init_states() {
            for quorum in [[0, 1], [1, 0], [0, 2], [2, 0], [1, 2], [2, 1]] {
                let (attempt, answer) = (0, Answer::Heard);
                let votes = quorum.map(|node| Step::Vote { attempt, node, answer });
                let write_backs = quorum.map(|node| Step::WriteBack { attempt, node, answer });
                let mut state = start;
                for step in [&votes[..], &[Step::Decide { attempt }], &write_backs].concat() {
                    let mut possible = Vec::new();
                    model.actions(&state, &mut possible);
                    // No step is possible once it has returned.
                    if possible.contains(&step) {
                        state = model.next_state(&state, step).expect("it is possible");
                    }
                }
                let returned = state.attempts[0].returned();
                assert!(returned.is_some(), "asking {quorum:?} of {start} got {state:?}");
            }
        }
    }
}
