//! Watches of leases, of nodes, and of other holders.

use std::thread;
use std::time::Duration;

use quorlock::{
    Builder, LossReason, Owner, RestartGuard,
    doctor::Check,
    health::{NodeHealth, NodeStatus},
};
use quorlock_testkit::{Servers, memory_nodes, patience};

use super::{AcquireError, ConfigError, bench};

#[test]
fn another_thread_watches_a_lease_until_its_end() {
    let bench = bench();
    let lease = bench.lock().acquire().unwrap();
    let watch = lease.watch();
    assert_eq!((watch.resource(), watch.token()), (lease.resource(), lease.token()));
    assert_eq!((watch.fencing_token(), watch.mode()), (lease.fencing_token(), lease.mode()));
    assert!(watch.check().is_ok() && watch.remaining() > Duration::ZERO);
    assert_eq!(watch.lost_within(Duration::from_millis(1)), None);
    let other = watch.clone();
    let watcher = thread::spawn(move || other.lost().reason);
    lease.release().unwrap();
    assert_eq!(watcher.join().unwrap(), LossReason::Released);
    assert!(watch.check().is_err() && watch.remaining().is_zero());
    let short = bench.lock().max_hold(Duration::from_millis(50)).acquire().unwrap();
    assert_eq!(short.lost().reason, LossReason::MaxHold);
    let leadership =
        bench.coordinator.election("e").max_hold(Duration::from_millis(50)).campaign("me").unwrap();
    assert_eq!(leadership.watch().token(), leadership.token());
    assert_eq!(leadership.lost().reason, LossReason::MaxHold);
}

#[test]
fn within_a_scope_a_lock_is_acquired_again_and_outside_it_is_not() {
    let bench = bench();
    let lock = bench.lock().reentrant();
    let of_nobody = AcquireError::Config(ConfigError::NoOwner);
    assert_eq!(lock.acquire().unwrap_err(), of_nobody);
    assert!(of_nobody.to_string().contains("Owner::scope_blocking"), "{of_nobody}");
    Owner::scope_blocking(|| {
        let outer = lock.acquire().unwrap();
        let inner = Owner::scope_blocking(|| lock.acquire().unwrap());
        assert_eq!(inner.token(), outer.token(), "a scope within a scope is the same owner");
        thread::scope(|scope| {
            let stranger = scope.spawn(|| {
                assert_eq!(lock.try_acquire().unwrap_err(), of_nobody, "a thread is outside");
                Owner::scope_blocking(|| lock.try_acquire().unwrap().is_none())
            });
            assert!(stranger.join().unwrap(), "another owner");
        });
        inner.release().unwrap();
        outer.check().unwrap();
        outer.release().unwrap();
    });
    bench.wait_until_free();
}

#[test]
fn a_lock_is_revoked_from_the_inspected_holder() {
    let bench = bench();
    let lease = bench.lock().acquire().unwrap();
    let seen = bench.lock().inspect().unwrap().holder().unwrap();
    let report = bench.lock().revoke(&seen.token).unwrap();
    assert_eq!(report.granted(), 5, "{report}");
    let next = bench.lock().acquire().unwrap();
    assert!(next.fencing_token() > lease.fencing_token());
    assert_eq!(bench.lock().revoke(&seen.token).unwrap().granted(), 0, "another client holds it now");
    next.check().unwrap();
    let nameless = bench.coordinator.lock("").revoke(&seen.token).unwrap_err();
    assert!(matches!(nameless, ConfigError::Resource(_)), "{nameless}");
}

#[test]
fn threads_observe_the_state_of_the_nodes() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let servers = runtime.block_on(
        Servers::setup().options(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).start(3),
    );
    let servers = servers.unwrap();
    println!("on {}", servers.kind());
    let builder = Builder::default().nodes(servers.urls()).restart_guard(RestartGuard::Off);
    let coordinator = builder.build_blocking().unwrap();
    let mut health = coordinator.health();
    let are = |condition: NodeStatus| move |node: &NodeHealth| node.status == condition;
    assert!(health.now().iter().all(are(NodeStatus::Unknown)), "no node was asked");
    assert_eq!(health.changed_within(Duration::from_millis(1)), None);
    let _lease = coordinator.lock("r").acquire().unwrap();
    let connected = |nodes: &[NodeHealth]| nodes.iter().all(are(NodeStatus::Connected));
    while !connected(&health.now()) {
        assert!(health.changed_within(patience()).is_some(), "{:?}", health.now());
    }
    servers[2].kill();
    let gone = |nodes: &[NodeHealth]| matches!(nodes[2].status, NodeStatus::Unreachable { .. });
    while !gone(&health.now()) {
        assert!(health.changed_within(patience()).is_some(), "{:?}", health.now());
    }
    let evicts = |matters: Vec<Check>| matters.iter().filter(|matter| **matter == Check::Eviction).count();
    let noticed = coordinator.warnings();
    assert!(evicts(noticed.iter().map(|finding| finding.check).collect()) >= 2, "{noticed:?}");
    let examined = coordinator.doctor();
    assert_eq!(examined.nodes.len(), 3);
    assert_eq!(evicts(examined.findings.iter().map(|finding| finding.check).collect()), 2, "{examined:?}");
}

#[test]
fn an_observer_is_notified_of_the_end() {
    let coordinator = Builder::default().custom_nodes(memory_nodes(3)).build_blocking().unwrap();
    let (mut one, mut two) = (coordinator.health(), coordinator.health());
    let watchers =
        [thread::spawn(move || one.changed()), thread::spawn(move || two.changed_within(patience()))];
    coordinator.lock("r").acquire().unwrap().release().unwrap();
    drop(coordinator);
    assert_eq!(watchers.map(|watcher| watcher.join().unwrap()), [None, Some(Vec::new())]);
}
