//! Creates nodes from `etcd://` URLs.

use std::fmt;
use std::sync::Arc;

use quorlock::node::{AddressError, Node, NodeAddress, NodeKind, Reason, Seams};

use crate::address::EtcdAddress;
use crate::node::EtcdNode;

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
        Ok(Box::new(Cluster(EtcdAddress::parse(url)?)))
    }

    /// The members are separated by commas.
    fn goes_on_after(&self, _: &str) -> bool {
        true
    }
}

#[derive(Debug)]
struct Cluster(EtcdAddress);

impl NodeAddress for Cluster {
    fn servers(&self) -> Vec<String> {
        self.0.members.servers()
    }

    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
        #[cfg(feature = "tls")]
        if !self.0.is_encrypted() {
            seams.refuse_unused_tls("write `etcds://`")?;
        }
        Ok(Arc::new(EtcdNode::of(self.0.clone(), seams)?))
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
