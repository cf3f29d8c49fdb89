//! The findings of the health check: the one list of all of them.

use std::fmt;
use std::sync::Arc;

/// One finding of the health check.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// How severe it is.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// The check that failed.
    pub check: Check,
    /// A sentence with the evidence.
    pub evidence: String,
    /// The fix.
    pub cure: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Subject::Node(node) => write!(f, "{}: {node} {}; {}", self.severity, self.evidence, self.cure),
            Subject::Deployment => write!(f, "{}: {}; {}", self.severity, self.evidence, self.cure),
        }
    }
}

/// The severity of a finding, the most severe first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Severity {
    /// Two clients may hold a lock at the same time, without any further mistake.
    Unsafe,
    /// Locks are harder to acquire or keep, or will soon be; or one more mistake makes them unsafe.
    Warning,
    /// It could not be determined.
    Unknown,
    /// Information.
    Note,
}

impl Severity {
    /// Returns the severity as one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Severity::Unsafe => "unsafe",
            Severity::Warning => "warning",
            Severity::Unknown => "unknown",
            Severity::Note => "note",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// The subject of a finding.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Subject {
    /// The deployment as a whole.
    Deployment,
    /// The node with this name.
    Node(Arc<str>),
}

/// Defines the list: for each check its stable code, its meaning, and the usual fix.
macro_rules! matters {
    ($($name:ident $code:literal $meaning:literal $cure:literal)*) => {
        /// A check of the health check. [`Check::code`] is stable, for programs.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Check {
            $(#[doc = $meaning] $name,)*
        }

        const MATTERS: &[Check] = &[$(Check::$name),*];

        impl Check {
            fn words(self) -> (&'static str, &'static str) {
                match self { $(Check::$name => ($code, $cure),)* }
            }
        }
    };
}

impl Check {
    /// All checks.
    pub const ALL: &[Check] = MATTERS;

    /// Returns the stable code, for programs.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.words().0
    }

    /// Returns the usual fix.
    #[must_use]
    pub fn cure(self) -> &'static str {
        self.words().1
    }
}

