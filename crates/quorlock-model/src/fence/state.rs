//! The state of the nodes, the attempts, and the requests between them.

use quorlock_protocol::FencingToken;
use stateright::Representative;

use crate::names::least;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State<const N: usize, const K: usize> {
    /// In ticks.
    pub(crate) now: u8,
    pub(crate) restarts: u8,
    pub(crate) clock_steps: u8,
    /// How often a refused vote or another lock has raised a counter.
    pub(crate) raises: u8,
    pub(crate) nodes: [Node<K>; N],
    pub(crate) attempts: [Attempt; K],
}

/// A node, and the requests to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node<const K: usize> {
    /// It never expires, and is zero after a restart without data.
    pub(crate) counter: FencingToken,
    /// By how many ticks its wall clock is ahead.
    pub(crate) ahead: u8,
    /// When it last restarted without data; `None` if never.
    pub(crate) restarted: Option<u8>,
    pub(crate) mail: [Mail; K],
}

/// An attempt's requests to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Mail {
    pub(crate) vote: Vote,
    pub(crate) write_back: WriteBack,
}

/// A request for a vote.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Vote {
    /// Not arrived, or lost.
    Unarrived,
    /// Granted with this number, and counted by the attempt.
    Counted(FencingToken),
    /// Granted, and of no further use to the attempt.
    Spent,
}

/// A request to carry an attempt's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum WriteBack {
    /// Not sent, not arrived, or lost.
    Unarrived,
    /// Granted, and the attempt knows.
    Acknowledged,
    /// It had, or can have, no effect that matters.
    Spent,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Attempt {
    /// By how many ticks its wall clock is ahead of the nodes' clocks.
    pub(crate) ahead: u8,
    /// When its requests for votes were sent.
    pub(crate) sent: u8,
    /// The largest number issued by then.
    pub(crate) floor: FencingToken,
    pub(crate) phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Phase {
    /// It has not begun.
    Idle,
    /// It collects votes.
    Voting,
    /// It has votes of a quorum, and waits until a quorum carries the largest number.
    WritingBack { sent: u8, token: FencingToken },
    /// It has returned with this number.
    Returned { token: FencingToken, by: Way },
    /// It will never return. Its requests may still arrive.
    Stopped {
        /// The number that it has asked nodes to carry.
        token: Option<FencingToken>,
    },
}

/// How a quorum came to carry a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Way {
    Drawn,
    WrittenBack,
}

impl Attempt {
    /// Returns the number it has returned with.
    pub(crate) fn returned(&self) -> Option<FencingToken> {
        if let Phase::Returned { token, .. } = self.phase { Some(token) } else { None }
    }

    /// Returns the number it asks nodes to carry.
    pub(crate) fn writes_back(&self) -> Option<FencingToken> {
        match self.phase {
            Phase::WritingBack { token, .. } | Phase::Returned { token, .. } => Some(token),
            Phase::Stopped { token } => token,
            Phase::Idle | Phase::Voting => None,
        }
    }

    /// Whether it may still return.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Voting | Phase::WritingBack { .. })
    }
}

impl<const N: usize, const K: usize> State<N, K> {
    /// Creates the initial state with these counters and clocks.
    pub(crate) fn new(counters: [FencingToken; N], ahead: [u8; K]) -> State<N, K> {
        let mail = [Mail { vote: Vote::Unarrived, write_back: WriteBack::Unarrived }; K];
        State {
            now: 0,
            restarts: 0,
            clock_steps: 0,
            raises: 0,
            nodes: counters.map(|counter| Node { counter, ahead: 0, restarted: None, mail }),
            attempts: ahead.map(|ahead| Attempt {
                ahead,
                sent: 0,
                floor: FencingToken::ZERO,
                phase: Phase::Idle,
            }),
        }
    }

    /// Renames the attempts, where `order[new] = old`, and sorts the nodes.
    fn renamed(&self, order: [usize; K]) -> State<N, K> {
        let mut state = State {
            nodes: self.nodes.map(|node| Node { mail: order.map(|old| node.mail[old]), ..node }),
            attempts: order.map(|old| self.attempts[old]),
            ..*self
        };
        state.nodes.sort_unstable();
        state
    }
}

/// The names of nodes and attempts make no difference.
impl<const N: usize, const K: usize> Representative for State<N, K> {
    fn representative(&self) -> State<N, K> {
        least(|order| Some(self.renamed(order))).unwrap_or(*self)
    }
}
