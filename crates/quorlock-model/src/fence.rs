//! Fencing tokens: no number is handed out twice, and whoever comes later has the larger one.
//!
//! What is checked is the code of `quorlock_protocol`: `Quorum`, `Tally`, `FenceHint`, `FenceVotes`,
//! `FencingToken::may_follow` and `Quarantine` decide here as they do in the library. The model adds
//! what the world may do to it: requests arrive in any order, late, or never; answers are lost;
//! clients stop; keys vanish at any time; nodes restart and have forgotten everything.
//!
//! Much of this is there without a step of its own, which keeps the number of states small:
//!
//! | what happens | how it is in the model |
//! |---|---|
//! | a request is lost | it does not arrive |
//! | a client stops, or gives up | the attempt takes no further step; its requests may still arrive |
//! | an answer is lost, or comes after the decision | the vote is granted *unheard* |
//! | an answer comes late, before the decision | the same as at once: nothing is decided from it earlier |
//! | an acknowledgement of a write-back is lost | the same as heard, which only lets more attempts return |
//! | a key vanishes, is released, expires | the next vote at its node is granted, whoever held it |
//! | a vote is refused | the same as a request that is lost, but that it may raise the counter |
//! | a counter ends | at once when the clock of its node allows it (rule F-9) |
//! | an attempt begins | without clocks: with its first vote; any earlier, less is promised to it |
//!
//! A key that vanishes earlier than that only stops write-backs, as does losing them. Nor is there
//! anything to be seen in requests that can change nothing for an attempt still to return, so they
//! do not arrive either. [`Detail::Literal`] does without most of these shortcuts, to see that they
//! hide nothing.

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

/// No number is handed out twice.
pub(crate) const UNIQUE: &str = "no number is handed out twice";
/// Whoever begins after somebody has returned gets the larger number.
pub(crate) const ORDERED: &str = "whoever comes later has the larger number";
/// All attempts may return.
pub(crate) const ALL_RETURN: &str = "all attempts may return";
/// A number may be carried by a quorum that was not drawn by one.
pub(crate) const WRITTEN_BACK: &str = "a number may be written back";

/// The model, of `N` nodes and `K` attempts.
#[derive(Clone, Debug)]
pub(crate) struct Fence<const N: usize, const K: usize> {
    quorum: Quorum,
    scheme: Scheme,
    world: World,
}

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Time goes on by a tick.
    Tick,
    /// A node restarts, and has forgotten everything.
    Restart { node: usize },
    /// A node's wall clock is put forward.
    PutForward { node: usize },
    /// It is put back, to where it was.
    PutBack { node: usize },
    /// An attempt reads its clock and asks all nodes.
    Begin { attempt: usize },
    /// A request for a vote arrives and is granted.
    Vote { attempt: usize, node: usize, answer: Answer },
    /// A request for a vote arrives, is refused, and raises the counter all the same: it may ask again.
    Refuse { attempt: usize, node: usize },
    /// An attempt with a quorum's votes decides on its number.
    Decide { attempt: usize },
    /// A request to carry a number arrives and is granted.
    WriteBack { attempt: usize, node: usize, answer: Answer },
    /// A node's key vanishes: it is released, has expired, or is lost.
    Vanish { node: usize },
}

impl<const N: usize, const K: usize> Fence<N, K> {
    /// Tokens by this scheme, in this world.
    pub(crate) fn new(scheme: Scheme, world: World) -> Fence<N, K> {
        Fence { quorum: Quorum::majority(N), scheme, world }
    }
}

impl<const N: usize, const K: usize> Model for Fence<N, K> {
    type State = State<N, K>;
    type Action = Step;

    /// One of each that differ by more than the names of nodes and attempts.
    fn init_states(&self) -> Vec<State<N, K>> {
        let numbers: Vec<u64> = (0..=self.world.counters_up_to).collect();
        let counters = multisets::<u64, N>(&numbers);
        let clocks = multisets::<u8, K>(&self.world.clocks_ahead);
        let start =
            |counters: &[u64; N], ahead| State::new(counters.map(token), self.world.nodes_ahead, ahead);
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
        Some(self.tell(state, step))
    }
}

/// So that many attempts return, and most restarts come between two of them.
impl<const N: usize, const K: usize> Wander for Fence<N, K> {
    fn weight(&self, step: &Step) -> u32 {
        match step {
            Step::Vote { answer: Answer::Heard, .. } | Step::Decide { .. } | Step::WriteBack { .. } => 8,
            Step::Vote { answer: Answer::Unheard, .. } | Step::Tick | Step::Begin { .. } => 2,
            Step::Restart { .. }
            | Step::PutForward { .. }
            | Step::PutBack { .. }
            | Step::Vanish { .. }
            | Step::Refuse { .. } => 1,
        }
    }
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap_or(FencingToken::MAX)
}

/// All ways to choose from `items`, each in the order of `items`.
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
#[expect(clippy::expect_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Without this, a scheme that hands nothing out would pass.
    #[test]
    fn whoever_hears_a_quorum_and_is_not_disturbed_gets_a_number() {
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
                    // Nothing is possible any more once it has returned.
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
