//! Clusters under load while their masters are killed.

use quorlock_testkit::{Cluster, Servers};

use super::{MAX_TTL, cluster, guarded, votes};
use crate::load::Load;

const RESOURCES: [&str; 4] = ["a", "b", "c", "d"];

/// Kills the master of one resource after the other, while clients run.
async fn under_failovers(urls: Vec<String>, clusters: &[Cluster]) -> usize {
    let coordinators: Vec<_> = (0..3).map(|_| guarded(&urls)).collect();
    for resource in RESOURCES {
        votes(&coordinators[0], resource).await;
    }
    let load = Load::start(coordinators, &RESOURCES, MAX_TTL);
    load.grants(50).await;
    for (turn, cluster) in clusters.iter().cycle().take(2).enumerate() {
        let master = cluster.master_of(RESOURCES[turn]).await.unwrap();
        load.long_hold().await;
        master.kill();
        cluster.settled().await.unwrap();
        load.grants(50).await;
        master.restart_empty().await.unwrap();
        cluster.settled().await.unwrap();
        load.grants(50).await;
    }
    load.judge().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_cluster_keeps_its_promises_while_masters_die() {
    let only = cluster(3, 1).await;
    let lost = under_failovers(vec![only.url()], &[only]).await;
    assert!(lost > 0, "no failover met a lease that was held");
}

#[tokio::test(flavor = "multi_thread")]
async fn five_nodes_with_two_clusters_keep_promises() {
    let (one, two) = (cluster(3, 1).await, cluster(3, 1).await);
    let servers = Servers::start(3).await.unwrap();
    let urls = [servers.urls(), vec![one.url(), two.url()]].concat();
    let lost = under_failovers(urls, &[one, two]).await;
    assert_eq!(lost, 0, "three of five nodes were up all the time");
}
