//! A dead minority has no effect; a dead or hung majority is reported as an outage.

use quorlock::{AcquireError, LossReason, node::NodeError, votes::VoteOutcome};

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn with_three_of_five_down_each_has_its_cause() {
    let world = World::start(5).await;
    world.warm_up().await;
    world.servers[0].kill();
    world.servers[1].freeze().unwrap();
    world.servers[2].kill();
    let error = world.lock().try_acquire().await.unwrap_err();
    let AcquireError::Unavailable { report, .. } = &error else { panic!("{error}") };
    for (index, vote) in report.votes().iter().enumerate() {
        match (&vote.outcome, index) {
            (VoteOutcome::Failed(NodeError::Unanswered { .. }), 1)
            | (VoteOutcome::Failed(NodeError::Unreachable { .. } | NodeError::Disconnected { .. }), 0 | 2)
            | (VoteOutcome::Granted, 3 | 4) => {}
            _ => panic!("{}: {}", vote.node, vote.outcome),
        }
    }
    assert!(error.to_string().contains("2 of 5 granted, 3 needed"), "{error}");
    world.servers[1].thaw().unwrap();
    world.wait_for_keys(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_survives_two_of_five_servers_and_is_lost_with_three() {
    let world = World::start(5).await;
    let lock = world.lock().ttl(std::time::Duration::from_millis(1_500));
    let lease = lock.acquire().await.unwrap();
    // A lease has a quorum of keys at first, and is to have all five.
    world.wait_for_keys(5).await;
    world.servers[0].kill();
    world.servers[1].kill();
    lease.renew().await.expect("three are a quorum");
    world.servers[2].kill();
    let lost = lease.lost().await;
    assert_eq!(lost.reason, LossReason::Expired);
    assert!(lease.check().is_err());
}
