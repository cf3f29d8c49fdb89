//! Ensembles, and nodes on them.

use std::path::Path;
use std::sync::Arc;

use quorlock::node::Seams;
use quorlock_testkit::{ZooKeeperCluster, ZooKeeperPrograms};
use quorlock_zookeeper::ZooKeeperNode;

use crate::foreign::BASE;

/// How long the locks of a process that dies stay, in seconds.
pub(crate) const SESSION: u64 = 2;

/// Returns what was downloaded, or what the environment names.
pub(crate) fn programs() -> Option<ZooKeeperPrograms> {
    let cached = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/zookeeper/lib");
    match ZooKeeperPrograms::at(&cached).or_else(|_| ZooKeeperPrograms::find()) {
        Ok(programs) => Some(programs),
        Err(reason) => {
            eprintln!("skipped: {reason}");
            None
        }
    }
}

pub(crate) async fn ensemble(members: usize) -> Option<ZooKeeperCluster> {
    Some(programs()?.start(members).await.unwrap())
}

pub(crate) fn url(cluster: &ZooKeeperCluster) -> String {
    format!("{}{BASE}?session={SESSION}s", cluster.url())
}

pub(crate) fn node(cluster: &ZooKeeperCluster) -> ZooKeeperNode {
    ZooKeeperNode::new(&url(cluster), &Seams::default()).unwrap()
}

/// A handle to a node for a coordinator.
pub(crate) fn shared(cluster: &ZooKeeperCluster) -> Arc<ZooKeeperNode> {
    Arc::new(node(cluster))
}
