//! Waiting until a lock is free, without acquiring it.

use crate::common::{Bench, MS, TTL, bench, client};
use quorlock::election::Observed;
use quorlock::node::{Expiry, NodeErrorKind};
use quorlock::{AcquireError, Lock, Renewal, Wait};

/// The lock in a process of its own.
fn elsewhere(bench: &Bench) -> Lock {
    client(bench).lock("r").ttl(TTL)
}

#[tokio::test(start_paused = true)]
async fn it_returns_when_the_lock_is_released_and_acquires_nothing() {
    let bench = bench(5);
    elsewhere(&bench).until_free().await.unwrap();
    let lease = elsewhere(&bench).acquire().await.unwrap();
    let waiting = elsewhere(&bench);
    let release = async {
        bench.pass(TTL * 3).await; // it is renewed meanwhile
        lease.release().await.unwrap();
        bench.clock.now()
    };
    let freed = async {
        waiting.wait(Wait::Forever).until_free().await.unwrap();
        bench.clock.now()
    };
    let (released, freed) = tokio::join!(release, freed);
    assert!(freed.since(released) < 20 * MS, "it polls: {:?} late", freed.since(released));
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn it_returns_when_the_lock_of_a_crashed_holder_expires() {
    let bench = bench(5);
    let _crashed = elsewhere(&bench).renewal(Renewal::Manual).acquire().await.unwrap();
    elsewhere(&bench).wait(Wait::UpTo(TTL * 2)).until_free().await.unwrap();
}

/// As redis-py's `Lock` without a timeout stores it.
#[tokio::test(start_paused = true)]
async fn it_waits_for_the_lock_of_another_program_that_never_expires() {
    let bench = bench(5);
    let plant = |expiry| bench.nodes.iter().for_each(|node| node.set_data("r", "another program", expiry));
    plant(Expiry::Never);
    for wait in [Wait::Never, Wait::UpTo(TTL)] {
        let held = elsewhere(&bench).wait(wait).until_free().await;
        assert!(matches!(held, Err(AcquireError::Contended { .. })), "{held:?}");
    }
    let (lock, begun) = (elsewhere(&bench).wait(Wait::Forever), bench.clock.now());
    let ends = async {
        bench.pass(TTL).await;
        plant(Expiry::In(MS));
    };
    let (freed, ()) = tokio::join!(lock.until_free(), ends);
    freed.unwrap();
    assert!(bench.clock.now().since(begun) >= TTL);
}

#[tokio::test(start_paused = true)]
async fn readers_hold_it_and_a_retained_lock_is_not_free() {
    let bench = bench(5);
    let reader = elsewhere(&bench).shared().acquire().await.unwrap();
    let held = elsewhere(&bench).wait(Wait::UpTo(TTL)).until_free().await;
    assert!(matches!(held, Err(AcquireError::Contended { .. })), "{held:?}");
    reader.release().await.unwrap();
    elsewhere(&bench).wait(Wait::Never).until_free().await.unwrap();
    elsewhere(&bench).acquire().await.unwrap().retain(TTL * 4, "ran").await.unwrap();
    let held = elsewhere(&bench).wait(Wait::Never).until_free().await;
    assert!(matches!(held, Err(AcquireError::Contended { .. })), "{held:?}");
    elsewhere(&bench).wait(Wait::UpTo(TTL * 5)).until_free().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_must_be_reconfigured_is_not_waited_for() {
    for (count, refusing) in [(5, 3), (3, 2), (1, 1)] {
        let bench = bench(count);
        for node in &bench.nodes[..refusing] {
            node.fail(NodeErrorKind::Login, "WRONGPASS");
        }
        for wait in [Wait::Never, Wait::UpTo(TTL), Wait::Forever] {
            let before = bench.clock.now();
            let lock = elsewhere(&bench).wait(wait);
            let ended = lock.until_free().await;
            assert!(matches!(ended, Err(AcquireError::Misconfigured { .. })), "{wait:?}: {ended:?}");
            let acquired = lock.acquire().await.map(drop);
            assert!(matches!(acquired, Err(AcquireError::Misconfigured { .. })), "{wait:?}: {acquired:?}");
            assert!(bench.clock.now().since(before) < TTL / 2, "{wait:?}");
        }
    }
}

/// A restarted node does not know what it has lost, so a holder is over only when its quarantine is.
#[tokio::test(start_paused = true)]
async fn i12_nodes_that_restarted_empty_do_not_report_that_the_lock_is_free() {
    let bench = bench(5);
    let lease = elsewhere(&bench).acquire().await.unwrap();
    bench.nodes[..3].iter().for_each(quorlock_testkit::MemoryNode::restart_empty);
    let free = elsewhere(&bench).wait(Wait::Never).until_free().await.unwrap_err();
    assert!(matches!(free, AcquireError::Unavailable { .. }), "{free:?}");
    assert!(free.to_string().contains("too recently to vote"), "{free}");
    let observed = client(&bench).election("r").leader().await.unwrap();
    assert!(matches!(observed, Observed::Unknown(_)), "{observed}");
    lease.check().unwrap();
    drop(lease);
    elsewhere(&bench).wait(Wait::Forever).until_free().await.unwrap();
    assert!(bench.lock().try_acquire().await.unwrap().is_some(), "they vote by then");
}

/// Two of four keep a client from acquiring the lock, and not from seeing that it is free.
#[tokio::test(start_paused = true)]
async fn it_waits_while_the_other_nodes_can_report_that_the_lock_is_free() {
    let bench = bench(4);
    let lease = elsewhere(&bench).acquire().await.unwrap();
    bench.settle().await;
    let waiting = elsewhere(&bench).wait(Wait::Forever);
    for node in &bench.nodes[..2] {
        node.fail(NodeErrorKind::Login, "WRONGPASS");
    }
    let release = async {
        bench.pass(TTL / 4).await;
        lease.release().await.unwrap();
    };
    let ((), freed) = tokio::join!(release, waiting.until_free());
    freed.unwrap();
}

#[tokio::test(start_paused = true)]
async fn closing_the_coordinator_ends_the_wait() {
    let bench = bench(5);
    let _lease = elsewhere(&bench).acquire().await.unwrap();
    let lock = bench.coordinator.lock("r").wait(Wait::Forever);
    let waiting = tokio::spawn(async move { lock.until_free().await });
    bench.settle().await;
    bench.coordinator.close(TTL).await;
    bench.pass(TTL).await;
    assert!(waiting.is_finished(), "it waits for ever");
    assert_eq!(waiting.await.unwrap(), Err(AcquireError::Closed));
}
