//! The settings of a coordinator, and the check that they can work.

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use crate::runtime::tasks::Tasks;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::Coordinator;
use crate::address::{Address, AddressError, ClusterAddress};
use crate::engine::context::{Shared, context};
use crate::engine::options::Options;
use crate::engine::queue::{Ear, Lines};
use crate::error::ConfigError;
use crate::node::Node;
use crate::node::max_ttls::MaxTtls;
use crate::protocol::{Drift, Quarantine, Quorum, gate};
use crate::quorum::members::Nodes;
#[cfg(feature = "tls")]
use crate::redis::Tls;
use crate::redis::{ClusterNode, ConnectLimit, Dial, Membership, Notices, RedisNode, Settings, SystemDial};
use crate::runtime::clock::{Clock, SystemClock};
use crate::runtime::entropy::{Entropy, SystemEntropy};
use crate::telemetry::Meters;

/// Whether the votes of nodes that restarted recently count.
///
/// A node that restarted without its data would grant locks that are still held, and so would a
/// replica that was promoted before all of them had reached it: a promotion counts as a restart. Every
/// client of a deployment must use the guard, or it protects nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RestartGuard {
    /// They count once the node has been up, and a master, for longer than any lock can live:
    /// `max_ttl` and the allowance for drift. When a server was promoted, it does not say; so the first
    /// client that meets it notes the time there, under `quorlock:gate:{PREFIX}:reign`.
    On,
    /// They count at once. Right for servers that were started just now for the first time, such
    /// as in tests, and for nodes that cannot forget: with `appendfsync always`.
    Off,
}

/// Settings of a [`Coordinator`].
#[derive(Debug)]
#[must_use = "call `build` to get a coordinator"]
pub struct Builder {
    /// Parsed at once: a URL in plain text may have a password in it.
    addresses: Vec<Result<Site, AddressError>>,
    custom: Vec<Arc<dyn Node>>,
    username: Option<String>,
    password: Option<Secret>,
    quorum: Option<usize>,
    drift: f64,
    ttl: Option<Duration>,
    max_ttl: Option<Duration>,
    node_limit: Option<Duration>,
    connect_limit: Option<Duration>,
    guard: RestartGuard,
    key_prefix: String,
    label: String,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    dial: Arc<dyn Dial>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

/// Where a node is.
#[derive(Clone, Debug)]
enum Site {
    Server(Address),
    Cluster(ClusterAddress),
}

impl Site {
    fn parse(text: &str) -> Result<Site, AddressError> {
        if ClusterAddress::is_meant(text) {
            ClusterAddress::parse(text).map(Site::Cluster)
        } else {
            Address::parse(text).map(Site::Server)
        }
    }

    fn servers(&self) -> &[Address] {
        match self {
            Site::Server(address) => slice::from_ref(address),
            Site::Cluster(cluster) => cluster.seeds(),
        }
    }

