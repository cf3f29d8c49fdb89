//! The parts of the state that only this model has.

use quorlock_protocol::FencingToken;

use crate::scene;

pub(crate) type State<const N: usize, const K: usize> = scene::State<Past, Node<K>, Attempt, N, K>;
pub(crate) type Node<const K: usize> = scene::Node<(), Mail, K, 1>;
pub(crate) type Attempt = scene::Attempt<Client>;

/// What has happened so far.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Past {
    /// Restarts without data.
    pub(crate) restarts: u8,
    /// Restarts with data.
    pub(crate) reminders: u8,
    /// The largest number issued.
    pub(crate) largest: FencingToken,
    /// The reading of calendars, where that matters: no less than any number drawn.
    pub(crate) calendar: FencingToken,
}

/// The requests between an attempt and a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Mail {
    pub(crate) vote: Vote,
    /// The latest renewal.
    pub(crate) renewal: Renewal,
    /// Whether the node has executed the attempt's offer, where that happens only once.
    pub(crate) offered: bool,
    /// Whether the node has stored the key, but not drawn the number yet, where these are two steps.
    pub(crate) unnumbered: bool,
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

/// What an attempt has besides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Client {
    pub(crate) kind: Kind,
    /// Its number, once it has one.
    pub(crate) number: FencingToken,
    /// The largest number issued when it asked or sent its question.
    pub(crate) floor: FencingToken,
    /// The reading of its calendar then, where that matters.
    pub(crate) hint: FencingToken,
    /// A larger number had been issued when it acquired the lock.
    pub(crate) overtaken: bool,
}

/// An attempt that has not begun.
pub(crate) fn attempt(kind: Kind) -> Attempt {
    let zero = FencingToken::ZERO;
    let own = Client { kind, number: zero, floor: zero, hint: zero, overtaken: false };
    Attempt { clock: 0, behind: 0, phase: scene::Phase::Idle, own }
}

impl scene::Own for Client {
    fn is_like(&self, other: &Client) -> bool {
        self.kind == other.kind
    }

    fn number(&self) -> Option<FencingToken> {
        (self.number > FencingToken::ZERO).then_some(self.number)
    }
}
