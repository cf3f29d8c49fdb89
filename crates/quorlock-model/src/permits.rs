//! A semaphore: never more holders than permits.
//!
//! A node is no record here, only the votes that it has given: how the lock of one permit behaves is checked by
//! [`lock`](crate::lock), and a node stores the limit beside its records.
//!
//! `Quorum` and `Tally` of `quorlock_protocol` decide which clients hold a permit. The model adds
//! what may happen: clients choose a slot, ask nodes in any order, get no answer from some, give
//! up, and choose again. There is no time: leases and limits expire in a step of their own, a limit
//! only after all votes granted under it (rule P-1).

use std::fmt;

use stateright::{Model, Property, Representative};

use crate::common::is_majority;
use crate::names::name;

/// There are no more holders than any of them believes there are permits.
pub(crate) const BOUNDED: &str = "there are no more holders than permits";
pub(crate) const FULL: &str = "all permits may be held";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    /// Each permit is a separate lock, and a node stores one limit, as in the library.
    Slots,
    /// A node does not compare limits.
    AnyLimit,
    /// A node counts: it votes for as many clients as there are permits.
    PerNode,
}

/// The model of `N` nodes and `K` clients.
#[derive(Clone, Debug)]
pub(crate) struct Permits<const N: usize, const K: usize> {
    pub(crate) scheme: Scheme,
    /// The number of permits each client believes in.
    pub(crate) limits: [u8; K],
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State<const N: usize, const K: usize> {
    clients: [Client; K],
    /// The limit stored on each node; 0 if none.
    limits: [u8; N],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Client {
    slot: u8,
    /// A bit for each node.
    votes: u8,
}

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A client's permit is given up or expires, and it chooses this slot.
    Choose { client: usize, slot: u8 },
    /// A node grants its vote.
    Vote { client: usize, node: usize },
    /// The limit on a node expires.
    Forget { node: usize },
}

impl<const N: usize, const K: usize> Permits<N, K> {
    /// Whether the clients' limits differ; otherwise nodes need not compare them.
    fn differ(&self) -> bool {
        self.limits.iter().any(|limit| *limit != self.limits[0])
    }

    fn grants(&self, state: &State<N, K>, client: usize, node: usize) -> bool {
        let here = |other: &&Client| other.votes & (1 << node) != 0;
        let asks = state.clients[client];
        let mut others = state.clients.iter().filter(here);
        if here(&&asks) {
            return false;
        }
        let known = state.limits[node] == 0 || state.limits[node] == self.limits[client];
        match self.scheme {
            Scheme::PerNode => others.count() < usize::from(self.limits[client]),
            Scheme::Slots => known && !others.any(|other| other.slot == asks.slot),
            Scheme::AnyLimit => !others.any(|other| other.slot == asks.slot),
        }
    }

    /// Returns the limit that each holder believes in.
    fn holders(&self, state: &State<N, K>) -> Vec<u8> {
        let holds = |(_, client): &(&u8, &Client)| is_majority(N, client.votes);
        self.limits.iter().zip(&state.clients).filter(holds).map(|(limit, _)| *limit).collect()
    }
}

impl<const N: usize, const K: usize> Model for Permits<N, K> {
    type State = State<N, K>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<N, K>> {
        vec![State { clients: [Client::default(); K], limits: [0; N] }]
    }

    fn actions(&self, state: &State<N, K>, steps: &mut Vec<Step>) {
        for client in 0..K {
            let slots = if self.scheme == Scheme::PerNode { 1 } else { self.limits[client] };
            let asks = state.clients[client];
            let choices = (0..slots).filter(|slot| *slot != asks.slot || asks.votes != 0);
            steps.extend(choices.map(|slot| Step::Choose { client, slot }));
            let nodes = (0..N).filter(|node| self.grants(state, client, *node));
            steps.extend(nodes.map(|node| Step::Vote { client, node }));
        }
        let unused = |node: &usize| {
            state.limits[*node] != 0 && state.clients.iter().all(|client| client.votes & (1 << node) == 0)
        };
        steps.extend((0..N).filter(unused).map(|node| Step::Forget { node }));
    }

    fn next_state(&self, state: &State<N, K>, step: Step) -> Option<State<N, K>> {
        let mut next = state.clone();
        match step {
            Step::Choose { client, slot } => next.clients[client] = Client { slot, votes: 0 },
            Step::Vote { client, node } => {
                next.clients[client].votes |= 1 << node;
                if self.differ() {
                    next.limits[node] = self.limits[client];
                }
            }
            Step::Forget { node } => next.limits[node] = 0,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Permits<N, K>>> {
        vec![
            Property::always(BOUNDED, |model, state| {
                let holders = model.holders(state);
                holders.iter().all(|limit| holders.len() <= usize::from(*limit))
            }),
            Property::sometimes(FULL, |model, state| {
                let most = model.limits.iter().copied().max().unwrap_or(0);
                model.holders(state).len() == usize::from(most)
            }),
        ]
    }

    fn format_step(&self, _: &State<N, K>, step: Step) -> Option<String> {
        Some(match step {
            Step::Choose { client, slot } => format!("{} wants slot {slot}", name(client)),
            Step::Vote { client, node } => format!("node {} votes for {}", node + 1, name(client)),
            Step::Forget { node } => format!("the limit on node {} expires", node + 1),
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
        write!(f, "{K} clients, {N} nodes, and no request")
    }
}

cases! {
    holds prove slots_admit_no_third_to_two_permits_on_five_nodes:
        Permits::<5, 3> { scheme: Scheme::Slots, limits: [2; 3] };
    violated hunt nodes_that_count_admit_a_third_to_two_permits:
        Permits::<5, 3> { scheme: Scheme::PerNode, limits: [2; 3] };
    holds prove clients_that_disagree_about_the_limit_never_hold_permits_together:
        Permits::<3, 3> { scheme: Scheme::Slots, limits: [1, 2, 2] };
    violated hunt limits_that_are_not_compared_admit_too_many:
        Permits::<3, 3> { scheme: Scheme::AnyLimit, limits: [1, 2, 2] };
}
