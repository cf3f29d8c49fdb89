//! What the nodes and the attempts know, and what is on its way between them.

use std::fmt;

use quorlock_protocol::Moment;
use stateright::Representative;

use crate::common::Mail;

/// Everything, at one moment: `N` nodes, `K` attempts and `L` locks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State<const N: usize, const K: usize, const L: usize> {
    /// The nodes.
    pub(crate) nodes: [Node<K, L>; N],
    /// The attempts.
    pub(crate) attempts: [Attempt; K],
    /// How many keys may still be lost.
    pub(crate) losses: u8,
}

/// A node, and what is on its way to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node<const K: usize, const L: usize> {
    /// Whose token stands under the key of each lock, and for how many ticks it still lives.
    pub(crate) keys: [Option<(usize, u8)>; L],
    /// The requests of each attempt to this node.
    pub(crate) mail: [Mail; K],
}

/// An attempt at some of the locks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Attempt {
    /// What its clock says: zero is when it asked for votes.
    pub(crate) clock: u8,
    /// How far it has come.
    pub(crate) phase: Phase,
    /// A node has lost one of its keys, and since then too few have all of them: it cannot know, and may
    /// be trusted until then by what it was told before.
    pub(crate) robbed: Option<Moment>,
}

/// How far an attempt has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Phase {
    /// It has not begun.
    Idle,
    /// It collects votes.
    Voting {
        /// How many of its locks it has, where it takes one after the other.
        taken: usize,
    },
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
            Phase::Idle | Phase::Voting { .. } | Phase::Over { .. } => None,
        }
    }

    /// How many locks it has, if it waits for votes.
    pub(crate) fn taken(&self) -> Option<usize> {
        if let Phase::Voting { taken } = self.phase { Some(taken) } else { None }
    }
}

impl<const N: usize, const K: usize, const L: usize> State<N, K, L> {
    /// Nothing has happened, and so many keys may be lost.
    pub(crate) fn new(losses: u8) -> State<N, K, L> {
        let node = Node { keys: [None; L], mail: [Mail::default(); K] };
        State {
            nodes: [node; N],
            attempts: [Attempt { clock: 0, phase: Phase::Idle, robbed: None }; K],
            losses,
        }
    }
}

/// Which node is which makes no difference.
impl<const N: usize, const K: usize, const L: usize> Representative for State<N, K, L> {
    fn representative(&self) -> State<N, K, L> {
        let mut other = *self;
        other.nodes.sort_unstable();
        other
    }
}

impl<const N: usize, const K: usize, const L: usize> fmt::Display for State<N, K, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{N} nodes, {L} locks, {K} attempts, and nothing has happened yet")
    }
}
