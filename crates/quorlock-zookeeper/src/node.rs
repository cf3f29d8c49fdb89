//! The node: a handle to a thread with one connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::facts::{Facts, ProbeLock};
use quorlock::node::places::Handle;
use quorlock::node::{
    AddressError, Capabilities, HintListener, KeyPages, ListedKeys, Node, NodeError, NodeLimits, Reason,
    Responder, Seams, SharedRequest, StatusListener,
};
use quorlock::runtime::{BoxFuture, Mutex, within};

use crate::address::ZooKeeperAddress;
use crate::doctor::concerns;
use crate::list;
use crate::memory::{Memory, Proven};
use crate::requests::capabilities;

/// A node that keeps its locks in ZooKeeper, in the layout of Curator's `InterProcessMutex`.
///
/// Clones are the same node, with one thread and one session, which end with the last clone.
#[derive(Clone)]
pub struct ZooKeeperNode {
    name: Arc<str>,
    address: ZooKeeperAddress,
    handle: Handle<Memory>,
    proven: Arc<Mutex<Proven>>,
    seams: Seams,
}

impl ZooKeeperNode {
    /// Creates the node of this URL, as [`ZooKeeperKind`](crate::ZooKeeperKind) does. Contacts no server.
    ///
    /// # Errors
    ///
    /// If the URL is malformed.
    pub fn new(url: &str, seams: &Seams) -> Result<ZooKeeperNode, AddressError> {
        let address = ZooKeeperAddress::parse(url)?;
        let no_thread = |_| {
            let shown = address.to_string();
            AddressError::malformed(
                shown,
                "needs a thread, and the system cannot start one",
                "end some threads",
            )
        };
        ZooKeeperNode::of(address.clone(), seams).map_err(no_thread)
    }

    pub(crate) fn of(address: ZooKeeperAddress, seams: &Seams) -> Result<ZooKeeperNode, Reason> {
        let (name, memory) = (address.to_string().into(), Memory::new(address.clone(), seams.clone()));
        let proven = Arc::clone(&memory.proven);
        let handle = Handle::start(memory, "quorlock-zk")?;
        Ok(ZooKeeperNode { name, address, handle, proven, seams: seams.clone() })
    }
}

impl Node for ZooKeeperNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: SharedRequest, responder: Responder) {
        self.handle.ask(request, responder);
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn limits(&self) -> NodeLimits {
        NodeLimits::default().least_ttl(self.address.session())
    }

    fn grant_age(&self, ttl: Duration) -> Duration {
        self.proven.lock().grant_age(ttl)
    }

    fn round_trip(&self) -> Option<Duration> {
        self.handle.round_trip()
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        self.handle.ready()
    }

    fn listen(&self, listener: Arc<dyn HintListener>) {
        self.handle.listen(listener);
    }

    fn observe(&self, observer: Arc<dyn StatusListener>) {
        self.handle.observe(observer);
    }

    fn facts(&self) -> Option<Arc<Facts>> {
        self.handle.facts()
    }

    fn list_keys(&self, prefix: Arc<str>, which: ListedKeys) -> KeyPages {
        list::keys(self.address.clone(), self.seams.clone(), prefix, which)
    }

    fn examine(&self, key: Arc<str>) -> BoxFuture<'static, Option<Facts>> {
        const LIMIT: Duration = Duration::from_secs(7);
        let (node, seams) = (self.clone(), self.seams.clone());
        Box::pin(async move {
            let mut facts = Facts::default();
            facts.probe(&node, &seams, key, ProbeLock::Fenced, LIMIT).await;
            let asking = concerns(&node.address, &seams, &mut facts.software);
            // What a user may not ask stays unknown.
            facts.concerns =
                Box::pin(within(&**seams.clock(), LIMIT, asking)).await.flatten().unwrap_or_default();
            Some(facts)
        })
    }
}

impl fmt::Debug for ZooKeeperNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperNode").field("name", &self.name).finish_non_exhaustive()
    }
}
