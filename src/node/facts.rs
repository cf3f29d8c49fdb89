//! Facts that one node reports about itself. What a node does not report is `None` and stays unknown: it
//! counts neither for nor against the node.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::NodeError;

pub use exposure::Exposure;
pub use probe::ProbeLock;

mod exposure;
mod probe;

/// The facts about one node. A [`Node`](super::Node) of your own starts with the default, in which nothing is
/// known, and fills in what it can report.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Facts {
    /// Why the node could not be examined, or not completely.
    pub failure: Option<ConnectFailure>,
    /// The [history](crate::node::Identity) of its data: Redis' `run_id`.
    pub identity: Option<Arc<str>>,
    /// The processes that further connections to its address reached, where they differ.
    pub others: Vec<Arc<str>>,
    /// Whether the node finds another of our connections by the ID that it assigned to it.
    pub finds_connections: Option<bool>,
    /// The server software.
    pub software: Option<Software>,
    /// The role of the server.
    pub role: Option<Role>,
    /// Why the node must not vote, if its own report rules that out: a sentence.
    pub unfit: Option<Arc<str>>,
    /// Whether it is still loading its data.
    pub loading: Option<bool>,
    /// How long its process has been running, by its own wall clock.
    pub uptime: Option<Duration>,
    /// The least age of its data as votes are judged by it ([`Identity::age_at`](crate::node::Identity::age_at)), if it was asked
    /// as for a vote. Otherwise that follows from the uptime.
    pub age: Option<Duration>,
    /// Whether its address says that it loses no acknowledged write.
    pub never_forgets: bool,
    /// How many cycles its event loop has completed in that time.
    pub turns: Option<u64>,
    /// How long clients have known its process, by their wall clocks and its own, if one of them has recorded it.
    pub known: Option<Duration>,
    /// The number of connected replicas.
    pub replicas: Option<u64>,
    /// Whether it was a replica before it became a master.
    pub promoted: Option<bool>,
    /// If it was: how long clients have known it as master.
    pub master_since: Option<Duration>,
    /// The largest `max_ttl` that a client of this deployment has recorded.
    pub max_ttl: Option<Duration>,
    /// The lists of nodes that clients of this deployment have recorded.
    pub node_lists: Vec<NodeList>,
    /// The other key prefixes under which clients lock here, as far as they were looked for.
    pub other_prefixes: Vec<Arc<str>>,
    /// The name of the service, if Sentinels report its address.
    pub service: Option<Arc<str>>,
    /// Whether it stops accepting writes when too few replicas are connected: `min-replicas-to-write`.
    pub falls_silent: Option<bool>,
    /// Its memory limit and eviction policy.
    pub memory: Option<Memory>,
    /// Whether it logs each change to disk.
    pub append_only: Option<bool>,
    /// When that log is synced to disk.
    pub fsync: Option<Fsync>,
    /// Whether it notifies clients of changes, so that waiters need not poll.
    pub hints: Option<bool>,
    /// The round-trip times of small sequential requests.
    pub round_trips: Vec<Duration>,
    /// Its wall clock compared with ours.
    pub clock: Option<ClockReading>,
    /// The user that we are logged in as.
    pub user: Option<Arc<str>>,
    /// The permissions that the user lacks.
    pub refusals: Vec<MissingPermission>,
    /// Whether a lock could be acquired, renewed, transferred and released.
    pub lock: Option<Result<(), NodeError>>,
    /// Programs without this library that lock in the same store, and traces of their clocks.
    pub other_clients: Option<OtherClients>,
    /// What the store says of itself that matters for locks, in the words of its kind.
    pub concerns: Vec<Concern>,
    /// What other users of the host can do with the files of a node that has no server.
    pub exposure: Option<Exposure>,
    /// The location of the server.
    pub place: Option<Location>,
    /// Whether it is a member of a cluster that is one node. Clusters promote replicas themselves.
    pub of_cluster: bool,
    /// Of a cluster member: whether it refuses all requests while any slot has no master.
    pub full_coverage: Option<bool>,
    /// Of a cluster: the masters that serve slots.
    pub shards: Vec<ShardFacts>,
    /// Of a cluster: how many of the 16384 slots have no master.
    pub unserved: Option<u16>,
}

