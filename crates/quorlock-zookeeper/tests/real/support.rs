//! Ensembles, and nodes on them.

use std::path::Path;
use std::sync::OnceLock;

use quorlock::node::Seams;
use quorlock_testkit::{ZooKeeperCluster, ZooKeeperPrograms};
use quorlock_zookeeper::ZooKeeperNode;

use crate::foreign::BASE;

/// How long the locks of a process that dies stay, in seconds.
pub(crate) const SESSION: u64 = 3;

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

/// Starts an ensemble, for a test that disturbs it.
pub(crate) async fn ensemble(members: usize) -> Option<ZooKeeperCluster> {
    Some(programs()?.start(members).await.unwrap())
}

/// Returns an ensemble of three members that all other tests of this program use, each under its own names. It ends with the
/// program.
pub(crate) async fn common() -> Option<&'static ZooKeeperCluster> {
    static COMMON: OnceLock<Option<ZooKeeperCluster>> = OnceLock::new();

    let start = || {
        COMMON.get_or_init(|| {
            let programs = programs()?;
            // The runtime that has the links between the members has to last.
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let cluster = runtime.block_on(programs.start(3)).unwrap();
            std::mem::forget(runtime);
            Some(cluster)
        })
    };
    tokio::task::spawn_blocking(start).await.unwrap().as_ref()
}

pub(crate) fn url(cluster: &ZooKeeperCluster) -> String {
    format!("{}{BASE}?session={SESSION}s", cluster.url())
}

pub(crate) fn node(cluster: &ZooKeeperCluster) -> ZooKeeperNode {
    ZooKeeperNode::new(&url(cluster), &Seams::default()).unwrap()
}
