//! Order among those who wait: nodes that each serve only the head of a queue of their own wait for each
//! other for ever; tickets that are the same everywhere, and votes that are given back, do not.
//!
//! There is no time, and nobody who holds the lock gives it back: what is asked is whether somebody gets
//! it. A node hears of clients in any order, and each is heard of everywhere in the end.

pub mod cases;

use std::fmt;

use quorlock_protocol::{Quorum, Tally, Ticket, Verdict};
use stateright::{Model, Property, Representative};

use crate::names::name;

/// Whatever has happened, somebody has the lock or something can still happen.
pub const GOES_ON: &str = "those who wait do not all wait for each other";
/// Somebody gets it.
pub const SERVED: &str = "somebody may get the lock";

/// How a node decides whom to vote for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// As the library's `fair` does it: for nobody while it knows of an earlier ticket, and whoever has
    /// no quorum gives its votes back and asks again.
    Tickets,
    /// For whoever came first at this node, and for nobody else before that one leaves.
    OwnHead,
}

/// The model, of `N` nodes and `K` clients, whose tickets are in the order of their numbers.
#[derive(Clone, Debug)]
pub struct Order<const N: usize, const K: usize> {
    /// How a node decides.
    pub scheme: Scheme,
}

/// What is where.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State<const N: usize, const K: usize> {
    /// A bit for each client that the node has heard of.
    known: [u8; N],
    /// For whom it has voted.
    votes: [Option<usize>; N],
}

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "whose, and where")]
pub enum Step {
    /// A node hears of a client for the first time.
    Join { client: usize, node: usize },
    /// A client that asks again gets a vote.
    Vote { client: usize, node: usize },
    /// A client without a quorum gives its votes back.
    GiveBack { client: usize },
}

impl<const N: usize, const K: usize> Order<N, K> {
    fn ticket(client: usize) -> Ticket {
        Ticket::new(client as u64, 1)
    }

    fn votes_for(&self, state: &State<N, K>, client: usize, node: usize) -> bool {
        let earlier = |other: usize| {
            state.known[node] & (1 << other) != 0 && Self::ticket(other) < Self::ticket(client)
        };
        state.votes[node].is_none() && (self.scheme == Scheme::OwnHead || !(0..K).any(earlier))
    }

    fn holds(state: &State<N, K>, client: usize) -> bool {
        let mut tally = Tally::new(Quorum::majority(N));
        state.votes.iter().for_each(|vote| if *vote == Some(client) { tally.grant() } else { tally.deny() });
        tally.verdict() == Some(Verdict::Won)
    }

    fn is_decided(state: &State<N, K>) -> bool {
        (0..K).any(|client| Self::holds(state, client))
    }
}

impl<const N: usize, const K: usize> Model for Order<N, K> {
    type State = State<N, K>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<N, K>> {
        vec![State { known: [0; N], votes: [None; N] }]
    }

    fn actions(&self, state: &State<N, K>, steps: &mut Vec<Step>) {
        if Self::is_decided(state) {
            return;
        }
        for client in 0..K {
            for node in 0..N {
                if state.known[node] & (1 << client) == 0 {
                    steps.push(Step::Join { client, node });
                } else if self.votes_for(state, client, node) {
                    steps.push(Step::Vote { client, node });
                }
            }
            // It has lost: too many nodes have voted for others.
            let others = state.votes.iter().flatten().filter(|holder| **holder != client).count();
            let has_any = state.votes.contains(&Some(client));
            if self.scheme == Scheme::Tickets && has_any && others >= Quorum::majority(N).blocking() {
                steps.push(Step::GiveBack { client });
            }
        }
    }

    fn next_state(&self, state: &State<N, K>, step: Step) -> Option<State<N, K>> {
        let mut next = state.clone();
        match step {
            Step::Join { client, node } => {
                next.known[node] |= 1 << client;
                if self.votes_for(state, client, node) {
                    next.votes[node] = Some(client);
                }
            }
            Step::Vote { client, node } => next.votes[node] = Some(client),
            Step::GiveBack { client } => {
                next.votes = next.votes.map(|vote| vote.filter(|holder| *holder != client));
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Order<N, K>>> {
        vec![
            Property::always(GOES_ON, |model: &Order<N, K>, state: &State<N, K>| {
                let mut steps = Vec::new();
                model.actions(state, &mut steps);
                Self::is_decided(state) || !steps.is_empty()
            }),
            Property::sometimes(SERVED, |_: &Order<N, K>, state: &State<N, K>| Self::is_decided(state)),
        ]
    }

    fn format_step(&self, _: &State<N, K>, step: Step) -> Option<String> {
        Some(match step {
            Step::Join { client, node } => format!("node {node} hears of {}", name(client)),
            Step::Vote { client, node } => format!("node {node} votes for {}", name(client)),
            Step::GiveBack { client } => format!("{} gives its votes back", name(client)),
        })
    }
}

impl<const N: usize, const K: usize> Representative for State<N, K> {
    fn representative(&self) -> State<N, K> {
        self.clone()
    }
}

impl<const N: usize, const K: usize> fmt::Display for State<N, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{K} who wait, {N} nodes, and no node has heard of anybody")
    }
}
