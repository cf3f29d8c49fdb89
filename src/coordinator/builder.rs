//! The settings of a coordinator, and the check that they can work.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::runtime::tasks::Tasks;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Coordinator;
use crate::engine::context::{EngineContext, context};
use crate::engine::offer_inbox::{Inbox, Offers, Time};
use crate::engine::options::{Options, check_label};
use crate::engine::queue::{HintSink, WaitQueues};
use crate::error::{ConfigError, LEAST_TTL, TEN_YEARS, TIMEOUTS_IN_A_TTL};
use crate::node::catch_panic::Contained;
use crate::node::lists::NodeLists;
use crate::node::max_ttls::MaxTtls;
use crate::node::password::Password;
use crate::node::{Capability, Kinds, MaxTtlNotes, Node, NodeKind, Reach, Seams, risk_of_one};
use crate::quorum::members::Nodes;
use crate::redis::RedisKind;
use crate::runtime::clock::Clock;
use crate::runtime::entropy::Entropy;
use crate::telemetry::Meters;
use crate::transport::Dial;
#[cfg(feature = "tls")]
use crate::transport::{SystemDial, Tls};
use quorlock_protocol::{Drift, InboxId, MOST_LOGGED, Quarantine, Quorum, Resource};

/// Whether the votes of nodes that restarted recently count.
///
/// A node that restarted without its data would grant locks that are still held, and so would a
/// replica that was promoted before all of them had reached it: a promotion counts as a restart. Every
/// client of a deployment must use the guard, or it protects none of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RestartGuard {
    /// They count once the node has been up, and a master, for longer than any lock can live: `max_ttl` and the drift
    /// allowance. A server does not report when it was promoted, so the first client that connects to it stores the
    /// time there, under `PREFIX{…}:quorlock:gate:master_since`.
    On,
    /// They count immediately. For servers that were started for the first time just now, as in tests, and for nodes
    /// that cannot forget: with `appendfsync always`. Clients do not compare their nodes and their
    /// [`max_ttl`](Builder::max_ttl) then.
    Off,
}

/// Settings of a [`Coordinator`].
#[derive(Debug)]
#[must_use = "call `build` to get a coordinator"]
pub struct Builder {
    kinds: Kinds,
    urls: Vec<HiddenUrl>,
    custom: Vec<Arc<dyn Node>>,
    /// What the nodes are made with, but for what [`build`](Builder::build) adds.
    seams: Seams,
    quorum: Option<usize>,
    drift: f64,
    ttl: Option<Duration>,
    max_ttl: Option<Duration>,
    guard: RestartGuard,
    time: Time,
    /// Whether it only looks at locks.
    looks_only: bool,
    /// How many holds of each lock the nodes keep in its log.
    log: usize,
}

/// A URL, which may have a password in it.
struct HiddenUrl(String);

impl fmt::Debug for HiddenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Default for Kinds {
    /// Redis and Valkey.
    fn default() -> Kinds {
        Kinds::of_one(RedisKind)
    }
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            kinds: Kinds::default(),
            urls: Vec::new(),
            custom: Vec::new(),
            seams: Seams::default(),
            quorum: None,
            drift: Drift::default().factor(),
            ttl: None,
            max_ttl: None,
            guard: RestartGuard::On,
            time: Time::Real,
            looks_only: false,
            log: 0,
        }
    }
}

const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// How long the first use waits for a quorum of nodes to connect, unless a connect timeout is set. Servers that cannot
/// be reached usually fail sooner.
const LONGEST_INTRODUCTION: Duration = Duration::from_secs(10);
/// No deployment needs more, and every round asks all of them.
const MAX_NODES: usize = 31;

