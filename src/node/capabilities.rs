//! What a node can do, and what it is.

use std::fmt;
use std::time::Duration;

use super::{NodeError, NodeErrorKind, Request};
use crate::reason::Reason;

/// What a node can do beside exclusive locks of one resource each, which all can.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Capability {
    /// [Shared](crate::protocol::Claim::shared) claims, [`Intend`](crate::node::Request::AnnounceWriter) and
    /// [`Desist`](crate::node::Request::WithdrawWriter).
    Shared,
    /// Claims of [several](crate::protocol::Claim::and) keys: what is asked is done at all of them or at none.
    Several,
    /// [`Enqueue`](crate::node::Request::Enqueue) and [`LeaveQueue`](crate::node::Request::LeaveQueue): those who wait in different
    /// processes are told one after the other. Without it all are told of each release.
    Queue,
    /// [`Transfer`](crate::node::Request::Transfer).
    Transfer,
    /// [`Offer`](crate::node::Request::Offer), and what it sends to [inboxes](crate::node::HintListener::inbox).
    Offer,
}

impl Capability {
    /// All of them.
    pub const ALL: [Capability; 5] =
        [Capability::Shared, Capability::Several, Capability::Queue, Capability::Transfer, Capability::Offer];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// As in "cannot carry out …".
impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Capability::Shared => "shared locks",
            Capability::Several => "locks of several resources at once",
            Capability::Queue => "a queue of those who wait",
            Capability::Transfer => "the transfer of a lock from one token to another",
            Capability::Offer => "the offer of a lock to the next waiter",
        })
    }
}

/// What a node can do, and what it is: what the library has to know before it asks it anything.
///
/// The default is the least that a node can be: exclusive locks of one resource each, requests that may
/// overtake each other, no hints, one server that forgets when it restarts.
///
/// # Examples
///
/// ```
/// use quorlock::node::{Capabilities, Capability, Order};
///
/// let directory = Capabilities::default().with(Capability::Transfer).in_order(Order::PerKey).durable();
/// assert!(directory.has(Capability::Transfer) && !directory.has(Capability::Shared));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// The bits of those that it has.
    able: u8,
    /// In which order it carries out what it is asked.
    pub order: Order,
    /// What it tells of keys that it has refused.
    pub hints: Hints,
    /// Whether it keeps what it has answered over a crash of its host.
    pub durability: Durability,
    /// How many servers agree on what it answers.
    pub stands_for: StandsFor,
    /// From where clients reach it under one address.
    pub reach: Reach,
}

impl Capabilities {
    /// Those of a Redis or Valkey server, and of whatever does as one does.
    #[must_use]
    pub fn all() -> Capabilities {
        let able = Capability::ALL.into_iter().fold(Capabilities::default(), Capabilities::with);
        Capabilities { order: Order::PerKey, hints: Hints::RemovalAndExpiry, ..able }
    }

    /// The same, and this.
    #[must_use]
    pub fn with(self, capability: Capability) -> Capabilities {
        Capabilities { able: self.able | capability.bit(), ..self }
    }

    /// The same without this.
    #[must_use]
    pub fn without(self, capability: Capability) -> Capabilities {
        Capabilities { able: self.able & !capability.bit(), ..self }
    }

    /// The same, in this order.
    #[must_use]
    pub fn in_order(self, order: Order) -> Capabilities {
        Capabilities { order, ..self }
    }

    /// The same with these hints.
    #[must_use]
    pub fn hinting(self, hints: Hints) -> Capabilities {
        Capabilities { hints, ..self }
    }

    /// The same, which keeps what it has answered over a crash of its host.
    #[must_use]
    pub fn durable(self) -> Capabilities {
        Capabilities { durability: Durability::Durable, ..self }
    }

    /// The same, of several servers that agree on each answer.
    #[must_use]
    pub fn by_consensus(self) -> Capabilities {
        Capabilities { stands_for: StandsFor::Consensus, ..self }
    }

    /// The same, which another host reaches under no address: what has its address there is another node.
    #[must_use]
    pub fn of_one_host(self) -> Capabilities {
        Capabilities { reach: Reach::OneHost, ..self }
    }

    /// The same, whose store other programs lock in by itself: it can only be the one node of a deployment.
    #[must_use]
    pub fn shared_with_others(self) -> Capabilities {
        Capabilities { reach: Reach::SharedWithOthers, ..self }
    }

