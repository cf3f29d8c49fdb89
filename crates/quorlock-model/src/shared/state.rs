//! The state of the nodes, the attempts, and the requests between them.

use std::fmt;

use quorlock_protocol::{Mode, Moment};
use stateright::Representative;

use crate::common::Mail;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State<const N: usize, const K: usize> {
    pub(crate) nodes: [Node<K>; N],
    pub(crate) attempts: [Attempt; K],
}

/// A node, and the requests to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node<const K: usize> {
    /// The content of the key, and its remaining ticks.
    pub(crate) key: Option<(Holder, u8)>,
    /// The remaining ticks of each share.
    pub(crate) shares: [Option<u8>; K],
    /// The number of readers, for a node that only counts.
    pub(crate) count: u8,
    /// The writers whose intent it has.
    pub(crate) intents: [bool; K],
    pub(crate) mail: [Mail; K],
}

/// The content of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Holder {
    /// The token of an attempt.
    Alone(usize),
    /// The marker.
    Readers,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Attempt {
    /// Its own clock, which starts when it asks for votes.
    pub(crate) clock: u8,
    /// The writer that was waiting when it began, and still is.
    pub(crate) behind: Option<usize>,
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
    /// Given up or released.
    Over { held: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Lease {
    /// The deadline, by the attempt's own clock.
    pub(crate) until: Moment,
    pub(crate) mode: Mode,
    /// How many renewals have been sent.
    pub(crate) renewals: u8,
    /// When the undecided renewal was sent.
    pub(crate) renewing: Option<u8>,
}

impl Attempt {
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match &self.phase {
            Phase::Holding(lease) => Some(lease),
            Phase::Idle | Phase::Voting | Phase::Over { .. } => None,
        }
    }
}

impl<const N: usize, const K: usize> State<N, K> {
    pub(crate) fn new() -> State<N, K> {
        let node =
            Node { key: None, shares: [None; K], count: 0, intents: [false; K], mail: [Mail::default(); K] };
        State { nodes: [node; N], attempts: [Attempt { clock: 0, behind: None, phase: Phase::Idle }; K] }
    }
}

impl<const N: usize, const K: usize> Default for State<N, K> {
    fn default() -> State<N, K> {
        State::new()
    }
}

/// The names of nodes make no difference.
impl<const N: usize, const K: usize> Representative for State<N, K> {
    fn representative(&self) -> State<N, K> {
        let mut other = *self;
        other.nodes.sort_unstable();
        other
    }
}

impl<const N: usize, const K: usize> fmt::Display for State<N, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{N} nodes, {K} attempts")
    }
}