/// The list of nodes of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeList {
    /// The nodes: see [`list_of_nodes`](crate::protocol::list_of_nodes); first `-` for each whose identity is not known.
    pub nodes: Arc<str>,
    /// How long ago a client with this list last recorded it.
    pub recorded: Duration,
}

impl NodeList {
    /// Creates an entry for a list that was recorded so long ago.
    #[must_use]
    pub fn new(nodes: impl Into<Arc<str>>, recorded: Duration) -> NodeList {
        NodeList { nodes: nodes.into(), recorded }
    }
}

/// Programs that lock in the same store without this library.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OtherClients {
    /// The programs and the clocks that they use: a clause, such as "other clients lock there, too".
    pub who: &'static str,
    /// A problem with one of their clocks, where the store shows it: a clause with the evidence.
    pub clock: Option<Arc<str>>,
    /// How to make all of them use the clock of the store.
    pub cure: &'static str,
}

impl OtherClients {
    /// Creates an entry without evidence about their clocks.
    #[must_use]
    pub fn new(who: &'static str, cure: &'static str) -> OtherClients {
        OtherClients { who, clock: None, cure }
    }
}

/// What a store says of itself that matters for locks, and is known to nodes of its kind only.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Concern {
    /// Whether two clients may hold a lock for this alone. Otherwise locks are harder to acquire or keep, or will soon be.
    pub is_unsafe: bool,
    /// What was found: a clause about the node, such as "has one member".
    pub evidence: Arc<str>,
    /// How to fix it.
    pub cure: &'static str,
}

impl Concern {
    /// Creates an entry for what makes locks unsafe.
    #[must_use]
    pub fn unsafely(evidence: impl Into<Arc<str>>, cure: &'static str) -> Concern {
        Concern { is_unsafe: true, evidence: evidence.into(), cure }
    }

    /// Creates an entry for what makes locks harder to acquire or keep.
    #[must_use]
    pub fn new(evidence: impl Into<Arc<str>>, cure: &'static str) -> Concern {
        Concern { is_unsafe: false, evidence: evidence.into(), cure }
    }
}

/// One master of a cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardFacts {
    /// The address of the master.
    pub master: Arc<str>,
    /// How many of the 16384 slots it serves.
    pub slots: u16,
    /// The number of its replicas, as the cluster reports it.
    pub replicas: u64,
    /// The facts about the master.
    pub facts: Facts,
}

impl ShardFacts {
    /// Creates an entry for a master that serves `slots` slots.
    #[must_use]
    pub fn new(master: Arc<str>, slots: u16, replicas: u64, facts: Facts) -> ShardFacts {
        ShardFacts { master, slots, replicas, facts }
    }
}

/// Why a node could not be examined. The [kind](NodeError::kind) of the error determines the finding.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConnectFailure {
    /// The error.
    pub error: NodeError,
    /// The fix, where it differs from that of the finding.
    pub cure: Option<&'static str>,
}

impl ConnectFailure {
    /// Creates a failure with the fix of its finding.
    #[must_use]
    pub fn new(error: NodeError) -> ConnectFailure {
        ConnectFailure { error, cure: None }
    }

    /// Sets the fix.
    #[must_use]
    pub fn cured_by(self, cure: &'static str) -> ConnectFailure {
        ConnectFailure { cure: Some(cure), ..self }
    }
}

/// The server software.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Software {
    /// `redis` or `valkey`.
    pub name: &'static str,
    /// Its version, as the server reports it.
    pub version: String,
}

impl Software {
    /// Creates an entry from a name and a version.
    #[must_use]
    pub fn new(name: &'static str, version: impl Into<String>) -> Software {
        Software { name, version: version.into() }
    }

    /// Returns the numeric parts of the version.
    pub(crate) fn numbers(&self) -> [u32; 3] {
        let mut parts = self.version.split('.').map(|part| part.parse().unwrap_or(0));
        [(); 3].map(|()| parts.next().unwrap_or(0))
    }
}

