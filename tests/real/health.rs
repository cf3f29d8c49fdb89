//! The health of real servers that are killed, restarted and stopped.

use quorlock::{
    health::{Health, NodeHealth, NodeStatus},
    runtime::{Clock as _, SystemClock},
};

use crate::world::World;
use quorlock_testkit::patience;

/// Waits until the first node has the status `wanted`, with a deadline.
async fn until(health: &mut Health, wanted: impl Fn(&NodeHealth) -> bool) -> NodeHealth {
    let found = async {
        while !wanted(&health.now()[0]) {
            health.changed().await.unwrap();
        }
        health.now()[0].clone()
    };
    let clock = SystemClock::default();
    tokio::select! {
        found = found => found,
        () = clock.sleep_until(clock.now() + patience()) => panic!("the change is not reported"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_restarted_and_stopped_is_seen_each_time() {
    let world = World::start(3).await;
    let mut health = world.coordinator.health();
    assert!(health.now().iter().all(|node| node.status == NodeStatus::Unknown));
    world.warm_up().await;
    let first = until(&mut health, |node| node.status == NodeStatus::Connected).await;
    assert!(first.round_trip.is_some_and(|trip| !trip.is_zero()), "it has answered: {first:?}");

    world.servers[0].kill();
    let killed = until(&mut health, |node| matches!(node.status, NodeStatus::Unreachable { .. })).await;
    assert_eq!(killed.identity, first.identity, "the last identity is kept");

    world.servers[0].restart_empty().await.unwrap();
    let back = until(&mut health, |node| node.status == NodeStatus::Connected).await;
    assert_eq!(back.restarts, 1, "{back:?}");
    assert_ne!(back.identity.map(|new| new.id.clone()), first.identity.map(|old| old.id.clone()));

    if !world.servers.can_freeze() {
        return;
    }
    world.servers[0].freeze().unwrap();
    // A stopped server is noticed only when it is asked.
    drop(world.lock().acquire().await.unwrap());
    until(&mut health, |node| matches!(node.status, NodeStatus::Stalled { .. })).await;
    world.servers[0].thaw().unwrap();
    let thawed = until(&mut health, |node| node.status == NodeStatus::Connected).await;
    assert_eq!(thawed.restarts, 1, "the same process as before");
}
