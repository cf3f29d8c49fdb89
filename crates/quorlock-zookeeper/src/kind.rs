//! Creates nodes from `zookeeper://` URLs.

use std::fmt;
use std::sync::Arc;

use quorlock::node::{AddressError, Node, NodeAddress, NodeKind, Reason, Seams};

use crate::address::ZooKeeperAddress;
use crate::node::ZooKeeperNode;

/// Ensembles of ZooKeeper: `zookeeper://a,b,c/path` with a host for each member, port 2181 unless given; `zookeepers://` with
/// TLS.
///
/// Locks are nodes below the path. `?session=10s` sets for how long those of a process that dies stay, 30 s unless given; it
/// is also the shortest TTL. A digest user and the password precede the hosts: `zookeeper://user:password@a,b,c`. An ensemble
/// is one node, and the only one of a deployment: other programs lock in it without this library.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ZooKeeperKind;

impl ZooKeeperKind {
    /// Creates the kind.
    #[must_use]
    pub fn new() -> ZooKeeperKind {
        ZooKeeperKind
    }
}

impl NodeKind for ZooKeeperKind {
    fn schemes(&self) -> &[&str] {
        &["zookeeper", "zookeepers"]
    }

    fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
        Ok(Box::new(Cluster(ZooKeeperAddress::parse(url)?)))
    }

    /// The members are separated by commas, and the path follows them.
    fn goes_on_after(&self, url_so_far: &str) -> bool {
        !url_so_far.split_once("://").is_some_and(|(_, rest)| rest.contains(['/', '?']))
    }
}

#[derive(Debug)]
struct Cluster(ZooKeeperAddress);

impl NodeAddress for Cluster {
    fn servers(&self) -> Vec<String> {
        self.0.members.servers()
    }

    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
        #[cfg(feature = "tls")]
        if !self.0.is_encrypted() {
            seams.refuse_unused_tls("write `zookeepers://`")?;
        }
        Ok(Arc::new(ZooKeeperNode::of(self.0.clone(), seams)?))
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
