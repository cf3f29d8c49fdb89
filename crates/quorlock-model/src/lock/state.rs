//! The parts of the state that only this model has.

use std::time::Duration;

use crate::scene;

pub(crate) type State<const N: usize, const K: usize> = scene::State<Past, Node<K>, Attempt, N, K>;
pub(crate) type Node<const K: usize> = scene::Node<Process, Mail, K, 1>;
pub(crate) type Attempt = scene::Attempt<Pause>;

/// How often what is bounded has happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Past {
    pub(crate) restarts: u8,
    pub(crate) puts_forward: u8,
    pub(crate) jumps: u8,
}

/// The process of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Process {
    /// Whether it keeps its data across restarts.
    pub(crate) remembers: bool,
    /// Whether its calendar clock has stepped forwards since its last restart.
    pub(crate) forward: bool,
    /// The uptime noted by the first client since then, which grows with time.
    pub(crate) known: Option<Duration>,
}

/// An attempt's requests to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Mail {
    pub(crate) vote: Request,
    /// The latest renewal.
    pub(crate) renewal: Request,
    /// How many requests of earlier renewals are in flight.
    pub(crate) late: u8,
}

/// A request to a node, and the answer to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) enum Request {
    #[default]
    Unsent,
    /// In flight, or lost.
    Unarrived(Witness),
    /// Granted and counted.
    Counted,
    /// Of no further use.
    Spent,
}

/// What the connection of a request reports about the process at its other end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Witness {
    /// Its uptime was long enough when the request was sent.
    Old,
    /// It was not, or the process had not started yet.
    Young,
}

/// A holder that has paused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Pause {
    /// When a quorum had acknowledged its renewal, which it is about to count.
    pub(crate) carried: Option<u8>,
    /// A caller has observed the end of its lease.
    pub(crate) seen_to_end: bool,
}

impl scene::Own for Pause {
    fn is_like(&self, _: &Pause) -> bool {
        true
    }
}
