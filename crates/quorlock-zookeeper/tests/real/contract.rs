//! The contract suite on an ensemble of three members.

use std::array::from_fn;

use quorlock::node::Seams;
use quorlock::runtime::SystemClock;
use quorlock_testkit::contract::check_contract;
use quorlock_zookeeper::ZooKeeperNode;

use crate::foreign::Foreign;
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