matters! {
    NoQuorum "no-quorum"
        "Too few nodes can vote: no lock can be acquired."
        "fix the nodes that do not vote, as their findings say"
    NoSpare "no-spare"
        "Only as many nodes vote as are needed: none may fail."
        "fix the nodes that do not vote, as their findings say"
    OneNode "one-node"
        "There is one node: its failure stops all locking, and exclusion depends on its memory alone."
        "fine for locks that only save work; otherwise use three independent masters, which tolerate the loss of one, or five, which tolerate two"
    OneHost "one-host"
        "The only node belongs to this host: it excludes programs on this host only."
        "fine if all users of its locks run on this host, or in its containers; otherwise use masters that every host reaches"
    FewNodes "few-nodes"
        "There are fewer than three nodes, so none may fail."
        "use three independent masters, which tolerate the loss of one, or five, which tolerate two"
    EvenNodes "even-nodes"
        "An even number of nodes tolerates no more failures than one node fewer."
        "add or remove one node"
    SameServer "same-server"
        "Two addresses lead to the same server process. This library counts it once; other Redlock clients count it twice."
        "give each node its own server, or remove one of the addresses on every client"
    SeveralServers "several-servers"
        "Connections to the address reach several servers, as behind a load balancer: one does not know what the other grants. This library refuses such an address when it detects it; other clients do not."
        "give each server its own address, bypassing the load balancer, and configure each as a node or not at all"
    Proxy "proxy"
        "There seems to be a protocol-aware proxy in front of the server. A connection to it survives the server, so a restart or failover goes unnoticed."
        "use the address of the server itself; a proxy that forwards bytes, such as HAProxy in TCP mode with one server, is fine"
    Unreachable "unreachable"
        "No server answers at the address."
        "start the server, or check the address, the firewall and `bind`"
    Unresponsive "unresponsive"
        "The server, or what is in front of it, accepts connections and does not answer."
        "look at its process, which is running: is it stopped, swapping, waiting for its disk, or busy with a long script or command (`SLOWLOG GET` of Redis)? Restart it if it does not recover"
    Login "login"
        "The server requires a password, or another one."
        "set user and password, in the address or by `Builder::username` and `Builder::password`, --username and --password-file or QUORLOCK_PASSWORD"
    ProtectedMode "protected-mode"
        "The server is in protected mode: it has no password, and accepts local connections only."
        "set passwords for its users; do not turn off `protected-mode` instead"
    Tls "tls"
        "The TLS handshake failed."
        "check the certificate as the evidence says; set the authority with --tls-ca, or `Tls::authority`"
    Failed "failed"
        "The server answers, but not like one of its kind; or it is busy or full, as the evidence says."
        "do what the error says; `redis://` is for Redis from 6.0 on, or Valkey"
    Replica "replica"
        "The server is a replica: it does not vote, since it may lag behind its master."
        "use the address of an independent master"
    ActiveReplica "active-replica"
        "The server and other masters replicate from each other (`active-replica` of `KeyDB`): the last write wins, so a lock that it granted is overwritten. This library does not count it; for other Redlock clients, two such servers are two votes of one keyspace."
        "set `active-replica no` on it, or use a server that is only a master"
    Unfit "unfit"
        "The report of the server rules out its vote: it is not a plain master, or does not show restarts or promotions."
        "use the address of an independent master, of Redis or Valkey"
    Sentinel "sentinel"
        "The server is a Sentinel, which stores no keys and does not vote."
        "use the address of an independent master"
    ClusterMember "cluster-member"
        "The server is a cluster member that was given as a node of its own. This library does not count it; for other Redlock clients, a failover of the cluster loses locks."
        "give the whole cluster as one node, `redis+cluster://host:port,host:port`, or use a separate server with `cluster-enabled no`"
    SlotsUncovered "slots-uncovered"
        "Some slots of the cluster have no master: the cluster cannot grant locks with keys in those slots."
        "restore their master; or move the slots to others with `redis-cli --cluster fix`, and then wait for the longest TTL, since their keys are lost"
    NoReplica "no-replica"
        "A master of the cluster has no replica: if it fails, its slots are not served until it is back."
        "add a replica, or leave it: the other nodes keep working"
    FullCoverage "full-coverage"
        "The cluster refuses all keys while one slot has no master."
        "set `cluster-require-full-coverage no` on its members: then the loss of one master affects the locks of its slots only"
    Loading "loading"
        "The server is still loading its data, and votes when it has finished."
        "wait for it"
    Replicas "replicas"
        "The server has replicas: one that is promoted in its place may lack locks."
        "detach them (`REPLICAOF NO ONE` there), and make sure that neither Sentinel nor an operator promotes one under this address"
    TwoMasters "two-masters"
        "Nothing but the Sentinels keeps a replaced master from voting together with its successor."
        "set `min-replicas-to-write 1`, and `min-replicas-max-lag` at least two seconds below Sentinel's `down-after-milliseconds`, on every server of the service"
    Promoted "promoted"
        "The server was a replica before it became master: locks that had not been replicated to it are lost."
        "keep the restart guard on, which treats a promotion like a restart; with several nodes, do not use failover: the other nodes replace it"
    Eviction "eviction"
        "The server may evict locks when its memory is full."
        "set `maxmemory-policy noeviction`, and keep it by `CONFIG REWRITE`: then it refuses new locks instead of forgetting old ones"
    MemoryFull "memory-full"
        "The memory of the server is nearly full; when it is full, it grants no locks."
        "raise `maxmemory`, or use a separate server for locks"
    Restarted "restarted"
        "The server started less than the longest TTL ago, and may have lost locks that are still held."
        "wait; or, if it cannot have lost any, as after its very first start, let it vote for one run with QUORLOCK_RESTART_GUARD=off in its environment (`RestartGuard::Off`)"
    ClockStepped "clock-stepped"
        "The clock of the server was set forward after its process had started, so that its uptime is too long, or its data were replaced or deleted (FLUSHALL, an older dump). The restart guard uses the time recorded by clients instead."
        "start the server after its clock is set: `After=time-sync.target` in its unit, with `systemd-time-wait-sync` or `chrony-wait` enabled"
    MaxTtl "max-ttl"
        "Clients of the deployment have different values of `max_ttl`: those with the smaller one count a restarted node too early."
        "set the same `max_ttl` on every client, at least the longest TTL of any: `Builder::max_ttl`, --max-ttl, `max-ttl` in the file"
    OtherNodes "other-nodes"
        "Another client has a different list of nodes under the same key prefix: two quorums may have no node in common."
        "give all clients the same nodes (`Builder::nodes`, --nodes, `nodes` in the file), and those of another deployment another key prefix; a list that no client has any more is forgotten within an hour; to replace a node, see \"A different list\" in docs/masters.md"
    OtherPrefixes "other-prefixes"
        "Other clients lock on these nodes under another key prefix: their locks and ours of the same name do not exclude each other."
        "fine if that is another deployment; otherwise give all clients one key prefix (`Builder::key_prefix`, --key-prefix, `key-prefix` in the file)"
    NotPersistent "not-persistent"
        "The server may lose the locks that it granted when it restarts."
        "keep the restart guard on, which makes it wait; or set `appendonly yes` and `appendfsync always`"
    NeverForgets "never-forgets"
        "The address of the node says that it loses no acknowledged write (`?forgets=never`), so its vote counts right after a restart, failover or promotion."
        "leave `?forgets=never` out unless every acknowledged write survives that, and the servers that were replaced acknowledge nothing more"
    MissingRight "missing-right"
        "The user of the node lacks a permission."
        "grant the permission named in the evidence"
    LockFails "lock-fails"
        "A test lock could not be acquired and released."
        "do what the error says; of Redis, usual causes are `CONFIG`, scripts and permissions"
    Store "store"
        "The store says of itself what matters for locks; the evidence names it."
        "do what the finding says"
    OldVersion "old-version"
        "The server is older than any tested version."
        "use Redis 6.0 or newer, or Valkey"
    KnownHole "known-hole"
        "This version has a known vulnerability in Lua (CVE-2025-49844): users that may run scripts can execute code on the server."
        "update to 6.2.20, 7.2.11, 7.4.6, 8.0.4, 8.2.2 or Valkey 7.2.11, 8.0.6, 8.1.4, or newer; distributions may have backported the fix to an older version number"
    NoHints "no-hints"
        "The server does not notify clients of changes, so waiters retry after pauses."
        "use a server that supports RESP3, and grant the user `+client|tracking`"
    SlowNode "slow-node"
        "The node timeout is shorter than some of the round trips, so votes arrive too late."
        "raise it (--node-timeout, `Builder::node_timeout`)"
    ShortTtl "short-ttl"
        "The TTL is short compared with the round trips: a round is cut off after a quarter of it."
        "use a longer TTL, or closer nodes"
    ClockSpread "clock-spread"
        "The wall clocks differ. Exclusion does not depend on them; fencing tokens after a loss of counters do."
        "synchronize the clocks of the servers and clients with NTP or chrony"
    ClientClocks "client-clocks"
        "Programs without this library lock in the same store, and may use their own clocks: one whose clock is ahead takes a lock that is still held."
        "make every client use the clock of the store"
    ExposedFiles "exposed-files"
        "Any user of the host can read or change the files in which the node keeps its locks. Who can read them can keep everyone from locks, and end jobs that hold one; who can change them can take locks away."
        "take the right from others: `chmod o-rwx` on the file and those next to it whose names begin with its name; or move it into a folder that others cannot enter"
    SharedHost "shared-host"
        "Several nodes have the same IP address, and fail together."
        "put each node on its own machine"
    SharedNetwork "shared-network"
        "Several nodes are in the same network, and may fail together."
        "put the nodes into different zones, unless they already fail independently"
    Loopback "loopback"
        "Nodes are on this machine, or reached through tunnels on it."
        "fine for tests; otherwise put each node on its own machine"
    PlainText "plain-text"
        "Tokens and passwords are sent unencrypted."
        "use rediss:// addresses, or a private network"
    Untold "untold"
        "The server does not report some facts that the health check needs."
        "check on the server itself, or grant the user the permission to ask: `+info +config|get +time`"
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}
