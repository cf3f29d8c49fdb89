//! What a check-up may find: the one list of all findings.

use std::fmt;
use std::sync::Arc;

/// One thing that a check-up found.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Of what it was found.
    pub subject: Subject,
    /// What was found.
    pub check: Check,
    /// The sentence, with the evidence.
    pub evidence: String,
    /// What to do about it.
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

/// How bad a finding is. The worst comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Severity {
    /// Two holders at a time may come of it, without anybody making another mistake.
    Unsafe,
    /// Locks are, or will soon be, harder to get or to keep; or one more mistake makes it unsafe.
    Warning,
    /// It could not be found out.
    Unknown,
    /// Good to know.
    Note,
}

impl Severity {
    /// In one word.
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

/// Of what something was found.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Subject {
    /// All nodes together.
    Deployment,
    /// The node of this name.
    Node(Arc<str>),
}

/// Makes the list: for each matter a word that stays, what it means, and the usual cure.
macro_rules! matters {
    ($($name:ident $code:literal $meaning:literal $cure:literal)*) => {
        /// What can be found. [`Check::code`] stays the same, for programs.
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
    /// All of them.
    pub const ALL: &[Check] = MATTERS;

    /// A word for programs.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.words().0
    }

    /// What to do about it, as a rule.
    #[must_use]
    pub fn cure(self) -> &'static str {
        self.words().1
    }
}

