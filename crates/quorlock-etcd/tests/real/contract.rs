//! The contract suite on clusters of three members.

use std::array::from_fn;

use quorlock::runtime::SystemClock;
use quorlock_testkit::contract::check_contract;

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