impl Builder {
    /// Adds Redis or Valkey servers: `redis://[user[:password]@]host[:port][/db]`, `rediss://` with
    /// the feature `tls`, `valkey://`, `redis+unix:///path/to/socket`, or only `host:port`. An odd
    /// number of independent masters: three tolerate the loss of one, five of two.
    ///
    /// One node works, and has no quorum: while it is down nothing is locked, and exclusion rests on
    /// what that one server remembers. That is for locks that save work, and not for those that guard
    /// data.
    ///
    /// A node may be a master that Sentinels replace when it fails, `redis+sentinel://host,host/service`:
    /// all its Sentinels, and the name that they have for it. That is one node, also where it has
    /// replicas. They copy what was granted a moment later, so a failover may forget a lock; the
    /// [restart guard](Builder::restart_guard) waits until all that may have been forgotten has run out.
    /// A whole Redis Cluster is one node as well, `redis+cluster://host:port,host:port`: see
    /// [`ClusterAddress`](crate::redis::ClusterAddress). `docs/topologies.md` has what happens to a lock in each
    /// case.
    ///
    /// Nodes of other [kinds](Builder::kind) can be among them. Each text is one address:
    /// [`Kinds::split`](crate::node::Kinds::split) makes them of a list with commas, such as a variable has.
    pub fn nodes<Url: AsRef<str>>(mut self, urls: impl IntoIterator<Item = Url>) -> Builder {
        self.urls.extend(urls.into_iter().map(|url| HiddenUrl(url.as_ref().to_owned())));
        self
    }

    /// Lets [`nodes`](Builder::nodes) name nodes of one more kind, by the schemes of that.
    pub fn kind(mut self, kind: impl NodeKind) -> Builder {
        self.kinds = self.kinds.with(kind);
        self
    }

    /// Replaces the kinds that [`nodes`](Builder::nodes) can name.
    pub fn kinds(mut self, kinds: Kinds) -> Builder {
        self.kinds = kinds;
        self
    }

    /// Adds nodes that are ready: in-memory ones in tests, or your own.
    pub fn custom_nodes<N: Node>(mut self, nodes: impl IntoIterator<Item = N>) -> Builder {
        self.custom.extend(nodes.into_iter().map(|node| Arc::new(node) as Arc<dyn Node>));
        self
    }

    /// The ACL user for nodes whose URL names none.
    pub fn username(mut self, username: impl Into<String>) -> Builder {
        self.seams.username = Some(Into::<String>::into(username).into());
        self
    }

    /// The password for nodes whose URL has none. It appears in no message.
    pub fn password(mut self, password: impl Into<String>) -> Builder {
        self.seams.password = Password::Fixed(Into::<String>::into(password).into());
        self
    }

