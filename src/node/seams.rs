//! What a node works with that is not its own.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::max_ttls::MaxTtlNotes;
use crate::reason::Reason;
use crate::runtime::clock::{Clock, SystemClock};
use crate::runtime::entropy::{Entropy, SystemEntropy};
#[cfg(feature = "tls")]
use crate::transport::Tls;
use crate::transport::{Dial, SystemDial};

/// What every node gets that is made from an address: time, randomness, connections, and what was set at the
/// [`Builder`](crate::Builder).
///
/// A node that uses nothing else runs in a simulation, and obeys the same settings as those of other kinds.
/// The default is that of a builder for which nothing was set, outside a coordinator.
#[derive(Clone)]
pub struct Seams {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) dial: Arc<dyn Dial>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Tls,
    pub(crate) username: Option<Arc<str>>,
    pub(crate) password: Option<Arc<str>>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) guards_restarts: bool,
    pub(crate) kept_by_children: bool,
    pub(crate) key_prefix: Arc<str>,
    pub(crate) label: Arc<str>,
    pub(crate) max_ttls: Option<MaxTtlNotes>,
}

impl Default for Seams {
    fn default() -> Seams {
        Seams {
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            dial: Arc::new(SystemDial::default()),
            #[cfg(feature = "tls")]
            tls: Tls::default(),
            username: None,
            password: None,
            connect_timeout: None,
            node_timeout: None,
            guards_restarts: true,
            kept_by_children: false,
            key_prefix: Arc::default(),
            label: Arc::default(),
            max_ttls: None,
        }
    }
}

impl Seams {
    /// Time: for every wait, and for all that is compared with it.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Randomness: for pauses between attempts to connect, say.
    #[must_use]
    pub fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.entropy
    }

    /// Opens connections. An [`Endpoint`](crate::redis::Endpoint) is made an address by `into`, and
    /// [`NodeError::undialled`](crate::node::NodeError::undialled) makes a node's error of one of its own.
    #[must_use]
    pub fn dial(&self) -> &Arc<dyn Dial> {
        &self.dial
    }

    /// Peer to trust and which certificate to show, for a node that begins TLS on a connection by itself.
    /// [`dial`](Seams::dial) goes by it where the endpoint is [`Endpoint::Tls`](crate::redis::Endpoint::Tls).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(&self) -> &Tls {
        &self.tls
    }

    /// The user to log in as, where the address names none.
    #[must_use]
    pub fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    /// The password to log in with, where the address has none. It must appear in no message.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// How long making a connection may take in all, if that was set. Else the node knows best.
    #[must_use]
    pub fn connect_timeout(&self) -> Option<Duration> {
        self.connect_timeout
    }

    /// How long a round waits for this node, if that was set. Else it depends on how quick the node is, and
    /// is a second at least. Whatever else a vote has to wait for must take a part of it.
    #[must_use]
    pub fn node_timeout(&self) -> Option<Duration> {
        self.node_timeout
    }

    /// Whether a store that restarted or was promoted is kept from voting for a while: see
    /// [`RestartGuard`](crate::RestartGuard). Otherwise nothing has to be known or noted about that.
    #[must_use]
    pub fn guards_restarts(&self) -> bool {
        self.guards_restarts
    }

    /// Whether the locks of this process are to be kept until the processes that it starts have ended, too, by
    /// files that these inherit: see [`Builder::kept_by_children`](crate::Builder::kept_by_children). A node that
    /// notices that a holder has crashed, before its time is over, may do so only where this is set.
    #[must_use]
    pub fn kept_by_children(&self) -> bool {
        self.kept_by_children
    }

    /// What the keys of all locks begin with. Notes about the store have to be kept apart by it, as
    /// deployments that share a store have prefixes of their own.
    #[must_use]
    pub fn key_prefix(&self) -> &str {
        &self.key_prefix
    }

    /// What people read of this program, for a store that shows its clients. Empty unless set.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Starts a thread of the node, which belongs to none of the program's runtimes. `name` is what a debugger
    /// shows, and its first 15 bytes what Linux does.
    ///
    /// # Errors
    ///
    /// Says that the system has no thread left.
    pub fn start_thread(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Reason> {
        let started = thread::Builder::new().name(name.to_owned()).spawn(work);
        started.map(drop).map_err(|error| Reason::new("no thread can be started").because(error))
    }

    /// Where to tell which `max_ttl` other clients have. `None` outside a coordinator.
    #[must_use]
    pub fn max_ttls(&self) -> Option<&MaxTtlNotes> {
        self.max_ttls.as_ref()
    }
}

impl fmt::Debug for Seams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seams {
            clock,
            entropy,
            dial,
            connect_timeout,
            node_timeout,
            guards_restarts,
            kept_by_children,
            key_prefix,
            label,
            ..
        } = self;
        f.debug_struct("Seams")
            .field("clock", clock)
            .field("entropy", entropy)
            .field("dial", dial)
            .field("username", &self.username)
            // Nobody gets to see it.
            .field("password", &self.password.as_ref().map(|_| "(hidden)"))
            .field("connect_timeout", connect_timeout)
            .field("node_timeout", node_timeout)
            .field("guards_restarts", guards_restarts)
            .field("kept_by_children", kept_by_children)
            .field("key_prefix", key_prefix)
            .field("label", label)
            .finish_non_exhaustive()
    }
}
