//! A whole Redis Cluster as one node, on real clusters.

use quorlock::{ClusterAddress, ClusterNode, SystemClock};
use quorlock_testkit::Cluster;
use quorlock_testkit::contract::check_contract;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_keeps_the_contract() {
    for replicas in [0, 1] {
        let cluster = Cluster::start(3, replicas).await.unwrap();
        println!("on {cluster}");
        let node = ClusterNode::new(ClusterAddress::parse(&cluster.url()).unwrap());
        if let Err(breach) = check_contract(&node, &cluster, &SystemClock::default()).await {
            panic!("{breach}");
        }
    }
}