    /// Refuses a request that needs what the node cannot do, by name: for a node to begin with.
    ///
    /// # Errors
    ///
    /// [`NodeErrorKind::Unsupported`].
    pub fn check(&self, request: &Request) -> Result<(), NodeError> {
        match request.needs().filter(|needed| !self.has(*needed)) {
            None => Ok(()),
            Some(needed) => {
                let reason = Reason::new(format!("a node of this kind cannot carry out {needed}"));
                Err(NodeError::Failed { kind: NodeErrorKind::Unsupported, reason })
            }
        }
    }

    /// Whether the node can do this.
    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        self.able & capability.bit() != 0
    }
}

/// What is to be feared of a deployment of one node that can do this: nothing, of one that is several servers.
pub(crate) fn risk_of_one(node: Capabilities) -> Option<&'static str> {
    if node.reach == Reach::OneHost {
        return Some("it keeps the programs of this host apart, and no others");
    }
    match (node.stands_for, node.durability) {
        (StandsFor::Consensus, _) => None,
        (StandsFor::OneServer, Durability::Durable) => Some("while it is down nothing is locked"),
        (StandsFor::OneServer, Durability::Volatile) => {
            Some("while it is down nothing is locked, and no other remembers what it forgets")
        }
    }
}

/// In which order a node carries out the requests of one client for one key. A request that names several
/// keys belongs to each of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Order {
    /// In none: one may overtake another. The library then asks for a key only when everything that was asked
    /// for it before has been answered, so that a request waits for the one before it: the node must answer
    /// each in a time that it bounds itself.
    #[default]
    Unordered,
    /// In that in which they were asked, as over one connection to a server that reads from it in order.
    PerKey,
}

/// What a node tells its [listeners](crate::node::Node::listen) of the keys that it has refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Hints {
    /// Nothing: waiters ask again after pauses.
    #[default]
    None,
    /// That a key was removed. That it has expired waiters find out by the time that they were told.
    Removal,
    /// That a key was removed or has expired.
    RemovalAndExpiry,
}

/// Whether a node keeps what it has answered over a crash of its host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Durability {
    /// No, or not for certain: a restart may forget, and the node has a new
    /// [identity](crate::node::Identity) after each.
    #[default]
    Volatile,
    /// Yes: it is on a disk before it is answered (in PostgreSQL `fsync` and `synchronous_commit` are on). The
    /// identity stays over a restart. Votes count by the [identity](crate::node::Identity) alone; this is for
    /// warnings and for tests.
    Durable,
}

/// How many servers agree on what a node answers. It has one vote in any case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum StandsFor {
    /// One: while it is down, the node does not vote.
    #[default]
    OneServer,
    /// Several, by consensus, such as Raft: the node goes on while most of them do, and remembers what they
    /// have answered.
    Consensus,
}

/// From where clients reach a node under one address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Reach {
    /// From every host: its address leads to one store.
    #[default]
    AnyHost,
    /// From its own host alone: on another one the same address leads to another store. Clients of two hosts that
    /// count it among several nodes would each find a quorum of their own, so it can only be the one node of a
    /// deployment.
    OneHost,
    /// From every host, and by clients that are none of this library and lock in this one store, such as `ShedLock`'s.
    /// A quorum of several nodes would not exclude them, so it can only be the one node of a deployment.
    SharedWithOthers,
}

/// What a node can keep to, as far as it is known by now: some servers tell only once they are connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct NodeLimits {
    /// The shortest TTL that it can keep a key for: a server that counts in whole seconds, or whose commits
    /// take long. A lock with a shorter one is refused, naming the node. Nought for none.
    pub least_ttl: Duration,
    /// How long a round waits for it, unless [set](crate::Builder::node_timeout) for all: for a store that
    /// takes longer than its round trip tells, such as one that writes to a disk now and then. `None`: a
    /// second, or four round trips if these are longer. It is cut to a quarter of the TTL in any case; what is
    /// answered later is recorded all the same.
    pub time_limit: Option<Duration>,
}

impl NodeLimits {
    /// No TTL below this.
    #[must_use]
    pub fn least_ttl(self, least_ttl: Duration) -> NodeLimits {
        NodeLimits { least_ttl, ..self }
    }

    /// Rounds wait this long.
    #[must_use]
    pub fn time_limit(self, time_limit: Duration) -> NodeLimits {
        NodeLimits { time_limit: Some(time_limit), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_is_one_of_its_own() {
        for one in Capability::ALL {
            let capabilities = Capabilities::default().with(one);
            assert_eq!(
                Capability::ALL.map(|other| capabilities.has(other)),
                Capability::ALL.map(|other| other == one)
            );
            let rest = Capabilities::all().without(one);
            assert_eq!(
                Capability::ALL.map(|other| rest.has(other)),
                Capability::ALL.map(|other| other != one)
            );
        }
    }
}
