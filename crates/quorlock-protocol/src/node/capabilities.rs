//! What a node supports, and its properties.

use std::fmt;
use std::time::Duration;

/// A feature of a node beyond exclusive locks of one resource, which every node supports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Capability {
    /// [Shared](crate::Claim::shared) claims, [`AnnounceWriter`](super::Request::AnnounceWriter) and
    /// [`WithdrawWriter`](super::Request::WithdrawWriter).
    Shared,
    /// Claims of [several](crate::Claim::and) keys, which a request changes all together or not at
    /// all.
    Several,
    /// [`Enqueue`](super::Request::Enqueue) and [`LeaveQueue`](super::Request::LeaveQueue): a release
    /// notifies one waiting process after the other. Without it, every release notifies all waiters.
    Queue,
    /// [`Transfer`](super::Request::Transfer).
    Transfer,
    /// [`Offer`](super::Request::Offer), and messages to inboxes.
    Offer,
    /// [`LogHold`](super::Request::LogHold) and [`ReadLog`](super::Request::ReadLog).
    Log,
}

impl Capability {
    /// All capabilities.
    pub const ALL: [Capability; 6] = [
        Capability::Shared,
        Capability::Several,
        Capability::Queue,
        Capability::Transfer,
        Capability::Offer,
        Capability::Log,
    ];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A noun phrase, as in "does not support …".
impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Capability::Shared => "shared locks",
            Capability::Several => "locks of several resources",
            Capability::Queue => "a queue of waiters",
            Capability::Transfer => "the transfer of a lock to another token",
            Capability::Offer => "the offer of a lock to the next waiter",
            Capability::Log => "a log of the holds of a lock",
        })
    }
}

/// What a node supports, and its properties: the library reads it before the first request.
///
/// The default is the minimum: exclusive locks of one resource, requests that may overtake each other, no
/// hints, and one server that loses its data when it restarts.
///
/// # Examples
///
/// ```
/// use quorlock_protocol::node::{Capabilities, Capability, Order};
///
/// let directory = Capabilities::default().with(Capability::Transfer).in_order(Order::PerKey).durable();
/// assert!(directory.has(Capability::Transfer) && !directory.has(Capability::Shared));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// A bit for each supported [`Capability`].
    able: u8,
    /// The order in which requests are carried out.
    pub order: Order,
    /// The changes of keys of which the node notifies its listeners.
    pub hints: Hints,
    /// Whether a granted [renewal](super::Request::Renew) asks for a hint, too: of the next change of its keys that another
    /// client makes.
    pub hints_to_holders: bool,
    /// Whether acknowledged changes survive a crash of the host.
    pub durability: Durability,
    /// Whether the node is one server or a consensus group.
    pub stands_for: StandsFor,
    /// The hosts that reach the same store under the node's address.
    pub reach: Reach,
    /// Which of several waiters the store lets in.
    pub grants: Grants,
}

impl Capabilities {
    /// Returns the capabilities of a Redis or Valkey server: all of them.
    #[must_use]
    pub fn all() -> Capabilities {
        let able = Capability::ALL.into_iter().fold(Capabilities::default(), Capabilities::with);
        Capabilities { order: Order::PerKey, ..able.hinting(Hints::RemovalAndExpiry).hinting_holders() }
    }

    /// Adds a capability.
    #[must_use]
    pub fn with(self, capability: Capability) -> Capabilities {
        Capabilities { able: self.able | capability.bit(), ..self }
    }

    /// Removes a capability.
    #[must_use]
    pub fn without(self, capability: Capability) -> Capabilities {
        Capabilities { able: self.able & !capability.bit(), ..self }
    }

    /// Sets the order of requests.
    #[must_use]
    pub fn in_order(self, order: Order) -> Capabilities {
        Capabilities { order, ..self }
    }

    /// Sets the kind of hints.
    #[must_use]
    pub fn hinting(self, hints: Hints) -> Capabilities {
        Capabilities { hints, ..self }
    }

    /// Declares that a granted renewal asks for a hint of the next change of its keys by another client.
    #[must_use]
    pub fn hinting_holders(self) -> Capabilities {
        Capabilities { hints_to_holders: true, ..self }
    }

    /// Declares that acknowledged changes survive a crash of the host.
    #[must_use]
    pub fn durable(self) -> Capabilities {
        Capabilities { durability: Durability::Durable, ..self }
    }

    /// Declares that the node is several servers that agree on each response by consensus.
    #[must_use]
    pub fn by_consensus(self) -> Capabilities {
        Capabilities { stands_for: StandsFor::Consensus, ..self }
    }

    /// Declares that the node is reachable from its own host only: on another host, its address leads to
    /// another store.
    #[must_use]
    pub fn of_one_host(self) -> Capabilities {
        Capabilities { reach: Reach::OneHost, ..self }
    }

