//! What the nodes and the attempts know, and what is on its way between them.

use std::fmt;

use quorlock_protocol::{Mode, Moment};
use stateright::Representative;

use crate::common::Mail;

/// Everything, at one moment: `N` nodes and `K` attempts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State<const N: usize, const K: usize> {
    /// The nodes.
    pub(crate) nodes: [Node<K>; N],
    /// The attempts.
    pub(crate) attempts: [Attempt; K],
}

/// A node, and what is on its way to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node<const K: usize> {
    /// What stands under the key, and for how many ticks it still lives.
    pub(crate) key: Option<(Holder, u8)>,
    /// Those who share it, and for how much longer each.
    pub(crate) shares: [Option<u8>; K],
    /// How many there are, for a node that only counts.
    pub(crate) count: u8,
    /// Which writers it knows to wait.
    pub(crate) intents: [bool; K],
    /// The requests of each attempt to this node.
    pub(crate) mail: [Mail; K],
}

/// What stands under a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Holder {
    /// An attempt's token.
    Alone(usize),
    /// The marker.
    Readers,
}

/// An attempt at the lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Attempt {
    /// What its clock says: zero is when it asked for votes.
    pub(crate) clock: u8,
    /// The writer that was known to wait when it began, and still does.
    pub(crate) behind: Option<usize>,
    /// How far it has come.
    pub(crate) phase: Phase,
}

/// How far an attempt has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Phase {
    /// It has not begun.
    Idle,
    /// It collects votes.
    Voting,
    /// It has become a lease, which may have ended without anybody having noticed.
    Holding(Lease),
    /// It has given up, or given back.
    Over { held: bool },
}

/// A lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Lease {
    /// Until when it may be trusted, by the attempt's own clock.
    pub(crate) until: Moment,
    /// What it claims.
    pub(crate) mode: Mode,
    /// How many renewals have been sent.
    pub(crate) renewals: u8,
    /// When the one was sent that is not decided yet.
    pub(crate) renewing: Option<u8>,
}

impl Attempt {
    /// The lease that it has become.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match &self.phase {
            Phase::Holding(lease) => Some(lease),
            Phase::Idle | Phase::Voting | Phase::Over { .. } => None,
        }
    }
}

impl<const N: usize, const K: usize> State<N, K> {
    /// Nothing has happened.
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

/// Which node is which makes no difference.
impl<const N: usize, const K: usize> Representative for State<N, K> {
    fn representative(&self) -> State<N, K> {
        let mut other = *self;
        other.nodes.sort_unstable();
        other
    }
}

impl<const N: usize, const K: usize> fmt::Display for State<N, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{N} nodes, {K} attempts, and nothing has happened yet")
    }
}
