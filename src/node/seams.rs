//! The clock, randomness, transport and settings that a node is made with.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::NodeError;
use super::catch_panic::run_again;
use super::lists::NodeLists;
use super::max_ttls::MaxTtlNotes;
use super::password::Password;
use crate::node::Reason;
use crate::runtime::clock::{Clock, SystemClock};
use crate::runtime::entropy::{Entropy, SystemEntropy};
#[cfg(feature = "tls")]
use crate::transport::Tls;
use crate::transport::{Dial, SystemDial};
use quorlock_protocol::Drift;

/// The environment of every node that is made from an address: clock, randomness, transport, and the settings
/// of the [`Builder`](crate::Builder).
///
/// A node that uses nothing else works in a simulation, and has the same settings as nodes of other kinds.
/// The default is that of a builder without settings, outside a coordinator.
#[derive(Clone)]
pub struct Seams {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) dial: Arc<dyn Dial>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Tls,
    pub(crate) username: Option<Arc<str>>,
    pub(crate) password: Password,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) guards_restarts: bool,
    pub(crate) kept_by_children: bool,
    pub(crate) key_prefix: Arc<str>,
    pub(crate) label: Arc<str>,
    pub(crate) max_ttls: Option<MaxTtlNotes>,
    /// Where to report the lists of nodes of other clients.
    pub(crate) lists: Option<Arc<NodeLists>>,
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
            password: Password::None,
            connect_timeout: None,
            node_timeout: None,
            guards_restarts: true,
            kept_by_children: false,
            key_prefix: Arc::default(),
            label: Arc::default(),
            max_ttls: None,
            lists: None,
        }
    }
}