    fn node(self, settings: Settings) -> Arc<dyn Node> {
        match self {
            Site::Server(address) => Arc::new(RedisNode::with(address, settings)),
            Site::Cluster(address) => Arc::new(ClusterNode::with(address, settings)),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Site::Server(address) => address.fmt(f),
            Site::Cluster(cluster) => cluster.fmt(f),
        }
    }
}

/// A password, which nobody gets to see.
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            addresses: Vec::new(),
            custom: Vec::new(),
            username: None,
            password: None,
            quorum: None,
            drift: Drift::default().factor(),
            ttl: None,
            max_ttl: None,
            node_limit: None,
            connect_limit: None,
            guard: RestartGuard::On,
            key_prefix: String::new(),
            label: String::new(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            dial: Arc::new(SystemDial::default()),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// How long a vote waits for replicas, unless a node limit is set: all that is asked behind it waits, too.
const DEFAULT_COPY_LIMIT: Duration = Duration::from_millis(25);
/// How long the first use waits for a quorum of nodes to be contacted, unless a connect limit is set. Those
/// that are servers say sooner that they cannot be.
const LONGEST_INTRODUCTION: Duration = Duration::from_secs(10);
/// No deployment needs more, and every round asks all of them.
const MAX_NODES: usize = 31;
/// Below this the milliseconds that Redis rounds to are too large a share of a TTL.
const LEAST_TTL: Duration = Duration::from_millis(20);
/// The TTL must be so many times the node limit, so that a hung node costs a small share of it.
const LIMITS_IN_A_TTL: u32 = 10;

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
    /// `?wait=1` behind an address has a vote count only when a replica has confirmed it:
    /// [`Address::wait`]. A whole Redis Cluster is one node as well,
    /// `redis+cluster://host:port,host:port`: see [`ClusterAddress`]. `docs/topologies.md` has what
    /// happens to a lock in each case.
    pub fn nodes<Url: AsRef<str>>(mut self, urls: impl IntoIterator<Item = Url>) -> Builder {
        self.addresses.extend(urls.into_iter().map(|url| Site::parse(url.as_ref())));
        self
    }

    /// Adds nodes of another kind: in-memory ones in tests, or your own.
    pub fn custom_nodes<N: Node>(mut self, nodes: impl IntoIterator<Item = N>) -> Builder {
        self.custom.extend(nodes.into_iter().map(|node| Arc::new(node) as Arc<dyn Node>));
        self
    }

    /// The ACL user for nodes whose URL names none.
    pub fn username(mut self, username: impl Into<String>) -> Builder {
        self.username = Some(username.into());
        self
    }

    /// The password for nodes whose URL has none. It appears in no message.
    pub fn password(mut self, password: impl Into<String>) -> Builder {
        self.password = Some(Secret(password.into()));
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
    /// Every client must use the same. Each leaves its own at the nodes when it connects, under
    /// `quorlock:gate:{PREFIX}:max-ttl`, for a month; a client that finds another one there warns,
    /// [tells the program](Coordinator::noticed), and waits for restarted nodes as long as the larger asks
    /// for. Custom nodes keep no such note.
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
    pub fn node_limit(mut self, limit: Duration) -> Builder {
        self.node_limit = Some(limit);
        self
    }

    /// How long making a connection may take in all, handshake included. Unless set, each step of it has
    /// two seconds, and its time in all is not bounded: to dial is one of them, or two with TLS, and each
    /// of the one or two exchanges that follow is one. It delays no round, but the first use of a
    /// coordinator waits that long where a quorum of nodes does not answer.
    pub fn connect_limit(mut self, limit: Duration) -> Builder {
        self.connect_limit = Some(limit);
        self
    }

    /// Whether nodes that restarted recently are kept from voting. On unless set, because off is
    /// safe only for nodes that never forget.
    pub fn restart_guard(mut self, guard: RestartGuard) -> Builder {
        self.guard = guard;
        self
    }

    /// Stands before every resource name in its key. Empty unless set, so that Redlock clients of
    /// other languages that use the bare name are excluded; some use `redlock:`.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Builder {
        self.key_prefix = prefix.into();
        self
    }

    /// What others read of this program while it holds a lock, after `host:pid`. Empty unless set.
    pub fn label(mut self, label: impl Into<String>) -> Builder {
        self.label = label.into();
        self
    }

    /// Replaces the clock, in tests and simulations.
    pub fn clock(mut self, clock: impl Clock) -> Builder {
        self.clock = Arc::new(clock);
        self
    }

    /// Replaces the source of randomness, in simulations.
    pub fn entropy(mut self, entropy: impl Entropy) -> Builder {
        self.entropy = Arc::new(entropy);
        self
    }

    /// Whom to trust, and which certificate to show, at `rediss://` addresses. Replaces what
    /// [`dial`](Builder::dial) has set: a dialler of your own may take it by
    /// [`SystemDial::with_tls`].
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Builder {
        self.dial = Arc::new(SystemDial::with_tls(tls.clone()));
        self.tls = Some(tls);
        self
    }

    /// Replaces how connections are made, in simulations.
    pub fn dial(mut self, dial: impl Dial) -> Builder {
        self.dial = Arc::new(dial);
        self
    }

    /// Checks all settings, and reads the files that they name. Contacts no one.
    ///
    /// # Errors
    ///
    /// Says which setting cannot work, and what would.
    pub fn build(self) -> Result<Coordinator, ConfigError> {
        let drift = Drift::of(self.drift).ok_or(ConfigError::Drift { factor: self.drift })?;
        let max_ttl = self.max_ttl.unwrap_or(DEFAULT_TTL);
        let ttl = self.ttl.unwrap_or(DEFAULT_TTL.min(max_ttl));
        if self.connect_limit.is_some_and(|limit| limit.is_zero()) {
            return Err(ConfigError::Zero { setting: "the connect limit" });
        }
        if self.node_limit.is_some_and(|limit| limit.is_zero()) {
            return Err(ConfigError::Zero { setting: "the node limit" });
        }
        #[cfg(feature = "tls")]
        if let Some(Err(problem)) = self.tls.as_ref().map(Tls::check) {
            return Err(ConfigError::Tls { problem });
        }
        let count = self.addresses.len() + self.custom.len();
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
        let max_ttls = Arc::new(MaxTtls::new(max_ttl, drift, quorum));
        let nodes = self.make_nodes(&max_ttls)?;
        if let [node] = &nodes[..] {
            let node = node.name();
            info!(
                node,
                "one node: while it is down nothing is locked, and no other remembers what it forgets"
            );
        }
        let quarantine = match self.guard {
            RestartGuard::On => Quarantine::new(max_ttl, drift),
            RestartGuard::Off => Quarantine::none(),
        };
        let least_ttl =
            self.node_limit.map_or(LEAST_TTL, |limit| LEAST_TTL.max(limit.saturating_mul(LIMITS_IN_A_TTL)));
        let (lines, readers) = (Arc::<Lines>::default(), Arc::<Lines>::default());
        for (node, listened) in nodes.iter().enumerate() {
            for lines in [&lines, &readers] {
                listened.listen(Arc::new(Ear { lines: Arc::downgrade(lines), node }));
            }
        }
        let (host, label) = (host(), Arc::<str>::from(self.label));
        let meters = Meters::new(quorum);
        let nodes = Nodes::new(nodes, quorum, self.clock, (quarantine, max_ttls), self.node_limit);
        let (tasks, registry) = Tasks::new(nodes.alarms.clone());
        let shared = Shared {
            nodes: Arc::new(nodes),
            entropy: self.entropy,
            drift,
            ttl,
            least_ttl,
            max_ttl,
            introduction: self.connect_limit.unwrap_or(LONGEST_INTRODUCTION),
            key_prefix: self.key_prefix,
            context: (std::process::id(), context(&host, &label).into()),
            options: Arc::new(Options::new(ttl, label.clone(), meters.lock(""))),
            label,
            host,
            number: Shared::next_number(),
            tasks,
            closing: CancellationToken::new(),
            lines,
            readers,
            renewals: Arc::default(),
            meters,
        };
        shared.check_ttl(ttl)?;
        Ok(Coordinator { shared: Arc::new(shared), together: Arc::default(), registry })
    }

    fn make_nodes(&self, max_ttls: &Arc<MaxTtls>) -> Result<Vec<Arc<dyn Node>>, ConfigError> {
        let mut sites: Vec<Site> = Vec::with_capacity(self.addresses.len());
        for site in &self.addresses {
            let mut site = site.clone()?;
            match &mut site {
                Site::Server(address) => self.fill_in_credentials(address),
                Site::Cluster(cluster) => cluster.each_seed(|seed| self.fill_in_credentials(seed)),
            }
            let mut known = sites.iter().flat_map(Site::servers);
            if known.any(|known| site.servers().iter().any(|server| server.same_server(known))) {
                return Err(ConfigError::SameServerTwice { name: site.to_string().into() });
            }
            sites.push(site);
        }
        let redis = sites.into_iter().enumerate().map(|(index, site)| {
            let settings = Settings {
                clock: self.clock.clone(),
                entropy: self.entropy.clone(),
                dial: self.dial.clone(),
                connect_limit: self.connect_limit.map_or(ConnectLimit::default(), ConnectLimit::Whole),
                notices: Notices::Logged,
                membership: Membership::Alone,
                copy_limit: self.node_limit.map_or(DEFAULT_COPY_LIMIT, |limit| limit / 2),
                gate: match self.guard {
                    RestartGuard::On => Some(gate(&self.key_prefix).into()),
                    RestartGuard::Off => None,
                },
                max_ttls: Some((max_ttls.clone(), index)),
            };
            site.node(settings)
        });
        Ok(redis.chain(self.custom.iter().cloned()).collect())
    }

    /// What the address says of user and password goes first.
    fn fill_in_credentials(&self, address: &mut Address) {
        if address.password().is_some() {
            return;
        }
        if let (None, Some(username)) = (address.user(), &self.username) {
            address.set_user(username);
        }
        if let Some(Secret(password)) = &self.password {
            address.set_password(password);
        }
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
