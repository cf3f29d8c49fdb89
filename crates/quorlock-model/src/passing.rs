//! A lease that is passed on within its process, by one round, beside somebody else who wants the lock.
//!
//! The rules about votes and deadlines are those of [`lock`](crate::lock), which knows nothing of passing
//! on; here they are the same code again, with what a node does to a transfer: it stores the next token
//! where it finds the one before, or nothing. A tick is so long that the margin of `Drift` costs nothing.
//!
//! As there, a request that is lost or refused is one that does not arrive, and an answer comes at once.

pub(crate) mod cases;

use std::fmt;

use stateright::{Model, Property, Representative};

use crate::clock::{deadline, moment};
use crate::common::is_majority;
use crate::names::name;

/// Nobody holds the lock beside somebody else.
pub(crate) const EXCLUSIVE: &str = "no two hold the lock at once";
/// Whoever was passed the lease holds it.
pub(crate) const PASSED: &str = "a lease may be passed on";
/// And others come after.
pub(crate) const FOLLOWED: &str = "others may come after whoever was passed the lease";

/// The rules: those of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    /// As the library does it.
    Quorlock,
    /// A node stores the next token whatever it finds.
    WhateverStands,
    /// One confirmation is enough: the one before had a quorum.
    Minority,
    /// The next lease ends so long after its votes as if it had been sent with them.
    FromTheVote,
    /// The one before goes on until the next one has begun, and a little longer.
    Overlapping,
}

/// The first holds the lock and passes it to the second; the third wants it, too.
const PARTIES: usize = 3;
const FIRST: usize = 0;
const NEXT: usize = 1;

/// The model, of `N` nodes.
#[derive(Clone, Debug)]
pub(crate) struct Passing<const N: usize> {
    /// The rules.
    pub(crate) scheme: Scheme,
    /// In ticks.
    pub(crate) ttl: u8,
}

/// What is where.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State<const N: usize> {
    clock: u8,
    /// Whose token stands there, and until when.
    nodes: [Option<(usize, u8)>; N],
    parties: [Party; PARTIES],
}

/// Somebody who wants the lock.
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
    /// Asks since then.
    Asking(u8),
    /// Has counted a quorum: valid from the time given on.
    Holds(u8),
    Over,
}

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Time goes on by a tick.
    Tick,
    /// Somebody asks for the lock.
    Ask { party: usize },
    /// The first passes its lease on.
    Pass,
    /// A request arrives.
    Vote { party: usize, node: usize },
    /// Somebody gives up, or gives the lock back.
    End { party: usize },
    /// A release arrives.
    Release { party: usize, node: usize },
}

impl<const N: usize> Passing<N> {
    fn is_valid(&self, sent: u8, clock: u8) -> bool {
        moment(clock) < deadline(sent, self.ttl)
    }

    /// Who relies on the lock.
    fn holds(&self, state: &State<N>, party: usize) -> bool {
        let overlaps = || {
            // It does not know yet that it is over.
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
            Some((holder, _)) => holder == party || (party == NEXT && self.scheme == Scheme::WhateverStands),
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
                // The second is served by whoever holds the lock in its process.
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
            Step::Tick => "time goes on by a tick".to_owned(),
            Step::Ask { party } => format!("{} asks for the lock", name(party)),
            Step::Pass => format!("{} passes its lease on to {}", name(FIRST), name(NEXT)),
            Step::Vote { party, node } => format!("node {node} votes for {}", name(party)),
            Step::End { party } => format!("{} gives up, or gives the lock back", name(party)),
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
        write!(f, "{PARTIES} who want the lock, {N} nodes, and nobody has asked")
    }
}