impl Seams {
    /// Returns the clock, for all waits and comparisons of time.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the source of randomness, such as for the pauses between connection attempts.
    #[must_use]
    pub fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.entropy
    }

    /// Returns the transport, which opens connections. `into` turns an [`Endpoint`](crate::redis::Endpoint)
    /// into an address, and [`NodeError::undialled`](super::NodeError::undialled) converts an error of the
    /// transport.
    #[must_use]
    pub fn dial(&self) -> &Arc<dyn Dial> {
        &self.dial
    }

    /// Returns the trusted authorities and the client certificate, for a node that starts TLS on a connection
    /// itself. [`dial`](Seams::dial) uses them where the endpoint is
    /// [`Endpoint::Tls`](crate::redis::Endpoint::Tls).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(&self) -> &Tls {
        &self.tls
    }

    /// Returns the user to log in as, if the address has none.
    #[must_use]
    pub fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    /// Returns the password to log in with: that of the address, or else that of the program, which is read for each
    /// connection, since it [may change](crate::Builder::password_source). It must not appear in any message, and is not
    /// kept for a later connection.
    ///
    /// # Errors
    ///
    /// The password cannot be read now.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub async fn password(&self, of_address: Option<&str>) -> Result<Option<Arc<str>>, NodeError> {
        match of_address {
            Some(password) => Ok(Some(password.into())),
            None => self.password.read(&*self.clock).await,
        }
    }

    /// Returns why an address without TLS is refused where the program has settings for TLS: they would protect nothing.
    /// `cure` says how the address is written with TLS.
    ///
    /// # Errors
    ///
    /// There are such settings.
    #[cfg(feature = "tls")]
    pub fn refuse_unused_tls(&self, cure: &str) -> Result<(), Reason> {
        if !self.tls.is_set() {
            return Ok(());
        }
        Err(Reason::new(format!(
            "there are TLS settings (authority, certificate, server name), and the address has no TLS, so that they would \
             protect nothing: {cure}"
        )))
    }

    /// Returns the timeout for making a connection, if it was set. Otherwise the node chooses.
    #[must_use]
    pub fn connect_timeout(&self) -> Option<Duration> {
        self.connect_timeout
    }

    /// Returns how long a round waits for this node, if it was set. Otherwise it depends on the node's round
    /// trip, and is at least one second. Anything else that a vote waits for must fit into it.
    #[must_use]
    pub fn node_timeout(&self) -> Option<Duration> {
        self.node_timeout
    }

    /// Returns whether a store that restarted or was promoted is kept from voting for a while: see
    /// [`RestartGuard`](crate::RestartGuard). If not, nothing about restarts has to be recorded.
    #[must_use]
    pub fn guards_restarts(&self) -> bool {
        self.guards_restarts
    }

    /// Returns whether the locks of this process are to be kept until its child processes have ended, too, by
    /// files that these inherit: see [`Builder::kept_by_children`](crate::Builder::kept_by_children). Only
    /// then may a node detect the crash of a holder before its TTL has passed.
    #[must_use]
    pub fn kept_by_children(&self) -> bool {
        self.kept_by_children
    }

    /// Returns the prefix of all lock keys. Notes about the store must be kept separately for each prefix,
    /// since deployments that share a store have different prefixes.
    #[must_use]
    pub fn key_prefix(&self) -> &str {
        &self.key_prefix
    }

    /// Returns the name of this program for humans, for a store that lists its clients. Empty unless set.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Starts a thread of the node, outside the program's runtimes. `name` is shown by debuggers; Linux shows
    /// its first 15 bytes.
    ///
    /// The thread ends when `work` returns. If it panics, that is logged with `node`, the node's name, and `work` is called
    /// again: it must answer the requests that it then finds unanswered, which dropping their responders does (rule I-31).
    ///
    /// # Errors
    ///
    /// The system cannot start another thread.
    pub fn start_thread(
        &self,
        name: &str,
        node: impl Into<Arc<str>>,
        work: impl FnMut() + Send + 'static,
    ) -> Result<(), Reason> {
        let node = node.into();
        let started = thread::Builder::new().name(name.to_owned()).spawn(move || run_again(&node, work));
        started.map(drop).map_err(|error| Reason::new("cannot start a thread").because(error))
    }

    /// Returns the [`max_ttl`](crate::Builder::max_ttl) of this client, which a node keeps in its store: a restarted
    /// node is not counted for as long as a lock may last, so all clients must have the same. Each client that connects
    /// reads what is stored, passes it to [`hear_max_ttl`](Seams::hear_max_ttl), and stores its own if that is larger. A
    /// node that can learn of later changes does the same again.
    ///
    /// `None` without a restart guard, and outside a coordinator: then a node stores nothing.
    #[must_use]
    pub fn max_ttl(&self) -> Option<Duration> {
        self.max_ttls.as_ref().filter(|_| self.guards_restarts).map(MaxTtlNotes::ours)
    }

    /// Returns the [`drift`](crate::Builder::drift) of this client, for a node that itself counts how long a store that may
    /// have forgotten locks does not vote. The default outside a coordinator.
    #[must_use]
    pub fn drift(&self) -> Drift {
        self.max_ttls.as_ref().map_or_else(Drift::default, MaxTtlNotes::drift)
    }

    /// Records the `max_ttl` of other clients that a node has found in its store. Must be called before the first vote
    /// of a connection counts: if theirs is larger, restarted nodes are not counted for longer. Returns theirs if it
    /// differs from ours and no node has reported it before, so that the node may log a warning;
    /// [`Coordinator::warnings`](crate::Coordinator::warnings) reports it as a finding.
    #[expect(clippy::must_use_candidate, reason = "it is called for its side effect")]
    pub fn hear_max_ttl(&self, theirs: Duration) -> Option<Duration> {
        self.max_ttls.as_ref()?.hear(theirs)
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
            .field("password", &self.password)
            .field("connect_timeout", connect_timeout)
            .field("node_timeout", node_timeout)
            .field("guards_restarts", guards_restarts)
            .field("kept_by_children", kept_by_children)
            .field("key_prefix", key_prefix)
            .field("label", label)
            .finish_non_exhaustive()
    }
}
