//! A lease passed on within its process, in one round, while another client wants the lock.
//!
//! The rules about votes and deadlines are those of [`lock`](crate::lock), which does not model
//! passing on; a node executes a transfer if it has the previous token or no key. A tick is so long
//! that the margin of `Drift` costs nothing.
//!
//! As there, a lost or refused request does not arrive, and an answer arrives immediately.

pub(crate) mod cases;

use std::fmt;

use stateright::{Model, Property, Representative};

use crate::clock::{deadline, moment};
use crate::common::is_majority;
use crate::names::name;

pub(crate) const EXCLUSIVE: &str = "no two hold the lock at the same time";
pub(crate) const PASSED: &str = "a lease may be passed on";
pub(crate) const FOLLOWED: &str = "another may hold the lock after a lease was passed on";

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// A node stores the next token whatever key it has.
    AnyKey,
    /// One confirmation is enough, because the previous holder had a quorum.
    Minority,
    /// The next lease counts from its votes instead of from when they were requested.
    FromTheVote,
    /// The previous holder continues until shortly after the next lease has begun.
    Overlapping,
}

/// The first holds the lock and passes it to the second; the third wants it as well.
const PARTIES: usize = 3;
const FIRST: usize = 0;
const NEXT: usize = 1;

/// The model of `N` nodes.
#[derive(Clone, Debug)]
pub(crate) struct Passing<const N: usize> {
    pub(crate) scheme: Scheme,
    /// In ticks.
    pub(crate) ttl: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State<const N: usize> {
    clock: u8,
    /// The holder of each node's key, and when it expires.
    nodes: [Option<(usize, u8)>; N],
    parties: [Party; PARTIES],
}

/// A client that wants the lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Party {
    phase: Phase,
    /// A bit for each node that has voted for it.
    votes: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum Phase {
    #[default]
    Idle,
    /// Since this time.
    Asking(u8),
    /// With a quorum; valid from this time.
    Holds(u8),
    Over,
}

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A tick passes.
    Tick,
    /// A client asks for the lock.
    Ask { party: usize },
    /// The first passes its lease on.
    Pass,
    /// A request arrives.
    Vote { party: usize, node: usize },
    /// A client releases the lock, or gives up.
    End { party: usize },
    /// A release arrives.
    Release { party: usize, node: usize },
}

impl<const N: usize> Passing<N> {
    fn is_valid(&self, sent: u8, clock: u8) -> bool {
        moment(clock) < deadline(sent, self.ttl)
    }

    /// Whether it relies on the lock.
    fn holds(&self, state: &State<N>, party: usize) -> bool {
        let overlaps = || {
            // It does not know yet that its lease has ended.
            self.scheme == Scheme::Overlapping
                && party == FIRST
                && state.parties[FIRST].phase == Phase::Over
                && matches!(state.parties[NEXT].phase, Phase::Holds(sent) if sent == state.clock)
        };
        matches!(state.parties[party].phase, Phase::Holds(sent) if self.is_valid(sent, state.clock))
            || overlaps()
    }

    fn grants(&self, state: &State<N>, party: usize, node: usize) -> bool {
        match state.nodes[node] {
            None => true,
            Some((FIRST, _)) if party == NEXT => true,
            Some((holder, _)) => holder == party || (party == NEXT && self.scheme == Scheme::AnyKey),
        }
    }

    fn carried(&self, party: usize, votes: u8) -> bool {
        let minority = party == NEXT && self.scheme == Scheme::Minority;
        (minority && votes != 0) || is_majority(N, votes)
    }
}

impl<const N: usize> Model for Passing<N> {
    type State = State<N>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<N>> {
        vec![State { clock: 0, nodes: [None; N], parties: [Party::default(); PARTIES] }]
    }

    fn actions(&self, state: &State<N>, steps: &mut Vec<Step>) {
        if state.clock < 3 * self.ttl {
            steps.push(Step::Tick);
        }
        for (party, Party { phase, votes }) in state.parties.into_iter().enumerate() {
            match phase {
                // The second is served by the holder in its process.
                Phase::Idle if party != NEXT => steps.push(Step::Ask { party }),
                Phase::Asking(_) | Phase::Holds(_) => {
                    let asked = |node: &usize| votes & (1 << node) == 0 && self.grants(state, party, *node);
                    steps.extend((0..N).filter(asked).map(|node| Step::Vote { party, node }));
                    steps.push(Step::End { party });
                }
                Phase::Over => {
                    let has = |node: &usize| state.nodes[*node].is_some_and(|(holder, _)| holder == party);
                    steps.extend((0..N).filter(has).map(|node| Step::Release { party, node }));
                }
                Phase::Idle => {}
            }
        }
        if self.holds(state, FIRST) && state.parties[NEXT].phase == Phase::Idle {
            steps.push(Step::Pass);
        }
    }

    fn next_state(&self, state: &State<N>, step: Step) -> Option<State<N>> {
        let mut next = state.clone();
        match step {
            Step::Tick => {
                next.clock += 1;
                for node in &mut next.nodes {
                    node.take_if(|(_, until)| *until <= next.clock);
                }
            }
            Step::Ask { party } => next.parties[party].phase = Phase::Asking(next.clock),
            Step::Pass => {
                next.parties[FIRST].phase = Phase::Over;
                next.parties[NEXT].phase = Phase::Asking(next.clock);
            }
            Step::Vote { party, node } => {
                next.nodes[node] = Some((party, next.clock + self.ttl));
                let one = &mut next.parties[party];
                one.votes |= 1 << node;
                if let Phase::Asking(sent) = one.phase
                    && self.carried(party, one.votes)
                {
                    let late = party == NEXT && self.scheme == Scheme::FromTheVote;
                    let from = if late { next.clock } else { sent };
                    one.phase =
                        if self.is_valid(from, next.clock) { Phase::Holds(from) } else { Phase::Over };
                }
            }
            Step::End { party } => next.parties[party].phase = Phase::Over,
            Step::Release { node, .. } => next.nodes[node] = None,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Passing<N>>> {
        vec![
            Property::always(EXCLUSIVE, |model: &Passing<N>, state: &State<N>| {
                (0..PARTIES).filter(|party| model.holds(state, *party)).count() < 2
            }),
            Property::sometimes(PASSED, |model: &Passing<N>, state: &State<N>| model.holds(state, NEXT)),
            Property::sometimes(FOLLOWED, |model: &Passing<N>, state: &State<N>| {
                state.parties[NEXT].phase == Phase::Over
                    && model.carried(FIRST, state.parties[NEXT].votes)
                    && model.holds(state, NEXT + 1)
            }),
        ]
    }

    fn format_step(&self, _: &State<N>, step: Step) -> Option<String> {
        Some(match step {
            Step::Tick => "a tick passes".to_owned(),
            Step::Ask { party } => format!("{} asks for the lock", name(party)),
            Step::Pass => format!("{} passes its lease on to {}", name(FIRST), name(NEXT)),
            Step::Vote { party, node } => format!("node {node} votes for {}", name(party)),
            Step::End { party } => format!("{} releases the lock, or gives up", name(party)),
            Step::Release { party, node } => format!("the release of {} arrives at node {node}", name(party)),
        })
    }
}

impl<const N: usize> Representative for State<N> {
    fn representative(&self) -> State<N> {
        self.clone()
    }
}

impl<const N: usize> fmt::Display for State<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PARTIES} clients that want the lock, {N} nodes, and no request")
    }
}
