//! What the nodes and the attempts know, and what is on its way between them.

use std::time::Duration;

use quorlock_protocol::Moment;
use stateright::Representative;

use crate::common::{Key, Past};
use crate::names::{least, renamed};

/// Everything, at one moment: `N` nodes and `K` attempts.
///
/// There is no time in it that everybody shares: what counts is how long each thing has been so, or
/// still will be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State<const N: usize, const K: usize> {
    /// How many restarts have happened.
    pub(crate) restarts: u8,
    /// How many calendar clocks have been put forward.
    pub(crate) puts_forward: u8,
    /// How many clocks have jumped.
    pub(crate) jumps: u8,
    /// The nodes.
    pub(crate) nodes: [Node<K>; N],
    /// The attempts.
    pub(crate) attempts: [Attempt; K],
}

/// A node, and what is on its way to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node<const K: usize> {
    /// Who holds the lock here.
    pub(crate) key: Option<Key>,
    /// Whether it remembers over a restart: of the same history as before.
    pub(crate) remembers: bool,
    /// How long ago it restarted and forgot everything; `None` if that is of no interest any more.
    pub(crate) age: Option<u8>,
    /// Whether its calendar clock has been put forward since, and so shows a longer time.
    pub(crate) forward: bool,
    /// For how long clients know it since then: the note of the first, which grows as time goes on.
    pub(crate) known: Option<Duration>,
    /// How far its clock has run ahead.
    pub(crate) ahead: u8,
    /// The requests of each attempt to this node.
    pub(crate) mail: [Mail; K],
}

/// What has become of an attempt's requests to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Mail {
    /// The request for a vote.
    pub(crate) vote: Request,
    /// The request of the latest renewal.
    pub(crate) renewal: Request,
    /// How many requests of earlier renewals are still on their way.
    pub(crate) late: u8,
}

/// A request to a node, and the answer to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) enum Request {
    /// Not sent yet.
    #[default]
    Unsent,
    /// On its way, or lost for ever.
    Unarrived(Witness),
    /// Granted, and counted.
    Counted,
    /// Of no further use to the attempt.
    Spent,
}

/// What the connection that carries a request says of the process at its other end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Witness {
    /// It had been up for long enough when the request was sent.
    Old,
    /// It had not, or was not there yet.
    Young,
}

/// An attempt at the lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Attempt {
    /// What its own clock says: zero is when it asked for votes.
    pub(crate) clock: u8,
    /// How many ticks its clock has missed.
    pub(crate) behind: u8,
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
    /// It has given up, or given back. Its requests may still arrive.
    Over { past: Past },
}

/// A lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Lease {
    /// Until when it may be trusted, by the attempt's own clock.
    pub(crate) until: Moment,
    /// How many renewals have been sent.
    pub(crate) renewals: u8,
    /// The renewal that is not decided yet.
    pub(crate) renewal: Option<Renewal>,
    /// Somebody has seen that it had ended.
    pub(crate) seen_to_end: bool,
    /// Somebody else has held the lock since it began.
    pub(crate) interrupted: bool,
}

/// A renewal that is not decided yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Renewal {
    /// When it was sent, by the attempt's own clock.
    pub(crate) sent: u8,
    /// When a quorum had acknowledged it, which the attempt is about to count.
    pub(crate) carried: Option<u8>,
}

impl Attempt {
    /// The lease that it has become.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match &self.phase {
            Phase::Holding(lease) => Some(lease),
            Phase::Idle | Phase::Voting | Phase::Over { .. } => None,
        }
    }

    /// Whether it has begun, and is not over.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Voting | Phase::Holding(_))
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over { .. })
    }
}

impl<const N: usize, const K: usize> State<N, K> {
    /// Nothing has happened.
    pub(crate) fn new() -> State<N, K> {
        State {
            restarts: 0,
            puts_forward: 0,
            jumps: 0,
            nodes: [Node {
                key: None,
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

    /// The same with the attempts named in this order: `order[new] = old`.
    fn renamed(&self, order: [usize; K]) -> State<N, K> {
        let key = |key: Key| Some(Key { holder: renamed(order, key.holder)?, ..key });
        let mut state = State {
            nodes: self.nodes.map(|node| Node {
                key: node.key.and_then(key),
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

/// Which node is which, and which attempt, makes no difference.
impl<const N: usize, const K: usize> Representative for State<N, K> {
    fn representative(&self) -> State<N, K> {
        least(|order| Some(self.renamed(order))).unwrap_or(*self)
    }
}
