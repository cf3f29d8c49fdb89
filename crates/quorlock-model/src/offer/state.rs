//! The state of the nodes, the attempts, and the requests between them.

use quorlock_protocol::{FencingToken, Moment};
use stateright::Representative;

use crate::common::Past;
use crate::names::least;
use crate::record::Kept;

/// There is no global time in it, only ages and remaining times. Each attempt has its own token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State<const N: usize, const K: usize> {
    /// Restarts without data so far.
    pub(crate) restarts: u8,
    /// Restarts with data so far.
    pub(crate) reminders: u8,
    /// The largest number issued.
    pub(crate) largest: FencingToken,
    /// The reading of calendars, where that matters: no less than any number drawn.
    pub(crate) calendar: FencingToken,
    pub(crate) nodes: [Node<K>; N],
    pub(crate) attempts: [Attempt; K],
}

/// A node, and the requests to and from it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node<const K: usize> {
    /// The key, and the last number drawn.
    pub(crate) kept: Kept,
    /// How long ago it restarted without data; `None` once that does not matter.
    pub(crate) age: Option<u8>,
    /// How far its clock has run ahead.
    pub(crate) ahead: u8,
    pub(crate) mail: [Mail; K],
}

/// The requests between an attempt and a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Mail {
    pub(crate) vote: Vote,
    /// The latest renewal.
    pub(crate) renewal: Renewal,
    /// Whether the node has executed the attempt's offer, where that happens only once.
    pub(crate) offered: bool,
}

/// The vote of a node for an attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) enum Vote {
    /// None, or of no further use.
    #[default]
    None,
    /// The request is in flight.
    Asked,
    /// Granted by an offer with this number; the push is in flight.
    Pushed(FencingToken),
    /// Counted, with this number.
    Counted(FencingToken),
    /// Counted twice, where that is possible.
    CountedTwice(FencingToken),
    /// The node carries the number that was written back.
    Carries,
}

/// The request of a renewal to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) enum Renewal {
    /// Not sent, or of no further use.
    #[default]
    None,
    /// In flight, or lost.
    Unarrived,
    /// Confirmed and counted.
    Counted,
}

/// The kind of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Kind {
    /// Asks for votes, and offers the lock to waiters.
    Holder,
    /// Asks the queue, waits for offers, and offers the lock to other waiters.
    Waiter,
    /// Asks for votes, and does not use the queue.
    Plain,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Attempt {
    pub(crate) kind: Kind,
    /// Its own clock, which starts when it asks for votes or sends its question.
    pub(crate) clock: u8,
    /// How many ticks its clock has missed.
    pub(crate) behind: u8,
    /// Its number, once it has one.
    pub(crate) number: FencingToken,
    /// The largest number issued when it asked or sent its question.
    pub(crate) floor: FencingToken,
    /// The reading of its calendar then, where that matters.
    pub(crate) hint: FencingToken,
    /// A larger number had been issued when it acquired the lock.
    pub(crate) overtaken: bool,
    pub(crate) phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Phase {
    /// It has not begun.
    Idle,
    /// It asks all nodes for votes.
    Asking,
    /// Its question is sent, and its token is public.
    Waiting {
        /// Its token was released since, but still counts.
        given_back: bool,
    },
    /// It has a quorum, which does not carry its number yet.
    WritingBack,
    /// A lease, which may have ended unnoticed.
    Holding(Lease),
    /// The lease has ended, and its keys may be offered.
    Ended,
    /// Given up or released.
    Over { past: Past },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Lease {
    /// The deadline, by the attempt's own clock.
    pub(crate) until: Moment,
    /// How many renewals have been sent.
    pub(crate) renewals: u8,
    /// When the undecided renewal was sent.
    pub(crate) renewal: Option<u8>,
    /// Another attempt has asserted the lock since it began.
    pub(crate) interrupted: bool,
}

impl Attempt {
    pub(crate) fn new(kind: Kind) -> Attempt {
        let number = FencingToken::ZERO;
        let (floor, hint, phase) = (number, number, Phase::Idle);
        Attempt { kind, clock: 0, behind: 0, number, floor, hint, overtaken: false, phase }
    }

    pub(crate) fn lease(&self) -> Option<&Lease> {
        match &self.phase {
            Phase::Holding(lease) => Some(lease),
            Phase::Idle
            | Phase::Asking
            | Phase::Waiting { .. }
            | Phase::WritingBack
            | Phase::Ended
            | Phase::Over { .. } => None,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        match self.phase {
            Phase::Asking | Phase::Waiting { .. } | Phase::WritingBack | Phase::Holding(_) => true,
            Phase::Idle | Phase::Ended | Phase::Over { .. } => false,
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. })
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over { .. })
    }
}

impl<const N: usize, const K: usize> State<N, K> {
    pub(crate) fn new(kinds: [Kind; K]) -> State<N, K> {
        State {
            restarts: 0,
            reminders: 0,
            largest: FencingToken::ZERO,
            calendar: FencingToken::ZERO,
            nodes: [Node { kept: Kept::nothing(), age: None, ahead: 0, mail: [Mail::default(); K] }; N],
            attempts: kinds.map(Attempt::new),
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

/// The names of nodes and of attempts of one kind make no difference.
impl<const N: usize, const K: usize> Representative for State<N, K> {
    fn representative(&self) -> State<N, K> {
        let keeps_kinds = |order: &[usize; K]| {
            order.iter().enumerate().all(|(new, &old)| self.attempts[new].kind == self.attempts[old].kind)
        };
        least(|order| keeps_kinds(&order).then(|| self.renamed(order))).unwrap_or(*self)
    }
}