    /// The password for nodes whose URL has none, from the first line of a file. It is read again for each new
    /// connection, as the files of [`Tls`](crate::transport::Tls) are: a password that has changed is used without a
    /// restart, and connections that are open stay.
    pub fn password_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.seams.password = Password::from_file(file.into());
        self
    }

    /// The password for nodes whose URL has none, from a function that is called for new connections, such as one that
    /// asks a secrets manager. It may block for up to 5 s, on a thread of its own; connections that begin within a second
    /// of each other share one call, and there is no second call before the first has returned. While it fails, no
    /// connection is made, and nodes that are connected stay. Its errors must not have the password in their text.
    pub fn password_source(
        mut self,
        read: impl Fn() -> io::Result<String> + Send + Sync + 'static,
    ) -> Builder {
        self.seams.password = Password::from_source(read);
        self
    }

    /// How many nodes must grant. A majority unless set, and never less. More tolerates nodes that
    /// forget what they granted, and costs availability; every client must use the same.
    pub fn quorum(mut self, needed: usize) -> Builder {
        self.quorum = Some(needed);
        self
    }

    /// The share of the TTL given up because clocks run at different rates: 0.01 unless set, as
    /// Redlock clients agree on, and at most 0.5. NTP may slew a clock faster than that.
    pub fn drift(mut self, factor: f64) -> Builder {
        self.drift = factor;
        self
    }

    /// The TTL of locks that set none. 30 s unless set, or [`max_ttl`](Builder::max_ttl) where that is
    /// shorter: see [`Lock::ttl`](crate::Lock::ttl). More than 30 s is refused unless `max_ttl` is set.
    pub fn ttl(mut self, ttl: Duration) -> Builder {
        self.ttl = Some(ttl);
        self
    }

    /// The longest TTL that any client of the deployment may ask for: restarted nodes are not
    /// counted for that long. 30 s unless set: the shorter, the sooner a restarted node votes again.
    ///
    /// Every client must use the same. Each leaves its own at the nodes when it connects, unless its
    /// [restart guard](RestartGuard::Off) is off, under `PREFIX{…}:quorlock:gate:max-ttl`, for a month; a client that
    /// finds another one there, then or later, warns, [tells the program](Coordinator::warnings), and waits for
    /// restarted nodes as long as the larger asks for. The list of nodes of each client is compared likewise, under
    /// `PREFIX{…}:quorlock:gate:lists`. PostgreSQL servers have a table for the `max_ttl`. Nodes of other kinds may do
    /// the same by [`Seams::max_ttl`](crate::node::Seams::max_ttl).
    pub fn max_ttl(mut self, max_ttl: Duration) -> Builder {
        self.max_ttl = Some(max_ttl);
        self
    }

    /// How long a round waits for one node: this, whatever its round trip. Unless set, a second, or four
    /// of the node's round trips with what they vary by, if that is more, and at most a quarter of the TTL.
    ///
    /// A lock that a quorum grants does not wait for it, nor does one that others hold. It says how soon a
    /// lock is given up that too few nodes answer for: so there is little to gain by a smaller number.
    /// The TTL must be ten times as long.
    pub fn node_timeout(mut self, timeout: Duration) -> Builder {
        self.seams.node_timeout = Some(timeout);
        self
    }

    /// Sets how long opening a connection may take in total, handshake included. Default: two seconds for each step,
    /// without a limit on the total; the steps are dialling, TLS, and each of the one or two exchanges that follow. It
    /// delays no round, but the first use of a coordinator waits this long where a quorum of nodes does not answer.
    pub fn connect_timeout(mut self, timeout: Duration) -> Builder {
        self.seams.connect_timeout = Some(timeout);
        self
    }

    /// Sets whether nodes that restarted recently are kept from voting. Default: on; off is safe only for nodes that
    /// never forget.
    pub fn restart_guard(mut self, guard: RestartGuard) -> Builder {
        self.guard = guard;
        self
    }

    /// Sets whether, when this process crashes, its child processes keep the lock. Default: `false`, where the lock is
    /// kept until its TTL ends.
    ///
    /// With `true`, a node on this host may free the lock earlier: when this process and all processes that inherited
    /// its open files have exited. It detects that by a lock on a file, whose descriptor *every* child process then
    /// inherits. Set it where all children belong to the work under the lock, as under `quorlock run`, and none of them
    /// closes inherited files and continues.
    pub fn kept_by_children(mut self, kept: bool) -> Builder {
        self.seams.kept_by_children = kept;
        self
    }

    /// Sets whether the coordinator only looks at locks, and takes none: it then leaves no note of its `max_ttl` and its
    /// list of nodes, by which other clients would be warned of it for a month, and hears of none.
    #[doc(hidden)]
    pub fn looks_only(mut self, looks_only: bool) -> Builder {
        self.looks_only = looks_only;
        self
    }

    /// Sets the prefix of every key, before the resource name. Default: empty, so that Redlock clients in other languages
    /// that use the bare name are excluded; some use `redlock:`. At most as long as a name, 1,024 bytes.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Builder {
        self.seams.key_prefix = Into::<String>::into(prefix).into();
        self
    }

    /// Sets the label that others see of this program while it holds a lock, after `host:pid`. Default: empty. At
    /// most 200 bytes.
    pub fn label(mut self, label: impl Into<String>) -> Builder {
        self.seams.label = Into::<String>::into(label).into();
        self
    }

    /// Sets how many holds of each lock the nodes keep in a log, for [`Lock::log`](crate::Lock::log) and `quorlock log`: who
    /// held the lock, from when and for how long, and how that ended. Default: 0, so that none are logged, since each costs a
    /// request to every node and some 150 bytes there. At most 200.
    ///
    /// A hold is written after it has ended, by a request that no caller waits for. So that of a process which was killed,
    /// or is cut off from the nodes, is missing. The nodes drop the oldest, and all a week after the last. Redis and Valkey
    /// servers keep logs, and clusters; nodes of other [kinds](Builder::kind) do not, unless they say so by
    /// [`Capability::Log`](crate::node::Capability::Log).
    pub fn log(mut self, holds: usize) -> Builder {
        self.log = holds;
        self
    }

    /// Replaces the clock, in tests and simulations.
    pub fn clock(mut self, clock: impl Clock) -> Builder {
        self.seams.clock = Arc::new(clock);
        self.time = Time::Simulated;
        self
    }

    /// Replaces the source of randomness, in simulations.
    pub fn entropy(mut self, entropy: impl Entropy) -> Builder {
        self.seams.entropy = Arc::new(entropy);
        self
    }

    /// Sets the certificates to trust and to present at `rediss://` addresses. Replaces the setting of
    /// [`dial`](Builder::dial); a dialler of your own can use [`SystemDial::with_tls`].
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Builder {
        self.seams.dial = Arc::new(SystemDial::with_tls(tls.clone()));
        self.seams.tls = tls;
        self
    }

    /// Replaces how connections are opened, in simulations.
    pub fn dial(mut self, dial: impl Dial) -> Builder {
        self.seams.dial = Arc::new(dial);
        self
    }

    /// Checks all settings, and reads the files that they name. Connects to no node.
    ///
    /// # Errors
    ///
    /// Names the setting that cannot work, and one that would.
    pub fn build(self) -> Result<Coordinator, ConfigError> {
        let drift = Drift::of(self.drift).ok_or(ConfigError::Drift { factor: self.drift })?;
        let max_ttl = self.max_ttl.unwrap_or(DEFAULT_TTL);
        let ttl = if self.looks_only {
            // It takes no lock, so that of a lock need not work.
            max_ttl
        } else {
            self.ttl.unwrap_or(DEFAULT_TTL.min(max_ttl))
        };
        self.check(max_ttl)?;
        let count = self.urls.len() + self.custom.len();
        if count == 0 {
            return Err(ConfigError::NoNodes);
        }
        if count > MAX_NODES {
            return Err(ConfigError::TooManyNodes { given: count, most: MAX_NODES });
        }
        let quorum = match self.quorum {
            None => Quorum::majority(count),
            Some(needed) => Quorum::of(needed, count).ok_or(ConfigError::Quorum { needed, nodes: count })?,
        };
        debug_assert!(2 * quorum.needed() > count, "any two quorums have a node in common");
        let max_ttls = Arc::new(MaxTtls::new(max_ttl, drift, quorum));
        let lists = NodeLists::new(quorum);
        let nodes = self.make_nodes(&max_ttls, &lists)?;
        debug_assert_eq!(nodes.len(), quorum.nodes(), "each node has one vote");
        let alone = |reach| nodes.iter().find(|node| count > 1 && node.capabilities().reach == reach);
        if let Some(node) = alone(Reach::OneHost) {
            return Err(ConfigError::OneHostOfSeveral { name: node.name().into() });
        }
        if let Some(node) = alone(Reach::SharedWithOthers) {
            return Err(ConfigError::SharedStoreOfSeveral { name: node.name().into() });
        }
        if let [node] = &nodes[..]
            && let Some(risk) = risk_of_one(node.capabilities())
        {
            info!(node = node.name(), "one node: {risk}");
        }
        let logged = self.logged(&nodes);
        let quarantine = match self.guard {
            RestartGuard::On => Quarantine::new(max_ttl, drift),
            RestartGuard::Off => Quarantine::none(),
        };
        debug_assert!(
            self.guard == RestartGuard::Off || quarantine.length() >= max_ttl,
            "a restarted node does not vote before every lock that it may have lost has expired (rule I-12)"
        );
        let least_ttl = self
            .seams
            .node_timeout
            .map_or(LEAST_TTL, |limit| LEAST_TTL.max(limit.saturating_mul(TIMEOUTS_IN_A_TTL)));
        let (queues, readers) = (Arc::<WaitQueues>::default(), Arc::<WaitQueues>::default());
        let offers = Arc::new(Offers::new(InboxId::new(self.seams.entropy.next_u64()), self.time));
        for (node, listened) in nodes.iter().enumerate() {
            for queues in [&queues, &readers] {
                listened.listen(Arc::new(Contained(HintSink { queues: Arc::downgrade(queues), node })));
            }
            let (offers, queues) = (Arc::downgrade(&offers), Arc::downgrade(&queues));
            listened.listen(Arc::new(Contained(Inbox {
                offers,
                queues,
                clock: self.seams.clock.clone(),
                node,
            })));
            listened.observe(Arc::new(Contained(lists.observer(node, &self.seams.clock))));
        }
        let (host, label) = (host(), self.seams.label);
        let meters = Meters::new(quorum);
        let seams = (self.seams.clock, self.seams.entropy.clone());
        let nodes = Nodes::new(nodes, quorum, seams, (quarantine, max_ttls), self.seams.node_timeout);
        let (tasks, registry) = Tasks::new(nodes.timers.clone());
        let engine = EngineContext {
            nodes: Arc::new(nodes),
            lists,
            entropy: self.seams.entropy,
            drift,
            ttl,
            least_ttl,
            max_ttl,
            logged,
            introduction: self.seams.connect_timeout.unwrap_or(LONGEST_INTRODUCTION),
            key_prefix: self.seams.key_prefix,
            context: (std::process::id(), context(&host, &label).into()),
            options: Arc::new(Options::new(ttl, label.clone(), meters.lock(""))),
            label,
            host,
            number: EngineContext::next_number(),
            tasks,
            closing: CancellationToken::new(),
            queues,
            readers,
            offers: Some(offers),
            renewals: Arc::default(),
            meters,
        };
        engine.check_ttl(ttl)?;
        Ok(Coordinator {
            engine: Arc::new(engine),
            together: Arc::default(),
            semaphores: Arc::default(),
            registry,
        })
    }

    /// Checks the settings that can be wrong by themselves.
    fn check(&self, max_ttl: Duration) -> Result<(), ConfigError> {
        if max_ttl > TEN_YEARS {
            return Err(ConfigError::MaxTtlTooLong { max_ttl, most: TEN_YEARS });
        }
        let (length, most) = (self.seams.key_prefix.len(), Resource::MAX_LEN);
        if length > most {
            return Err(ConfigError::KeyPrefixTooLong { length, most });
        }
        if max_ttl < LEAST_TTL {
            return Err(ConfigError::TtlTooShort { ttl: max_ttl, least: LEAST_TTL });
        }
        if self.seams.connect_timeout.is_some_and(|limit| limit.is_zero()) {
            return Err(ConfigError::Zero { setting: "the connect timeout" });
        }
        if self.seams.node_timeout.is_some_and(|limit| limit.is_zero()) {
            return Err(ConfigError::Zero { setting: "the node timeout" });
        }
        if self.log > MOST_LOGGED {
            return Err(ConfigError::LogTooLong { holds: self.log, most: MOST_LOGGED });
        }
        check_label(&self.seams.label)?;
        self.seams.password.check().map_err(|problem| ConfigError::Password { problem })?;
        #[cfg(feature = "tls")]
        self.seams.tls.check().map_err(|problem| ConfigError::Tls { problem })?;
        Ok(())
    }

    /// Returns how many holds of each lock these nodes are to keep: none where no node keeps a log.
    fn logged(&self, nodes: &[Arc<dyn Node>]) -> usize {
        let keeps_log = |node: &Arc<dyn Node>| node.capabilities().has(Capability::Log);
        if self.log == 0 || nodes.iter().any(keeps_log) {
            return self.log;
        }
        warn!("no hold of a lock is logged: no node of these kinds keeps a log");
        0
    }

    fn make_nodes(
        &self,
        max_ttls: &Arc<MaxTtls>,
        lists: &Arc<NodeLists>,
    ) -> Result<Vec<Arc<dyn Node>>, ConfigError> {
        if let Some(scheme) = self.kinds.ambiguous_scheme() {
            return Err(ConfigError::SchemeTwice { scheme: scheme.into() });
        }
        let mut known = Vec::new();
        let mut nodes = Vec::with_capacity(self.urls.len() + self.custom.len());
        for HiddenUrl(url) in &self.urls {
            let (kind, address) = self.kinds.parse(url)?;
            let name = || address.to_string().into();
            let servers = address.servers().into_iter().map(|server| (kind, server));
            let servers: Vec<_> = servers.collect();
            if servers.iter().any(|server| known.contains(server)) {
                return Err(ConfigError::SameServerTwice { name: name() });
            }
            known.extend(servers);
            let shared =
                (!self.looks_only).then(|| (MaxTtlNotes::of(max_ttls, nodes.len()), Arc::clone(lists)));
            let (max_ttls, lists) = shared.unzip();
            let guards_restarts = self.guard == RestartGuard::On;
            let seams = Seams { guards_restarts, max_ttls, lists, ..self.seams.clone() };
            nodes.push(address.node(&seams).map_err(|problem| ConfigError::Node { name: name(), problem })?);
        }
        nodes.extend(self.custom.iter().cloned());
        Ok(nodes)
    }
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned())
}
