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
use quorlock::runtime::{BoxFuture, within};

use crate::address::EtcdAddress;
use crate::doctor::concerns;
use crate::leases::{self, LEAST};
use crate::list;
use crate::requests::capabilities;
use crate::session::Memory;

/// A node that keeps its locks in etcd, in the layout of etcd's own lock clients.
///
/// Clones are the same node, with one thread, which ends with the last clone. Leases that no key of ours is left on end by
/// themselves.
#[derive(Clone)]
pub struct EtcdNode {
    name: Arc<str>,
    address: EtcdAddress,
    handle: Handle<Memory>,
    seams: Seams,
}

impl EtcdNode {
    /// Creates the node of this URL, as [`EtcdKind`](crate::EtcdKind) does. Contacts no server.
    ///
    /// # Errors
    ///
    /// If the URL is malformed.
    pub fn new(url: &str, seams: &Seams) -> Result<EtcdNode, AddressError> {
        let address = EtcdAddress::parse(url)?;
        let no_thread = |_| {
            let shown = address.to_string();
            AddressError::malformed(
                shown,
                "needs a thread, and the system cannot start one",
                "end some threads",
            )
        };
        EtcdNode::of(address.clone(), seams).map_err(no_thread)
    }

    pub(crate) fn of(address: EtcdAddress, seams: &Seams) -> Result<EtcdNode, Reason> {
        let (name, memory) = (address.to_string().into(), Memory::new(address.clone(), seams.clone()));
        let handle = Handle::start(memory, "quorlock-etcd")?;
        Ok(EtcdNode { name, address, handle, seams: seams.clone() })
    }
}

impl Node for EtcdNode {
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
        NodeLimits::default().least_ttl(LEAST)
    }

    fn grant_age(&self, ttl: Duration) -> Duration {
        leases::grant_age(ttl)
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
            let asking = async {
                let session = list::open(&node.address, seams.clone()).await.ok()?;
                concerns(&session.client, &**seams.clock()).await.ok()
            };
            // What a user may not ask stays unknown.
            facts.concerns =
                Box::pin(within(&**seams.clock(), LIMIT, asking)).await.flatten().unwrap_or_default();
            Some(facts)
        })
    }
}

impl fmt::Debug for EtcdNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdNode").field("name", &self.name).finish_non_exhaustive()
    }
}
