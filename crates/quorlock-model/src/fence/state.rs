//! What the nodes and the attempts know, and what is on its way between them.

use quorlock_protocol::FencingToken;
use stateright::Representative;

use crate::names::{least, renamed};

/// Everything, at one moment: `N` nodes and `K` attempts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State<const N: usize, const K: usize> {
    /// The time, in ticks.
    pub(crate) now: u8,
    /// How many restarts have happened.
    pub(crate) restarts: u8,
    /// How many steps of nodes' clocks have happened.
    pub(crate) clock_steps: u8,
    /// The nodes.
    pub(crate) nodes: [Node<K>; N],
    /// The attempts.
    pub(crate) attempts: [Attempt; K],
}

/// A node, and what is on its way to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node<const K: usize> {
    /// The attempt whose vote came last. Its key may be gone when the next vote comes.
    pub(crate) holder: Option<usize>,
    /// The counter of the lock; zero if there is none.
    pub(crate) counter: FencingToken,
    /// By how many ticks its wall clock is ahead.
    pub(crate) ahead: u8,
    /// When it last restarted with nothing; `None` if never.
    pub(crate) restarted: Option<u8>,
    /// The requests of each attempt to this node.
    pub(crate) mail: [Mail; K],
}

/// What has become of an attempt's requests to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Mail {
    /// The request for a vote.
    pub(crate) vote: Vote,
    /// The request to carry the attempt's number.
    pub(crate) write_back: WriteBack,
}

/// A request for a vote.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Vote {
    /// Not there yet, or lost for ever.
    Unarrived,
    /// Granted with this number, which the attempt counts.
    Counted(FencingToken),
    /// Granted, and of no further use to the attempt.
    Spent,
}

/// A request to carry an attempt's number, sent by attempts that need it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum WriteBack {
    /// Not sent, not there yet, or lost for ever.
    Unarrived,
    /// Granted, and the attempt knows.
    Acknowledged,
    /// It has done, or can do, nothing that matters.
    Spent,
}

/// An attempt at the lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Attempt {
    /// By how many ticks its wall clock is ahead of the nodes' clocks.
    pub(crate) ahead: u8,
    /// When its requests for votes were sent.
    pub(crate) sent: u8,
    /// The largest number that had been handed out by then.
    pub(crate) floor: FencingToken,
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
    /// It has a quorum's votes, and waits for a quorum to carry the largest number.
    WritingBack { sent: u8, token: FencingToken },
    /// It has returned with this number.
    Returned {
        token: FencingToken,
        /// Whether it had to be written back.
        by: Way,
    },
    /// It will never return. Its requests may still arrive.
    Stopped {
        /// The number it has asked nodes to carry.
        token: Option<FencingToken>,
    },
}

/// How a number came to be carried by a quorum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Way {
    /// A quorum drew it.
    Drawn,
    /// It was written back.
    WrittenBack,
}

impl Attempt {
    /// The number that it has returned with.
    pub(crate) fn returned(&self) -> Option<FencingToken> {
        match self.phase {
            Phase::Returned { token, .. } => Some(token),
            Phase::Idle | Phase::Voting | Phase::WritingBack { .. } | Phase::Stopped { .. } => None,
        }
    }

    /// The number that it asks nodes to carry.
    pub(crate) fn writes_back(&self) -> Option<FencingToken> {
        match self.phase {
            Phase::WritingBack { token, .. } | Phase::Returned { token, .. } => Some(token),
            Phase::Stopped { token } => token,
            Phase::Idle | Phase::Voting => None,
        }
    }

    /// Whether it may yet return.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Voting | Phase::WritingBack { .. })
    }
}

impl<const N: usize, const K: usize> State<N, K> {
    /// Nothing has happened, and the counters and clocks stand at these.
    pub(crate) fn new(counters: [FencingToken; N], nodes_ahead: u8, ahead: [u8; K]) -> State<N, K> {
        let mail = [Mail { vote: Vote::Unarrived, write_back: WriteBack::Unarrived }; K];
        State {
            now: 0,
            restarts: 0,
            clock_steps: 0,
            nodes: counters.map(|counter| Node {
                holder: None,
                counter,
                ahead: nodes_ahead,
                restarted: None,
                mail,
            }),
            attempts: ahead.map(|ahead| Attempt {
                ahead,
                sent: 0,
                floor: FencingToken::ZERO,
                phase: Phase::Idle,
            }),
        }
    }

    /// The same with the attempts named in this order: `order[new] = old`.
    fn renamed(&self, order: [usize; K]) -> State<N, K> {
        let mut state = State {
            nodes: self.nodes.map(|node| Node {
                holder: node.holder.and_then(|old| renamed(order, old)),
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

/// Which node is which, and which attempt, makes no difference.
impl<const N: usize, const K: usize> Representative for State<N, K> {
    fn representative(&self) -> State<N, K> {
        least(|order| Some(self.renamed(order))).unwrap_or(*self)
    }
}
