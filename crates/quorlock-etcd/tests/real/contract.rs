//! The contract suite on clusters of three members.

use quorlock::runtime::SystemClock;
use quorlock_testkit::contract::check_contract;

use crate::support::{Foreign, node, programs};

#[tokio::test]
async fn a_cluster_keeps_the_contract() {
    for programs in programs() {
        let cluster = programs.start(3).await.unwrap();
        let foreign = Foreign::of(&cluster);
        let checked = check_contract(&node(&cluster), &foreign, &SystemClock::default()).await;
        assert!(checked.is_ok(), "{programs}: {}", checked.unwrap_err());
    }
}
