//! What the nodes and the attempts know, and what is on its way between them.

use quorlock_protocol::{FencingToken, Moment};
use stateright::Representative;

use crate::common::{Key, Past};
use crate::names::{least, renamed};

/// Everything, at one moment: `N` nodes and `K` attempts, each with a token of its own.
///
/// There is no common time in it: what counts is how long each thing has been so, or still will be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State<const N: usize, const K: usize> {
    /// How many restarts without data have happened.
    pub(crate) restarts: u8,
    /// How many restarts with data have happened.
    pub(crate) reminders: u8,
    /// The largest number that was handed out.
    pub(crate) largest: FencingToken,
    /// What calendars show, if it is of interest: no less than what was drawn.
    pub(crate) calendar: FencingToken,
    /// The nodes.
    pub(crate) nodes: [Node<K>; N],
    /// The attempts.
    pub(crate) attempts: [Attempt; K],
}

/// A node, and what is on its way to it and from it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node<const K: usize> {
    /// Whose token stands here.
    pub(crate) key: Option<Key>,
    /// How long ago it restarted and forgot everything; `None` if that is of no interest any more.
    pub(crate) age: Option<u8>,
    /// How far its clock has run ahead.
    pub(crate) ahead: u8,
    /// The number that was drawn last.
    pub(crate) counter: FencingToken,
    /// What there is between each attempt and this node.
    pub(crate) mail: [Mail; K],
}

/// What there is between an attempt and a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Mail {
    /// The node's vote.
    pub(crate) vote: Vote,
    /// The request of the latest renewal.
    pub(crate) renewal: Renewal,
    /// Whether the node has carried out the attempt's offer, where that happens only once.
    pub(crate) offered: bool,
}

/// The vote of a node for an attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) enum Vote {
    /// Not there, or of no further use.
    #[default]
    None,
    /// Asked for, and on its way to the node.
    Asked,
    /// Given by an offer, and on its way to the waiter, with this number.
    Pushed(FencingToken),
    /// Counted, with this number.
    Counted(FencingToken),
    /// Counted for the second time, where that is possible.
    CountedTwice(FencingToken),
    /// The node carries the number that was written back.
    Carries,
}

/// What has become of a renewal's request to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) enum Renewal {
    /// Not sent, or of no further use.
    #[default]
    None,
    /// On its way, or lost for ever.
    Unarrived,
    /// Confirmed, and counted.
    Counted,
}

/// What a client does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Kind {
    /// Asks in the plain way, and offers the lock to waiters.
    Holder,
    /// Asks the queue, waits for offers, and offers the lock to other waiters.
    Waiter,
    /// Asks in the plain way, and knows of no queue.
    Plain,
}

/// An attempt at the lock, with one token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Attempt {
    /// Of whom.
    pub(crate) kind: Kind,
    /// What its own clock says: zero is when it asked for votes, or sent its question.
    pub(crate) clock: u8,
    /// How many ticks its clock has missed.
    pub(crate) behind: u8,
    /// Its number, as soon as it has one.
    pub(crate) number: FencingToken,
    /// The largest number that was out when it asked, or sent its question.
    pub(crate) floor: FencingToken,
    /// What its calendar showed then, if that is of interest.
    pub(crate) hint: FencingToken,
    /// A larger number was out already when it took the lock.
    pub(crate) overtaken: bool,
    /// How far it has come.
    pub(crate) phase: Phase,
}

/// How far an attempt has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Phase {
    /// It has not begun.
    Idle,
    /// It asks all nodes in the plain way.
    Asking,
    /// Its question is sent, and its token is public.
    Waiting {
        /// Its token was given back since, and goes on counting all the same.
        given_back: bool,
    },
    /// It has a quorum, which has yet to carry its number.
    WritingBack,
    /// It has become a lease, which may have ended without anyone having noticed.
    Holding(Lease),
    /// It believes no more, and its keys are there for offers.
    Ended,
    /// It has given up, or given back.
    Over { past: Past },
}

/// A lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Lease {
    /// Until when it may be trusted, by the attempt's own clock.
    pub(crate) until: Moment,
    /// How many renewals have been sent.
    pub(crate) renewals: u8,
    /// When the renewal was sent that is not decided yet.
    pub(crate) renewal: Option<u8>,
    /// Another one has held the lock since it began.
    pub(crate) interrupted: bool,
}

impl Attempt {
    /// Nothing has happened.
    pub(crate) fn new(kind: Kind) -> Attempt {
        let number = FencingToken::ZERO;
        let (floor, hint, phase) = (number, number, Phase::Idle);
        Attempt { kind, clock: 0, behind: 0, number, floor, hint, overtaken: false, phase }
    }

    /// The lease that it has become.
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

    /// Whether it has begun, and is not over.
    pub(crate) fn is_running(&self) -> bool {
        match self.phase {
            Phase::Asking | Phase::Waiting { .. } | Phase::WritingBack | Phase::Holding(_) => true,
            Phase::Idle | Phase::Ended | Phase::Over { .. } => false,
        }
    }

    /// Whether it waits for offers.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. })
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over { .. })
    }
}

impl<const K: usize> Node<K> {
    /// Whether the token of this attempt stands here.
    pub(crate) fn has_key_of(&self, attempt: usize) -> bool {
        self.key.is_some_and(|key| key.holder == attempt)
    }
}

impl<const N: usize, const K: usize> State<N, K> {
    /// Nothing has happened.
    pub(crate) fn new(kinds: [Kind; K]) -> State<N, K> {
        let counter = FencingToken::ZERO;
        State {
            restarts: 0,
            reminders: 0,
            largest: FencingToken::ZERO,
            calendar: FencingToken::ZERO,
            nodes: [Node { key: None, age: None, ahead: 0, counter, mail: [Mail::default(); K] }; N],
            attempts: kinds.map(Attempt::new),
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

/// Which node is which makes no difference, nor which of those that do the same.
impl<const N: usize, const K: usize> Representative for State<N, K> {
    fn representative(&self) -> State<N, K> {
        let keeps_kinds = |order: &[usize; K]| {
            order.iter().enumerate().all(|(new, &old)| self.attempts[new].kind == self.attempts[old].kind)
        };
        least(|order| keeps_kinds(&order).then(|| self.renamed(order))).unwrap_or(*self)
    }
}
