//! Creates nodes from `etcd://` URLs.

use quorlock::node::places;
use quorlock::node::{AddressError, NodeAddress, NodeKind};

use crate::session::Memory;

/// Clusters of etcd: `etcd://a,b,c` with a host for each member, port 2379 unless given; `etcds://` with TLS.
///
/// User and password precede the hosts: `etcd://user:password@a,b,c`. A cluster is one node, and the only one of a
/// deployment: other programs lock in it without this library.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct EtcdKind;

impl EtcdKind {
    /// Creates the kind.
    #[must_use]
    pub fn new() -> EtcdKind {
        EtcdKind
    }
}

impl NodeKind for EtcdKind {
    fn schemes(&self) -> &[&str] {
        &["etcd", "etcds"]
    }

    fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
        places::parse::<Memory>(url)
    }

    /// The members are separated by commas.
    fn goes_on_after(&self, _: &str) -> bool {
        true
    }
}
