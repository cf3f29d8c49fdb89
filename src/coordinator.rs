//! A handle to N nodes, and how to make one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{Clock, Sleep, SystemClock};
use crate::entropy::{Entropy, SystemEntropy};
use crate::error::ConfigError;
use crate::lock::Lock;
use crate::node::Node;
use crate::node::redis::{
    Address, AddressError, DEFAULT_CONNECT_LIMIT, Dial, RedisNode, Settings, SystemDial,
};
use crate::protocol::{Drift, Moment, Quarantine, Quorum};
use crate::round::Nodes;

/// Coordinates locks over N independent nodes. Cheap to clone; one for a program is enough.
///
/// Connections are made when they are first needed, and stay. They belong to the Tokio runtime
/// that was running then.
///
/// # Examples
///
/// ```
/// use quorlock::Coordinator;
///
/// let coordinator = Coordinator::builder()
///     .nodes(["redis://10.0.0.1", "redis://10.1.0.1", "redis://10.2.0.1"])
///     .build()?; // parses all, contacts no one
/// # Ok::<(), quorlock::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Coordinator {
    shared: Arc<Shared>,
}

impl Coordinator {
    /// Starts with the defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A lock for `resource`, to be acquired. Asks nobody; a name that cannot work is refused when
    /// the lock is acquired or [validated](Lock::validate).
    pub fn lock(&self, resource: impl AsRef<str>) -> Lock {
        Lock::new(self.shared.clone(), resource.as_ref())
    }

    /// Gives back every lease, whose holders are told, refuses new ones, and waits until all nodes
    /// have confirmed, or at most `patience`. What is not confirmed by then ends with its TTL.
    ///
    /// # Cancel safety
    ///
    /// The closing goes on when the future is dropped.
    pub async fn close(&self, patience: Duration) {
        self.shared.closing.cancel();
        self.shared.tasks.close();
        let end = self.shared.now() + patience;
        tokio::select! {
            () = self.shared.tasks.wait() => {}
            () = self.shared.sleep_until(end) => {}
        }
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.shared.nodes.iter().map(|node| node.name().to_owned());
        f.debug_struct("Coordinator")
            .field("nodes", &names.collect::<Vec<_>>())
            .field("quorum", &self.shared.nodes.quorum)
            .finish_non_exhaustive()
    }
}

/// Whether the votes of nodes that restarted recently count.
///
/// A node that restarted without its data would grant locks that are still held. Every client of
/// a deployment must use the guard, or it protects nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RestartGuard {
    /// They count once the node has been up for longer than any lock can live: `max_ttl` and the
    /// allowance for drift.
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
    addresses: Vec<Result<Address, AddressError>>,
    custom: Vec<Arc<dyn Node>>,
    username: Option<String>,
    password: Option<Secret>,
    quorum: Option<usize>,
    drift: f64,
    ttl: Duration,
    max_ttl: Option<Duration>,
    node_limit: Option<Duration>,
    connect_limit: Duration,
    guard: RestartGuard,
    key_prefix: String,
    label: String,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    dial: Arc<dyn Dial>,
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
            ttl: DEFAULT_TTL,
            max_ttl: None,
            node_limit: None,
            connect_limit: DEFAULT_CONNECT_LIMIT,
            guard: RestartGuard::On,
            key_prefix: String::new(),
            label: String::new(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            dial: Arc::new(SystemDial::default()),
        }
    }
}