    /// Declares that other programs lock in the same store on their own: it can only be the single node of a
    /// deployment.
    #[must_use]
    pub fn shared_with_others(self) -> Capabilities {
        Capabilities { reach: Reach::SharedWithOthers, ..self }
    }

    /// Declares that the store serves waiters in the order in which they entered its queue, whatever program they belong to.
    #[must_use]
    pub fn first_come(self) -> Capabilities {
        Capabilities { grants: Grants::FirstCome, ..self }
    }

    /// Returns whether the node supports `capability`.
    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        self.able & capability.bit() != 0
    }
}

/// Returns the risk of a deployment that consists of this one node; `None` for a consensus group.
#[doc(hidden)]
#[must_use]
pub fn risk_of_one(node: Capabilities) -> Option<&'static str> {
    if node.reach == Reach::OneHost {
        return Some("it excludes programs on this host only");
    }
    match (node.stands_for, node.durability) {
        (StandsFor::Consensus, _) => None,
        (StandsFor::OneServer, Durability::Durable) => Some("while it is down, nothing can be locked"),
        (StandsFor::OneServer, Durability::Volatile) => {
            Some("while it is down, nothing can be locked, and a restart may forget locks")
        }
    }
}

/// The order in which a node carries out the requests of one client for one key. A request with several keys
/// belongs to each of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Order {
    /// Requests may overtake each other. The library then sends a request for a key only after the earlier
    /// ones for that key were answered. The node must bound the time that it takes to answer each.
    #[default]
    Unordered,
    /// In the order in which they were sent, as over one connection to a server that reads it in order.
    PerKey,
}

/// The changes of refused keys of which a node notifies its listeners.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Hints {
    /// None: waiters retry after pauses.
    #[default]
    None,
    /// Removals. Waiters compute the expiry from the remaining TTL that the node reported.
    Removal,
    /// Removals and expiries.
    RemovalAndExpiry,
}

/// Whether acknowledged changes of a node survive a crash of its host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Durability {
    /// No, or not for certain: a restart may lose data, and the node has a new [identity](super::Identity)
    /// after each.
    #[default]
    Volatile,
    /// Yes: a change is on disk before it is acknowledged (in PostgreSQL, `fsync` and `synchronous_commit`
    /// are on), and the identity survives a restart. Whether votes count depends on the
    /// [identity](super::Identity) alone; this is for warnings and tests.
    Durable,
}

/// How many servers agree on a node's responses. The node has one vote in any case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum StandsFor {
    /// One server: while it is down, the node does not vote.
    #[default]
    OneServer,
    /// Several servers with consensus, such as Raft: the node works and keeps its data while a majority of
    /// them does.
    Consensus,
}

/// The hosts and programs that share a node's store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Reach {
    /// Every host reaches the same store under the address.
    #[default]
    AnyHost,
    /// Only the node's own host: on another host, the same address leads to another store. With several
    /// nodes, clients on two hosts would each find a quorum of their own, so it can only be the single node
    /// of a deployment.
    OneHost,
    /// Every host, and programs that lock in this store without this library, such as `ShedLock`'s clients. A
    /// quorum of several nodes would not exclude them, so it can only be the single node of a deployment.
    SharedWithOthers,
}

/// Which of several waiters a store lets in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Grants {
    /// Any client that asks while the lock is free, also before the waiters in the queue: a place there is a hint of when to ask.
    #[default]
    Any,
    /// The waiter that entered the queue first, be it of this library or of another program: a place in the queue is the
    /// right to be next. An [`Acquire`](super::Request::Acquire) is granted only if no waiter stands before it, or the first
    /// is the claim's [own](crate::Claim::place); otherwise it is answered by
    /// [`NotYourTurn`](super::Vote::NotYourTurn) if the lock is free. A waiter must be in the queue, so the node needs
    /// [`Capability::Queue`]; and a holder passes the lock to no other waiter of its process, which would pass the queue. There are no semaphores: a
    /// place belongs to one client.
    FirstCome,
}

/// The limits of a node, as far as they are known by now: some are only known once the server is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct NodeLimits {
    /// The shortest TTL that the node supports, such as for a server that counts whole seconds or has slow
    /// commits. For a lock with a shorter TTL the node is not asked; if that leaves too few for a quorum, the lock is
    /// refused, naming a node. Zero for no limit.
    pub least_ttl: Duration,
    /// How long a round waits for this node unless set by the program for all nodes: for a
    /// store that sometimes takes longer than its round trip suggests, such as one that syncs to disk. `None`
    /// means one second, or four round trips if that is longer. Always cut to a quarter of the TTL; later
    /// responses are still recorded.
    pub time_limit: Option<Duration>,
}

impl NodeLimits {
    /// Sets the shortest supported TTL.
    #[must_use]
    pub fn least_ttl(self, least_ttl: Duration) -> NodeLimits {
        NodeLimits { least_ttl, ..self }
    }

    /// Sets how long a round waits for the node.
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
