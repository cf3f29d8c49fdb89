//! The parts shared by the models: keys, requests and their answers.

use std::fmt;

use quorlock_protocol::{Quorum, Tally, Verdict};

/// Which events are separate steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Detail {
    /// Only those that can make a difference; see the table of each model.
    Reduced,
    /// All of them, to check that the reductions hide no violation.
    Literal,
}

/// What happens to the answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It arrives while the attempt waits for it.
    Heard,
    /// It is lost, late, or does not count.
    Unheard,
}

/// What a node does with a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// The key was the attempt's.
    Granted,
    /// The key had gone, and was stored again.
    Restored,
    /// The key is another attempt's.
    Refused,
}

/// Whether an attempt that is over held the lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Past {
    Failed,
    Held,
}

/// A key on a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    /// The attempt whose token it holds.
    pub(crate) holder: usize,
    /// The remaining TTL, in ticks of the node's clock.
    pub(crate) left: u8,
}

/// A request to a node, and the answer to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) enum Request {
    #[default]
    Unsent,
    /// In flight, or lost.
    Unarrived,
    /// Granted and counted.
    Counted,
    /// Of no further use.
    Spent,
}

/// An attempt's requests to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Mail {
    pub(crate) vote: Request,
    /// To renew the lease; of a shared lock, also to downgrade it.
    pub(crate) renewal: Request,
    pub(crate) release: Request,
}

impl Key {
    /// Returns the key a tick later, unless it has expired.
    pub(crate) fn ticked(self) -> Option<Key> {
        (self.left > 1).then(|| Key { left: self.left - 1, ..self })
    }
}

impl Mail {
    /// The requests of an attempt that is over: the release is sent, and the others, which could
    /// only deny, are ignored.
    pub(crate) const OVER: Mail =
        Mail { vote: Request::Spent, renewal: Request::Spent, release: Request::Unarrived };
}

/// Carries out a renewal, like `renew.lua`.
pub(crate) fn prolong(key: &mut Option<Key>, holder: usize, ttl: u8) -> Reply {
    match key {
        Some(key) if key.holder == holder => {
            key.left = key.left.max(ttl);
            Reply::Granted
        }
        Some(_) => Reply::Refused,
        None => {
            *key = Some(Key { holder, left: ttl });
            Reply::Restored
        }
    }
}

/// Whether this many grants are a quorum.
pub(crate) fn is_won(quorum: Quorum, grants: usize) -> bool {
    let mut tally = Tally::new(quorum);
    (0..grants).for_each(|_| tally.grant());
    tally.verdict() == Some(Verdict::Won)
}

/// Whether these votes, a bit for each of `nodes` nodes, are those of a majority.
pub(crate) fn is_majority(nodes: usize, votes: u8) -> bool {
    is_won(Quorum::majority(nodes), (0..nodes).filter(|node| votes & (1 << node) != 0).count())
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reply::Granted => "extends the key",
            Reply::Restored => "stores the key again",
            Reply::Refused => "is refused",
        })
    }
}
