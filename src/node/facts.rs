//! What one node tells of itself, as far as it does. What it does not tell is `None`, and stays
//! unknown: no absence is taken for good or bad.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::NodeError;

/// What is known of one node. A [`Node`](crate::node::Node) of your own starts with the default, which
/// knows nothing, and fills in what it can tell.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Facts {
    /// Why it could not be asked, or not to the end.
    pub trouble: Option<ConnectFailure>,
    /// The [history](crate::node::Identity) of its data: Redis' `run_id`.
    pub identity: Option<Arc<str>>,
    /// The processes that further connections to its address came to, where they are others.
    pub others: Vec<Arc<str>>,
    /// Whether it finds another connection of ours by the number that it gave it.
    pub finds_connections: Option<bool>,
    /// Which program it is.
    pub software: Option<Software>,
    /// What it is for others.
    pub role: Option<Role>,
    /// Why it may not vote, whatever else is well, where what it says of itself tells that already: a sentence.
    pub unfit: Option<Arc<str>>,
    /// Whether it still reads its data.
    pub loading: Option<bool>,
    /// For how long its process has been running, by its own calendar clock.
    pub uptime: Option<Duration>,
    /// How often its event loop has turned in that time.
    pub turns: Option<u64>,
    /// For how long clients have known its process, by their calendar clocks, if one of them has noted it.
    pub known: Option<Duration>,
    /// How many replicas follow it.
    pub replicas: Option<u64>,
    /// Whether it was a replica before it became a master.
    pub promoted: Option<bool>,
    /// If it was: for how long clients have known it as the master that it is.
    pub reign: Option<Duration>,
    /// The largest `max_ttl` that a client of this deployment has introduced itself with.
    pub max_ttl: Option<Duration>,
    /// What its Sentinels call it, if they tell where it is.
    pub service: Option<Arc<str>>,
    /// Whether it stops to write when too few replicas hear it: `min-replicas-to-write`.
    pub falls_silent: Option<bool>,
    /// What it does when its memory is full.
    pub memory: Option<Memory>,
    /// Whether it writes each change to a log on its disk.
    pub append_only: Option<bool>,
    /// When that log reaches the disk.
    pub fsync: Option<Fsync>,
    /// Whether it tells of changes, so that waiters need not ask again and again.
    pub hints: Option<bool>,
    /// How long it took to answer small requests, one after the other.
    pub round_trips: Vec<Duration>,
    /// Its calendar clock against ours.
    pub clock: Option<ClockReading>,
    /// Which of its users asks.
    pub user: Option<Arc<str>>,
    /// What its user may not do.
    pub refusals: Vec<MissingPermission>,
    /// Whether a lock could be taken, prolonged, passed on and given back.
    pub lock: Option<Result<(), NodeError>>,
    /// Whether programs that are no clients of this library lock there, and what their clocks have left behind.
    pub other_clients: Option<OtherClients>,
    /// Where it is.
    pub place: Option<Location>,
    /// Whether it is a member of a cluster that is one node. Clusters promote by themselves.
    pub of_cluster: bool,
    /// Of a member of a cluster: whether it serves nothing while any slot has no master.
    pub full_coverage: Option<bool>,
    /// Of a cluster: the masters that locks may be at.
    pub shards: Vec<ShardFacts>,
    /// Of a cluster: how many of the 16384 slots have no master.
    pub unserved: Option<u16>,
}

/// Programs that lock in the same store and are no clients of this library.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OtherClients {
    /// What they are, and by which clocks they go: a clause, such as "other clients lock there, too".
    pub who: &'static str,
    /// What is wrong with a clock of theirs, where the store shows it: a clause with the evidence.
    pub clock: Option<Arc<str>>,
    /// What to do so that all go by the clock of the store.
    pub cure: &'static str,
}

impl OtherClients {
    /// These, of whose clocks nothing is known.
    #[must_use]
    pub fn new(who: &'static str, cure: &'static str) -> OtherClients {
        OtherClients { who, clock: None, cure }
    }
}

/// One master of a cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardFacts {
    /// Its address.
    pub master: Arc<str>,
    /// How many of the 16384 slots it serves.
    pub slots: u16,
    /// How many replicas follow it, by the cluster's own account.
    pub replicas: u64,
    /// What it tells.
    pub facts: Facts,
}

impl ShardFacts {
    /// A master that serves so many slots.
    #[must_use]
    pub fn new(master: Arc<str>, slots: u16, replicas: u64, facts: Facts) -> ShardFacts {
        ShardFacts { master, slots, replicas, facts }
    }
}

