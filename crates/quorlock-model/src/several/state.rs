//! The state of the nodes, the attempts, and the requests between them.

use std::fmt;

use quorlock_protocol::Moment;
use stateright::Representative;

use crate::common::Mail;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State<const N: usize, const K: usize, const L: usize> {
    pub(crate) nodes: [Node<K, L>; N],
    pub(crate) attempts: [Attempt; K],
    /// How many keys may still be lost.
    pub(crate) losses: u8,
}

/// A node, and the requests to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node<const K: usize, const L: usize> {
    /// The holder of each lock's key, and its remaining ticks.
    pub(crate) keys: [Option<(usize, u8)>; L],
    pub(crate) mail: [Mail; K],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Attempt {
    /// Its own clock, which starts when it asks for votes.
    pub(crate) clock: u8,
    pub(crate) phase: Phase,
    /// Set after a node has lost one of its keys, and too few have all of them. It cannot know, and
    /// may rely on this deadline, the last one from before.
    pub(crate) robbed: Option<Moment>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Phase {
    /// It has not begun.
    Idle,
    /// It collects votes.
    Voting {
        /// How many of its locks it has, if it takes one after the other.
        taken: usize,
    },
    /// A lease, which may have ended unnoticed.
    Holding(Lease),
    /// Given up or released.
    Over { held: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Lease {
    /// The deadline, by the attempt's own clock.
    pub(crate) until: Moment,
    /// How many renewals have been sent.
    pub(crate) renewals: u8,
    /// When the undecided renewal was sent.
    pub(crate) renewing: Option<u8>,
}

impl Attempt {
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match &self.phase {
            Phase::Holding(lease) => Some(lease),
            Phase::Idle | Phase::Voting { .. } | Phase::Over { .. } => None,
        }
    }

    /// Returns how many locks it has, if it waits for votes.
    pub(crate) fn taken(&self) -> Option<usize> {
        if let Phase::Voting { taken } = self.phase { Some(taken) } else { None }
    }
}

impl<const N: usize, const K: usize, const L: usize> State<N, K, L> {
    pub(crate) fn new(losses: u8) -> State<N, K, L> {
        let node = Node { keys: [None; L], mail: [Mail::default(); K] };
        State {
            nodes: [node; N],
            attempts: [Attempt { clock: 0, phase: Phase::Idle, robbed: None }; K],
            losses,
        }
    }
}

/// The names of nodes make no difference.
impl<const N: usize, const K: usize, const L: usize> Representative for State<N, K, L> {
    fn representative(&self) -> State<N, K, L> {
        let mut other = *self;
        other.nodes.sort_unstable();
        other
    }
}

impl<const N: usize, const K: usize, const L: usize> fmt::Display for State<N, K, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{N} nodes, {L} locks, {K} attempts")
    }
}
