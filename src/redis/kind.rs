//! Redis and Valkey as a kind of node.

use std::sync::Arc;

use super::{ClusterNode, RedisNode, Settings};
#[cfg(feature = "tls")]
use crate::address::Endpoint;
use crate::address::{Address, AddressError, CLUSTER_SCHEMES, ClusterAddress, SCHEMES};
use crate::node::Reason;
use crate::node::{Node, NodeAddress, NodeKind, Seams};

/// Redis and Valkey: servers, masters behind Sentinels, and clusters.
#[derive(Debug)]
pub(crate) struct RedisKind;

const ALL_SCHEMES: [&str; SCHEMES.len() + CLUSTER_SCHEMES.len()] = {
    let mut all = [""; SCHEMES.len() + CLUSTER_SCHEMES.len()];
    let (one, clusters) = all.split_at_mut(SCHEMES.len());
    one.copy_from_slice(&SCHEMES);
    clusters.copy_from_slice(&CLUSTER_SCHEMES);
    all
};

impl NodeKind for RedisKind {
    fn schemes(&self) -> &[&str] {
        &ALL_SCHEMES
    }

    fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
        Ok(if ClusterAddress::is_meant(url) {
            Box::new(ClusterAddress::parse(url)?)
        } else {
            Box::new(Address::parse(url)?)
        })
    }

    /// The service follows the last Sentinel. The address of a cluster ends with its settings, or where
    /// another URL begins.
    fn goes_on_after(&self, url_so_far: &str) -> bool {
        let lacks = |scheme, end| {
            url_so_far.split_once(scheme).is_some_and(|(_, rest): (&str, &str)| !rest.contains(end))
        };
        lacks("+sentinel://", '/') || lacks("+cluster://", '?')
    }
}

impl NodeAddress for Address {
    fn servers(&self) -> Vec<String> {
        Address::servers(self)
    }

    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
        #[cfg(feature = "tls")]
        refuse_unused_tls([self], seams)?;
        let mut address = self.clone();
        fill_in_user(&mut address, seams);
        Ok(Arc::new(RedisNode::with(address, Settings::of(seams))))
    }
}

impl NodeAddress for ClusterAddress {
    fn servers(&self) -> Vec<String> {
        self.seeds().iter().flat_map(Address::servers).collect()
    }

    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
        #[cfg(feature = "tls")]
        refuse_unused_tls(self.seeds(), seams)?;
        let mut cluster = self.clone();
        cluster.each_seed(|seed| fill_in_user(seed, seams));
        Ok(Arc::new(ClusterNode::with(cluster, Settings::of(seams))))
    }
}

/// Returns why the program's TLS settings prevent the node. A socket of this host needs none.
#[cfg(feature = "tls")]
fn refuse_unused_tls<'a>(
    addresses: impl IntoIterator<Item = &'a Address>,
    seams: &Seams,
) -> Result<(), Reason> {
    for address in addresses {
        let endpoints = match address.endpoint() {
            Endpoint::Sentinel { sentinels, .. } => sentinels,
            endpoint @ (Endpoint::Tcp { .. } | Endpoint::Tls { .. } | Endpoint::Unix { .. }) => {
                std::slice::from_ref(endpoint)
            }
        };
        if endpoints.iter().any(|endpoint| matches!(endpoint, Endpoint::Tcp { .. })) {
            seams.refuse_unused_tls("write `rediss://`, or leave the settings out")?;
        }
    }
    Ok(())
}

/// Fills in the user of the builder where the address has none, as on every kind of node. The password is read for each
/// connection.
fn fill_in_user(address: &mut Address, seams: &Seams) {
    if let (None, Some(username)) = (address.user(), seams.username()) {
        address.set_user(username);
    }
}
