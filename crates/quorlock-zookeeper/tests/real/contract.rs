//! The contract suite on an ensemble of three members.

use quorlock::runtime::SystemClock;
use quorlock_testkit::contract::check_contract;

use crate::foreign::Foreign;
use crate::support::{common, node};

#[tokio::test]
async fn an_ensemble_keeps_the_contract() {
    let Some(cluster) = common().await else { return };
    let foreign = Foreign::of(cluster).await;
    let checked = check_contract(&node(cluster), &foreign, &SystemClock::default()).await;
    assert!(checked.is_ok(), "{}", checked.unwrap_err());
}