/// Why a node could not be asked. The [kind](NodeError::kind) of the error makes the finding.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConnectFailure {
    /// What is wrong.
    pub error: NodeError,
    /// What cures it, where that is something else than the cure of the finding.
    pub cure: Option<&'static str>,
}

impl ConnectFailure {
    /// This is wrong.
    #[must_use]
    pub fn new(error: NodeError) -> ConnectFailure {
        ConnectFailure { error, cure: None }
    }

    /// The same, and what cures it.
    #[must_use]
    pub fn cured_by(self, cure: &'static str) -> ConnectFailure {
        ConnectFailure { cure: Some(cure), ..self }
    }
}

/// Which program a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Software {
    /// `redis` or `valkey`.
    pub name: &'static str,
    /// Its version, as it writes it.
    pub version: String,
}

impl Software {
    /// The program `name` of this version.
    #[must_use]
    pub fn new(name: &'static str, version: impl Into<String>) -> Software {
        Software { name, version: version.into() }
    }

    /// The numbers of its version, as far as they are numbers.
    pub(crate) fn numbers(&self) -> [u32; 3] {
        let mut parts = self.version.split('.').map(|part| part.parse().unwrap_or(0));
        [(); 3].map(|()| parts.next().unwrap_or(0))
    }
}

/// What a server is for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Role {
    /// An independent master, which may vote.
    Master,
    /// A copy of another one.
    Replica,
    /// A master that takes over what other masters have: an active replica of `KeyDB`.
    ActiveReplica,
    /// A member of a cluster.
    ClusterMember,
    /// A whole cluster, which may vote.
    Cluster,
    /// A Sentinel, which stores no keys.
    Sentinel,
}

/// How a node uses its memory.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Memory {
    /// How many bytes it uses.
    pub used: u64,
    /// How many it may use; `None` if there is no limit.
    pub limit: Option<u64>,
    /// Its `maxmemory-policy`.
    pub policy: String,
    /// How many keys it has evicted since its start.
    pub evicted: u64,
}

impl Memory {
    /// `used` bytes of `limit`, with what happens at the limit.
    #[must_use]
    pub fn new(used: u64, limit: Option<u64>, policy: impl Into<String>) -> Memory {
        Memory { used, limit, policy: policy.into(), evicted: 0 }
    }
}

/// When changes reach the disk: `appendfsync`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fsync {
    /// Before they are answered.
    Always,
    /// Within a second or two.
    EverySecond,
    /// When the operating system gets to it.
    Never,
}

/// A calendar clock, read over a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ClockReading {
    /// How far it is ahead of ours, in microseconds; negative if it is behind.
    pub ahead_micros: i64,
    /// By how much that may be wrong: half the round trip.
    pub uncertainty: Duration,
}

impl ClockReading {
    /// So many microseconds ahead of ours, give or take the uncertainty.
    #[must_use]
    pub fn new(ahead_micros: i64, uncertainty: Duration) -> ClockReading {
        ClockReading { ahead_micros, uncertainty }
    }
}

/// Something that a node's user may not do.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MissingPermission {
    /// The command.
    pub command: &'static str,
    /// What needs it.
    pub need: Feature,
    /// What is missing.
    pub missing: Missing,
    /// The server's own words.
    pub words: String,
}

impl MissingPermission {
    /// The node refused `command`, which `need` needs.
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
    /// The user lacks a right: words for `ACL SETUSER` that grant it.
    Right(String),
    /// The server does not know the command: it is renamed or disabled there, or the server is too old.
    Command,
}

/// What needs a right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Feature {
    /// Every lock.
    Locks,
    /// Locks with fencing tokens, which is the default.
    Fencing,
    /// Acquiring such locks without a script, which costs the server half.
    Speed,
    /// Waiting in a queue, so that one release wakes one process.
    Queue,
    /// Offering a lock to the next who waits for it, so that it goes from process to process in one trip.
    Offers,
    /// Voting again after a promotion.
    Promotion,
    /// Shared locks, and writers that readers are not to starve.
    Sharing,
    /// Semaphores.
    Semaphores,
    /// Telling waiters, and whoever releases a lock that others want it.
    Waiting,
}

/// Where a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Location {
    /// The name in its address; `None` for a Unix socket.
    pub host: Option<String>,
    /// What the name stands for, if that was found out.
    pub addresses: Vec<IpAddr>,
    /// Whether what is said on the way there is encrypted.
    pub encrypted: bool,
}

impl Location {
    /// The host of this name and these addresses; no name is a Unix socket.
    #[must_use]
    pub fn new(host: Option<String>, addresses: Vec<IpAddr>, encrypted: bool) -> Location {
        Location { host, addresses, encrypted }
    }

    /// Whether it is this machine, or the end of a tunnel on it.
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