/// The role of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Role {
    /// An independent master, which may vote.
    Master,
    /// A replica of another server.
    Replica,
    /// A master that also replicates from other masters: an active replica of `KeyDB`.
    ActiveReplica,
    /// A member of a cluster.
    ClusterMember,
    /// A whole cluster, which may vote.
    Cluster,
    /// A Sentinel, which stores no keys.
    Sentinel,
}

/// The memory usage of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Memory {
    /// The bytes in use.
    pub used: u64,
    /// The limit in bytes; `None` if there is none.
    pub limit: Option<u64>,
    /// Its `maxmemory-policy`.
    pub policy: String,
    /// The number of evicted keys since the server started.
    pub evicted: u64,
}

impl Memory {
    /// Creates an entry: `used` bytes of `limit`, with the policy at the limit.
    #[must_use]
    pub fn new(used: u64, limit: Option<u64>, policy: impl Into<String>) -> Memory {
        Memory { used, limit, policy: policy.into(), evicted: 0 }
    }
}

/// When changes are synced to disk: `appendfsync`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fsync {
    /// Before the reply.
    Always,
    /// Within a second or two.
    EverySecond,
    /// Whenever the operating system does it.
    Never,
}

/// A wall clock, read over the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ClockReading {
    /// How far it is ahead of ours, in microseconds; negative if it is behind.
    pub ahead_micros: i64,
    /// The maximum error: half the round trip.
    pub uncertainty: Duration,
}

impl ClockReading {
    /// Creates a reading of `ahead_micros` microseconds, plus or minus `uncertainty`.
    #[must_use]
    pub fn new(ahead_micros: i64, uncertainty: Duration) -> ClockReading {
        ClockReading { ahead_micros, uncertainty }
    }
}

/// A permission that a node's user lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MissingPermission {
    /// The refused command.
    pub command: &'static str,
    /// The feature that needs the command.
    pub need: Feature,
    /// What exactly is missing.
    pub missing: Missing,
    /// The error text of the server.
    pub words: String,
}

impl MissingPermission {
    /// Creates an entry: the node refused `command`, which `need` requires.
    #[must_use]
    pub fn new(
        command: &'static str,
        need: Feature,
        missing: Missing,
        words: impl Into<String>,
    ) -> MissingPermission {
        MissingPermission { command, need, missing, words: words.into() }
    }
}

/// Why a command was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Missing {
    /// The user lacks a permission: the arguments of `ACL SETUSER` that grant it.
    Right(String),
    /// The server does not know the command: it is renamed or disabled, or the server is too old.
    Command,
}

/// A feature that needs permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Feature {
    /// Every lock.
    Locks,
    /// Locks with fencing tokens, which is the default.
    Fencing,
    /// Acquiring such locks without a script, which halves the load of the server.
    Speed,
    /// Waiting in a queue, so that one release wakes one process.
    Queue,
    /// Offering a lock to the next waiter, so that it changes processes in one round trip.
    Offers,
    /// Shared locks, and writers that are not starved by readers.
    Sharing,
    /// Notifying waiters, and holders that release a contended lock.
    Waiting,
}

/// The location of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Location {
    /// The host in its address; `None` for a Unix socket.
    pub host: Option<String>,
    /// The addresses that the name resolves to, if it could be resolved.
    pub addresses: Vec<IpAddr>,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
}

impl Location {
    /// Creates a location. Without a host it is a Unix socket.
    #[must_use]
    pub fn new(host: Option<String>, addresses: Vec<IpAddr>, encrypted: bool) -> Location {
        Location { host, addresses, encrypted }
    }

    /// Returns whether it is this machine, or the end of a tunnel on it.
    pub(crate) fn is_here(&self) -> bool {
        match &self.host {
            None => true,
            Some(host) if self.addresses.is_empty() => {
                host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
            }
            Some(_) => self.addresses.iter().all(|address| address.to_canonical().is_loopback()),
        }
    }
}