const DEFAULT_TTL: Duration = Duration::from_secs(30);
const DEFAULT_NODE_LIMIT: Duration = Duration::from_millis(50);
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
    pub fn nodes<Url: AsRef<str>>(mut self, urls: impl IntoIterator<Item = Url>) -> Builder {
        self.addresses.extend(urls.into_iter().map(|url| Address::parse(url.as_ref())));
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

    /// The TTL of locks that set none. 30 s unless set.
    pub fn ttl(mut self, ttl: Duration) -> Builder {
        self.ttl = ttl;
        self
    }

    /// The longest TTL that any client of the deployment may ask for: restarted nodes are not
    /// counted for that long. 30 s unless set, or the coordinator's own TTL if that is set and
    /// nothing else is; every client must use the same.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Builder {
        self.max_ttl = Some(max_ttl);
        self
    }

    /// How long a round waits for one node. 50 ms unless set, more for a node whose measured round
    /// trip is longer than a quarter of that, and never more than a tenth of the TTL.
    pub fn node_limit(mut self, limit: Duration) -> Builder {
        self.node_limit = Some(limit);
        self
    }

    /// How long making a connection may take, handshake included. 1 s unless set. It delays no
    /// round, but the first use of a coordinator waits that long for nodes that do not answer.
    pub fn connect_limit(mut self, limit: Duration) -> Builder {
        self.connect_limit = limit;
        self
    }

    /// Whether votes of nodes that restarted recently count. On unless set, because off is safe
    /// only for nodes that never forget.
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

    /// Replaces how connections are made, in simulations.
    pub fn dial(mut self, dial: impl Dial) -> Builder {
        self.dial = Arc::new(dial);
        self
    }

    /// Checks all settings. Contacts no one.
    ///
    /// # Errors
    ///
    /// Says which setting cannot work, and what would.
    pub fn build(self) -> Result<Coordinator, ConfigError> {
        let drift = Drift::of(self.drift).ok_or(ConfigError::Drift { factor: self.drift })?;
        let max_ttl = self.max_ttl.unwrap_or(self.ttl.max(DEFAULT_TTL));
        if self.connect_limit.is_zero() {
            return Err(ConfigError::Zero { setting: "the connect limit" });
        }
        if self.node_limit.is_some_and(|limit| limit.is_zero()) {
            return Err(ConfigError::Zero { setting: "the node limit" });
        }
        let nodes = self.make_nodes()?;
        let quorum = match self.quorum {
            None => Quorum::majority(nodes.len()),
            Some(needed) => {
                Quorum::of(needed, nodes.len()).ok_or(ConfigError::Quorum { needed, nodes: nodes.len() })?
            }
        };
        let quarantine = match self.guard {
            RestartGuard::On => Quarantine::new(max_ttl, drift),
            RestartGuard::Off => Quarantine::none(),
        };
        let least_ttl = self.node_limit.map_or(LEAST_TTL, |limit| LEAST_TTL.max(limit * LIMITS_IN_A_TTL));
        let base_limit = self.node_limit.unwrap_or(DEFAULT_NODE_LIMIT);
        let shared = Shared {
            nodes: Arc::new(Nodes::new(nodes, quorum, self.clock, quarantine, base_limit)),
            entropy: self.entropy,
            drift,
            ttl: self.ttl,
            least_ttl,
            max_ttl,
            introduction: self.connect_limit,
            introduced: AtomicBool::new(false),
            key_prefix: self.key_prefix,
            label: self.label.into(),
            host: host(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
        };
        shared.check_ttl(self.ttl)?;
        Ok(Coordinator { shared: Arc::new(shared) })
    }

    fn make_nodes(&self) -> Result<Vec<Arc<dyn Node>>, ConfigError> {
        let given = self.addresses.len() + self.custom.len();
        if given == 0 {
            return Err(ConfigError::NoNodes);
        }
        if given > MAX_NODES {
            return Err(ConfigError::TooManyNodes { given, most: MAX_NODES });
        }
        let mut addresses: Vec<Address> = Vec::with_capacity(self.addresses.len());
        for address in &self.addresses {
            let mut address = address.clone()?;
            self.fill_in_credentials(&mut address);
            if addresses.iter().any(|known| known.same_server(&address)) {
                return Err(ConfigError::SameServerTwice { name: address.to_string().into() });
            }
            addresses.push(address);
        }
        let redis = addresses.into_iter().map(|address| {
            let settings = Settings {
                clock: self.clock.clone(),
                entropy: self.entropy.clone(),
                dial: self.dial.clone(),
                connect_limit: self.connect_limit,
            };
            Arc::new(RedisNode::with(address, settings)) as Arc<dyn Node>
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

/// What all locks of a coordinator share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) drift: Drift,
    pub(crate) ttl: Duration,
    least_ttl: Duration,
    pub(crate) max_ttl: Duration,
    /// The longest that the first use waits for connections.
    introduction: Duration,
    introduced: AtomicBool,
    pub(crate) key_prefix: String,
    pub(crate) label: Arc<str>,
    host: String,
    /// Keepers and sweeps.
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
}

impl Shared {
    pub(crate) fn now(&self) -> Moment {
        self.nodes.clock.now()
    }

    pub(crate) fn sleep_until(&self, moment: Moment) -> Sleep {
        self.nodes.clock.sleep_until(moment)
    }

    /// A TTL that leaves something to hold and that restarted nodes wait for.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), ConfigError> {
        if ttl < self.least_ttl {
            Err(ConfigError::TtlTooShort { ttl, least: self.least_ttl })
        } else if ttl > self.max_ttl {
            Err(ConfigError::TtlTooLong { ttl, max_ttl: self.max_ttl })
        } else {
            Ok(())
        }
    }

    /// What others read of the holder.
    pub(crate) fn context(&self, label: &str) -> String {
        let mut context = format!("{}:{}", self.host, std::process::id());
        if !label.is_empty() {
            context.push(' ');
            context.push_str(label);
        }
        context
    }

    /// Before the first round: waits for the connections, so that a cold start is not taken for
    /// an outage. Ends when every node has been contacted or has failed to be; or when a quorum is
    /// there and the others have had the time of a round; or when the time for connecting is up.
    /// Later rounds wait for nobody.
    pub(crate) async fn introduced(&self) {
        if self.introduced.load(Ordering::Acquire) {
            return;
        }
        let started = self.now();
        let mut contacts: FuturesUnordered<_> = self.nodes.iter().map(|node| node.ready()).collect();
        let mut connected = 0;
        loop {
            let patience = if connected < self.nodes.quorum.needed() {
                self.introduction
            } else {
                self.nodes.base_limit
            };
            tokio::select! {
                biased;
                contact = contacts.next() => match contact {
                    Some(Ok(())) => connected += 1,
                    Some(Err(_)) => {}
                    None => break,
                },
                () = self.sleep_until(started + patience) => break,
            }
        }
        self.introduced.store(true, Ordering::Release);
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
