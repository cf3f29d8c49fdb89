//! The node, and what it keeps.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::places::{Cluster, Local, Member, PlacesNode};
use quorlock::node::{AddressError, Capabilities, Capability, Hints, Node, NodeError, Order, Seams};

use crate::address::ZooKeeperAddress;
use crate::list::Listing;
use crate::memory::{Memory, Stored};
use crate::session::Session;

/// A node that keeps its locks in ZooKeeper, in the layout of Curator's `InterProcessMutex`.
///
/// Clones are the same node, with one thread and one session, which end with the last clone.
#[derive(Clone, Debug)]
pub struct ZooKeeperNode(PlacesNode<Memory>);

impl ZooKeeperNode {
    /// Creates the node of this URL, as [`ZooKeeperKind`](crate::ZooKeeperKind) does. Contacts no server.
    ///
    /// # Errors
    ///
    /// If the URL is malformed.
    pub fn new(url: &str, seams: &Seams) -> Result<ZooKeeperNode, AddressError> {
        PlacesNode::new(url, seams).map(ZooKeeperNode)
    }
}

impl Node for ZooKeeperNode {
    quorlock::node::forward_node!(self => &self.0);
}

impl Cluster for Memory {
    type Address = ZooKeeperAddress;
    type Key = Arc<str>;
    type Stored = Stored;
    type Voter = Session;
    type Listing = Listing;

    const THREAD: &'static str = "quorlock-zk";

    fn parse(url: &str) -> Result<ZooKeeperAddress, AddressError> {
        ZooKeeperAddress::parse(url)
    }

    fn new(local: Local<Memory>) -> Memory {
        Memory::new(local)
    }

    fn local(&self) -> &Local<Memory> {
        &self.local
    }

    /// This layout has no place for readers and writers that exclude each other, since its other clients would take a reader for
    /// a holder; nor for a lock that outlives the session of its holder.
    fn capabilities() -> Capabilities {
        let able = Capabilities::default().with(Capability::Queue);
        let able =
            able.in_order(Order::Unordered).hinting(Hints::RemovalAndExpiry).hinting_holders().durable();
        able.by_consensus().shared_with_others().first_come()
    }

    fn least_ttl(&self) -> Duration {
        self.local.address.session()
    }

    fn grant_age(&self, ttl: Duration) -> Duration {
        self.proven.lock().grant_age(ttl)
    }

    async fn open(self: &Arc<Memory>, member: &Member) -> Result<Arc<Session>, NodeError> {
        Session::open(self, member).await
    }
}
