//! The contract suite on an ensemble of three members.

use std::array::from_fn;

use quorlock::node::Seams;
use quorlock::runtime::SystemClock;
use quorlock_testkit::Proxy;
use quorlock_testkit::contract::check_contract;
use quorlock_zookeeper::ZooKeeperNode;

use crate::foreign::Foreign;
use crate::reconnects::pause_longer_each_time;
use crate::support::{common, node};
use crate::together::agree;

#[tokio::test]
async fn an_ensemble_keeps_the_contract() {
    let Some(cluster) = common().await else { return };
    let foreign = Foreign::of(cluster).await;
    let checked = check_contract(&node(cluster), &foreign, &SystemClock::default()).await;
    assert!(checked.is_ok(), "{}", checked.unwrap_err());
}

#[tokio::test]
async fn the_first_clients_below_a_path_agree_about_its_history() {
    let Some(cluster) = common().await else { return };
    let url = format!("{}/together", cluster.url());
    agree(from_fn(|_| ZooKeeperNode::new(&url, &Seams::default()).unwrap())).await;
}

#[tokio::test]
async fn a_member_that_ends_each_connection_is_dialled_with_growing_pauses() {
    let Some(cluster) = common().await else { return };
    let proxy = Proxy::start(cluster.address(0)).await.unwrap();
    let node =
        ZooKeeperNode::new(&format!("zookeeper://{}/cut", proxy.address()), &Seams::default()).unwrap();
    pause_longer_each_time(&node, proxy, 25).await;
}
