//! The contract suite on clusters of three members.

use std::array::from_fn;

use quorlock::node::Seams;
use quorlock::runtime::SystemClock;
use quorlock_etcd::EtcdNode;
use quorlock_testkit::Proxy;
use quorlock_testkit::contract::check_contract;

use crate::reconnects::pause_longer_each_time;
use crate::support::{Foreign, newest, node, programs};
use crate::together::agree;

#[tokio::test]
async fn a_cluster_keeps_the_contract() {
    for programs in programs() {
        let cluster = programs.start(3).await.unwrap();
        let foreign = Foreign::of(&cluster);
        let checked = check_contract(&node(&cluster), &foreign, &SystemClock::default()).await;
        assert!(checked.is_ok(), "{programs}: {}", checked.unwrap_err());
    }
}

#[tokio::test]
async fn the_first_clients_of_a_cluster_agree_about_its_history() {
    let Some(programs) = newest() else { return };
    let cluster = programs.start(1).await.unwrap();
    agree(from_fn(|_| node(&cluster))).await;
}

#[tokio::test]
async fn a_member_that_ends_each_connection_is_dialled_with_growing_pauses() {
    let Some(programs) = newest() else { return };
    let cluster = programs.start(1).await.unwrap();
    let proxy = Proxy::start(cluster.address(0)).await.unwrap();
    let node = EtcdNode::new(&format!("etcd://{}", proxy.address()), &Seams::default()).unwrap();
    pause_longer_each_time(&node, proxy, 25).await;
}
