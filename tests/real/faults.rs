//! A dead or hung minority has no effect; a majority is reported as an outage.

use quorlock::{AcquireError, LossReason, node::NodeError, votes::VoteOutcome};

use crate::world::World;
use quorlock_testkit::patience;

#[tokio::test(flavor = "multi_thread")]
async fn two_hung_servers_change_nothing_for_the_caller() {
    let world = World::start(5).await;
    for hung in 0..=2 {
        if hung > 0 {
            world.servers[hung].freeze().unwrap();
        }
        for _ in 0..20 {
            let lease = world.lock().try_acquire().await.unwrap().expect("the lock is uncontended");
            lease.check().unwrap();
            lease.release().await.unwrap();
        }
    }
    for server in &world.servers[1..=2] {
        server.thaw().unwrap();
    }
    world.wait_for_keys(0).await;
}

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

#[tokio::test(flavor = "multi_thread")]
async fn a_server_hung_during_a_release_deletes_its_key_later() {
    let world = World::start(5).await;
    world.warm_up().await;
    world.servers[4].freeze().unwrap();
    let lease = world.lock().acquire().await.unwrap();
    lease.release().await.unwrap();
    // Its SET and the later release are in its socket.
    world.servers[4].thaw().unwrap();
    world.wait_for_keys(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_is_used_again() {
    let world = World::start(3).await;
    drop(world.lock().acquire().await.unwrap());
    world.servers[0].kill();
    drop(world.lock().acquire().await.unwrap());
    world.servers[0].restart_empty().await.unwrap();
    world.servers[1].kill();
    let lease = world.lock().acquire().await.expect("the first is back, and makes a quorum with the third");
    drop(lease);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_two_three_and_four_servers_settle() {
    for count in 1..=4 {
        let world = World::start(count).await;
        let lease = world.lock().acquire().await.unwrap();
        assert!(world.lock().try_acquire().await.unwrap().is_none(), "{count} servers");
        lease.release().await.unwrap();
        world.wait_for_keys(0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_leaves_no_key_and_no_connection() {
    let world = World::start(3).await;
    let lease = world.lock().acquire().await.unwrap();
    world.coordinator.close(patience()).await;
    assert_eq!(lease.check().unwrap_err().reason, LossReason::Closed);
    assert_eq!(world.keys().await, 0);
}