matters! {
    NoQuorum "no-quorum"
        "Too few nodes can vote: no lock can be acquired."
        "mend the nodes that do not vote; their findings say how"
    NoSpare "no-spare"
        "As many nodes vote as are needed: none may fail."
        "mend the nodes that do not vote; their findings say how"
    OneNode "one-node"
        "There is one node: its failure ends all locking, and exclusion rests on what it remembers."
        "fine for locks that only save work; else use three independent masters, which tolerate the loss of one, or five, which tolerate two"
    OneHost "one-host"
        "The one node is of this host: it keeps the programs of this host apart, and no others."
        "fine where all that use its locks run on this host, or in containers of it; else use masters that every host reaches"
    FewNodes "few-nodes"
        "There are fewer than three nodes, so none may fail."
        "use three independent masters, which tolerate the loss of one, or five, which tolerate two"
    EvenNodes "even-nodes"
        "An even number of nodes tolerates no more failures than one node less."
        "add a node, or take one away"
    SameServer "same-server"
        "Two addresses lead to the same server process. This library counts it once; other Redlock clients count it twice."
        "give each node a server of its own, or take one of the addresses out at every client"
    SeveralServers "several-servers"
        "Connections to the address lead to several servers, as behind a balancer: what one of them grants the other does not know. This library refuses it where it shows; other clients do not."
        "give each server an address of its own, past the balancer, and make each a node or none"
    Proxy "proxy"
        "A proxy that understands the protocol seems to be before the server. A connection to it outlives the server behind it, and then a restart or a failover goes unseen."
        "give the address of the server itself; what passes bytes on, such as HAProxy in its TCP mode before one server, is fine"
    Unreachable "unreachable"
        "Nobody answers at the address."
        "start the server, or mend the way to it: address, firewall, `bind`"
    Login "login"
        "The server wants a password, or another one."
        "give user and password of an ACL user: QUORLOCK_PASSWORD, --password-file, `Builder::password`"
    ProtectedMode "protected-mode"
        "The server has no password and so talks to its own machine only."
        "give its users passwords, and do not switch `protected-mode` off instead"
    Tls "tls"
        "No TLS came about between us."
        "see what the sentence says of the certificate; name the authority with --tls-ca, or `Tls::authority`"
    Failed "failed"
        "The server answers, and not as a lock server does."
        "give the address of a Redis server from 6.0 on, or of a Valkey server"
    Replica "replica"
        "The server is a replica: it does not vote, since its copy may lag behind."
        "give the address of an independent master"
    ActiveReplica "active-replica"
        "The server takes over what other masters have, and they what it has (`active-replica` of `KeyDB`): the last write wins, so a lock that it granted is overwritten. This library does not count it; for other Redlock clients two such servers are two votes of one keyspace."
        "set `active-replica no` at it, or give a server that is a master alone"
    Unfit "unfit"
        "What the server says of itself rules its vote out: it is no plain master, or does not tell a restart or a promotion."
        "give the address of an independent master, of Redis or Valkey"
    Sentinel "sentinel"
        "The server is a Sentinel, which stores no keys and does not vote."
        "give the address of an independent master"
    ClusterMember "cluster-member"
        "The server is a member of a cluster, and was given as a node of its own. This library does not count it; for other Redlock clients its failover forgets locks."
        "give the whole cluster as one node, `redis+cluster://host:port,host:port`, or a server of its own with `cluster-enabled no`"
    SlotsUncovered "slots-uncovered"
        "Some slots of the cluster have no master: no lock can be acquired there whose key is in one of them."
        "bring their master back; or give the slots to others with `redis-cli --cluster fix`, and then wait for the longest TTL, since their keys are gone"
    NoReplica "no-replica"
        "A master of the cluster has no replica: when it dies, its slots have nobody until it is back."
        "give it a replica, or leave it so: the other nodes go on"
    FullCoverage "full-coverage"
        "The cluster serves no key at all while one slot has no master."
        "set `cluster-require-full-coverage no` at its members: then the loss of one master takes the locks of its slots only"
    Loading "loading"
        "The server still reads its data, and votes when it is done."
        "wait for it"
    Replicas "replicas"
        "Replicas follow the server: when one of them takes its place, it may lack locks."
        "detach them (`REPLICAOF NO ONE` there), and see that neither Sentinel nor an operator promotes one under this address"
    TwoMasters "two-masters"
        "Only the word of the Sentinels keeps a master that was replaced from voting beside its successor."
        "set `min-replicas-to-write 1`, and `min-replicas-max-lag` at least two seconds below Sentinel's `down-after-milliseconds`, on every server of the service"
    Promoted "promoted"
        "The server was a replica before it was a master: locks that had not reached it are forgotten."
        "leave the restart guard on, which counts a promotion as a restart; with several nodes do without failover: their number is the failover"
    Eviction "eviction"
        "The server may evict locks when its memory is full."
        "set `maxmemory-policy noeviction`: then it refuses new locks instead of forgetting old ones"
    MemoryFull "memory-full"
        "The memory of the server is nearly full, and then it grants nothing."
        "raise `maxmemory`, or give locks a server of their own"
    Restarted "restarted"
        "The server started less than the longest TTL ago, and may have forgotten locks that are still held."
        "wait; or, if it cannot have forgotten any, as after its very first start, let it vote with `--restart-guard off` (`RestartGuard::Off`) this once"
    ClockStepped "clock-stepped"
        "The clock of the server was put forward after its process had started, so that it looks older than it is. The restart guard goes by what the first client has noted."
        "start the server when its clock is right: `After=time-sync.target` in its unit, with `systemd-time-wait-sync` or `chrony-wait` enabled"
    MaxTtl "max-ttl"
        "Clients of the deployment have different `max_ttl`: those with the smaller count a restarted node too early."
        "set one `max_ttl` at every client, as long as the longest TTL of any: `Builder::max_ttl`, --max-ttl, `max-ttl` in the file"
    NotPersistent "not-persistent"
        "The server may forget what it granted when it restarts."
        "leave the restart guard on, which has it wait; or set `appendonly yes` and `appendfsync always`"
    MissingRight "missing-right"
        "The user of the node lacks a right."
        "grant what the sentence names"
    LockFails "lock-fails"
        "A lock could not be taken and given back there."
        "see what the server says; `CONFIG`, scripts and rights are the usual suspects"
    OldVersion "old-version"
        "The server is older than any that is tested."
        "use Redis 6.0 or newer, or Valkey"
    KnownHole "known-hole"
        "The version has a known hole in Lua (CVE-2025-49844): whoever may run scripts may run code on the server."
        "update to 6.2.20, 7.2.11, 7.4.6, 8.0.4, 8.2.2 or Valkey 7.2.11, 8.0.6, 8.1.4, or newer; a distribution may have mended an older one without telling by its number"
    NoHints "no-hints"
        "The server does not tell of changes, so waiters ask again after pauses."
        "use a server that speaks RESP3, with `+client|tracking` for the user"
    SlowNode "slow-node"
        "The time limit of the node is shorter than some of its round trips, so its votes come too late."
        "raise the node timeout (--node-timeout, `Builder::node_timeout`)"
    ShortTtl "short-ttl"
        "The TTL is short against the round trips: a round is cut off after a quarter of it."
        "use a longer TTL, or nodes that are nearer"
    ClockSpread "clock-spread"
        "Calendar clocks differ. Exclusion does not depend on them; fencing tokens after a loss of counters do."
        "let NTP or chrony set the clocks of the servers and of the clients"
    ClientClocks "client-clocks"
        "Programs that are no clients of this library lock in the same store, and may go by their own clocks: a clock that is ahead takes a lock that is held."
        "let every client go by the clock of the store"
    SharedHost "shared-host"
        "Several nodes are at the same address, and fail together."
        "put each node on a machine of its own"
    SharedNetwork "shared-network"
        "Several nodes are in the same network, and may fail together."
        "put the nodes into different zones, unless they fail independently as it is"
    Loopback "loopback"
        "Nodes are on this machine, or behind tunnels on it."
        "fine for tests; else put each node on a machine of its own"
    PlainText "plain-text"
        "Tokens and passwords travel unencrypted."
        "use rediss:// addresses, or a network that nobody else can listen to"
    Untold "untold"
        "The server does not tell some of what a check-up needs."
        "look on the server itself, or grant the check-up the right to ask: `+info +config|get +time`"
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}
