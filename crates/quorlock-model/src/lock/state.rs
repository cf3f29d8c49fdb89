//! The state of the nodes, the attempts, and the requests between them.

use std::time::Duration;

use quorlock_protocol::Moment;
use stateright::Representative;

use crate::common::Past;
use crate::names::least;
use crate::record::Kept;

/// There is no global time in it, only ages and remaining times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State<const N: usize, const K: usize> {
    pub(crate) restarts: u8,
    pub(crate) puts_forward: u8,
    pub(crate) jumps: u8,
    pub(crate) nodes: [Node<K>; N],
    pub(crate) attempts: [Attempt; K],
}

/// A node, and the requests to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node<const K: usize> {
    pub(crate) kept: Kept,
    /// Whether it keeps its data across restarts.
    pub(crate) remembers: bool,
    /// How long ago it restarted without data; `None` once that does not matter.
    pub(crate) age: Option<u8>,
    /// Whether its calendar clock has stepped forwards since.
    pub(crate) forward: bool,
    /// The uptime noted by the first client since then, which grows with time.
    pub(crate) known: Option<Duration>,
    /// How far its clock has run ahead.
    pub(crate) ahead: u8,
    pub(crate) mail: [Mail; K],
}

/// An attempt's requests to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Mail {
    pub(crate) vote: Request,
    /// The latest renewal.
    pub(crate) renewal: Request,
    /// How many requests of earlier renewals are in flight.
    pub(crate) late: u8,
}

/// A request to a node, and the answer to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) enum Request {
    #[default]
    Unsent,
    /// In flight, or lost.
    Unarrived(Witness),
    /// Granted and counted.
    Counted,
    /// Of no further use.
    Spent,
}

/// What the connection of a request reports about the process at its other end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Witness {
    /// Its uptime was long enough when the request was sent.
    Old,
    /// It was not, or the process had not started yet.
    Young,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Attempt {
    /// Its own clock, which starts when it asks for votes.
    pub(crate) clock: u8,
    /// How many ticks its clock has missed.
    pub(crate) behind: u8,
    pub(crate) phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Phase {
    /// It has not begun.
    Idle,
    /// It collects votes.
    Voting,
    /// A lease, which may have ended unnoticed.
    Holding(Lease),
    /// Given up or released. Its requests may still arrive.
    Over { past: Past },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Lease {
    /// The deadline, by the attempt's own clock.
    pub(crate) until: Moment,
    /// How many renewals have been sent.
    pub(crate) renewals: u8,
    /// The undecided renewal.
    pub(crate) renewal: Option<Renewal>,
    /// A caller has observed its end.
    pub(crate) seen_to_end: bool,
    /// Another attempt has asserted the lock since it began.
    pub(crate) interrupted: bool,
}

/// An undecided renewal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Renewal {
    /// When it was sent, by the attempt's own clock.
    pub(crate) sent: u8,
    /// When a quorum had acknowledged it; the attempt is about to count it.
    pub(crate) carried: Option<u8>,
}

impl Attempt {
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match &self.phase {
            Phase::Holding(lease) => Some(lease),
            Phase::Idle | Phase::Voting | Phase::Over { .. } => None,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Voting | Phase::Holding(_))
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over { .. })
    }
}

impl<const N: usize, const K: usize> State<N, K> {
    pub(crate) fn new() -> State<N, K> {
        State {
            restarts: 0,
            puts_forward: 0,
            jumps: 0,
            nodes: [Node {
                kept: Kept::nothing(),
                remembers: false,
                age: None,
                forward: false,
                known: None,
                ahead: 0,
                mail: [Mail::default(); K],
            }; N],
            attempts: [Attempt { clock: 0, behind: 0, phase: Phase::Idle }; K],
        }
    }

    /// Renames the attempts, where `order[new] = old`, and sorts the nodes.
    fn renamed(&self, order: [usize; K]) -> State<N, K> {
        let mut state = State {
            nodes: self.nodes.map(|node| Node {
                kept: node.kept.renamed(order),
                mail: order.map(|old| node.mail[old]),
                ..node
            }),
            attempts: order.map(|old| self.attempts[old]),
            ..*self
        };
        state.nodes.sort_unstable();
        state
    }
}

impl<const N: usize, const K: usize> Default for State<N, K> {
    fn default() -> State<N, K> {
        State::new()
    }
}

/// The names of nodes and attempts make no difference.
impl<const N: usize, const K: usize> Representative for State<N, K> {
    fn representative(&self) -> State<N, K> {
        least(|order| Some(self.renamed(order))).unwrap_or(*self)
    }
}
