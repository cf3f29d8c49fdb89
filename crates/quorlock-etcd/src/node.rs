//! The node, and what it keeps.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::places::{Cluster, Local, Member, Members, PlacesNode};
use quorlock::node::{AddressError, Capabilities, Capability, Hints, Node, NodeError, Order, Seams};

use crate::address;
use crate::leases::{self, LEAST};
use crate::list::Listing;
use crate::own::Stored;
use crate::session::{Memory, Session};

/// A node that keeps its locks in etcd, in the layout of etcd's own lock clients.
///
/// Clones are the same node, with one thread, which ends with the last clone. Leases that no key of ours is left on end by
/// themselves.
#[derive(Clone, Debug)]
pub struct EtcdNode(PlacesNode<Memory>);

impl EtcdNode {
    /// Creates the node of this URL, as [`EtcdKind`](crate::EtcdKind) does. Contacts no server.
    ///
    /// # Errors
    ///
    /// If the URL is malformed.
    pub fn new(url: &str, seams: &Seams) -> Result<EtcdNode, AddressError> {
        PlacesNode::new(url, seams).map(EtcdNode)
    }
}

impl Node for EtcdNode {
    quorlock::node::forward_node!(self => &self.0);
}

impl Cluster for Memory {
    type Address = Members;
    type Key = Vec<u8>;
    type Stored = Stored;
    type Voter = Session;
    type Listing = Listing;

    const THREAD: &'static str = "quorlock-etcd";

    fn parse(url: &str) -> Result<Members, AddressError> {
        address::parse(url)
    }

    fn new(local: Local<Memory>) -> Memory {
        Memory::new(local)
    }

    fn local(&self) -> &Local<Memory> {
        &self.local
    }

    /// Readers and writers that exclude each other have no place in this layout: its other clients would take a reader for a
    /// holder.
    fn capabilities() -> Capabilities {
        let able = [Capability::Transfer, Capability::Several, Capability::Queue];
        let able = able.into_iter().fold(Capabilities::default(), Capabilities::with);
        let able =
            able.in_order(Order::Unordered).hinting(Hints::RemovalAndExpiry).hinting_holders().durable();
        able.by_consensus().shared_with_others().first_come()
    }

    fn least_ttl(&self) -> Duration {
        LEAST
    }

    fn grant_age(&self, ttl: Duration) -> Duration {
        leases::grant_age(ttl)
    }

    async fn open(self: &Arc<Memory>, member: &Member) -> Result<Arc<Session>, NodeError> {
        Session::open(self, member).await
    }
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;

    use quorlock::node::{ConnectionState, StatusListener};
    use quorlock_testkit::ClosedPort;

    use super::*;

    #[derive(Debug)]
    struct Panics;

    impl StatusListener for Panics {
        fn on_status(&self, _: ConnectionState) {
            resume_unwind(Box::new("a panic that the test wants"));
        }
    }

    #[tokio::test]
    async fn i31_a_panic_of_what_a_node_calls_does_not_end_it() {
        let port = ClosedPort::bind().unwrap();
        let node = EtcdNode::new(&format!("etcd://{}", port.address().unwrap()), &Seams::default()).unwrap();
        let down = node.ready().await;
        node.observe(Arc::new(Panics));
        assert_eq!(node.ready().await, down);
    }
}
