//! Creates nodes from `zookeeper://` URLs.

use quorlock::node::places;
use quorlock::node::{AddressError, NodeAddress, NodeKind};

use crate::memory::Memory;

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
        places::parse::<Memory>(url)
    }

    /// The members are separated by commas, and the path follows them.
    fn goes_on_after(&self, url_so_far: &str) -> bool {
        !url_so_far.split_once("://").is_some_and(|(_, rest)| rest.contains(['/', '?']))
    }
}
