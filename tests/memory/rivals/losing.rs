//! Losing: the holder is notified in time, whatever has failed.

use std::sync::Arc;
use std::time::Duration;

use quorlock::{
    Coordinator, LossReason, Wait,
    runtime::{Clock, SystemClock},
};
use quorlock_testkit::{MemoryNode, SkewedClock, memory_nodes, memory_nodes_on};

use crate::common::{TTL, VALIDITY, bench};
use crate::way::Way;

#[tokio::test(start_paused = true)]
async fn a_partitioned_holder_is_notified_before_the_next_begins() {
    // Immediately, in the middle, and while a renewal is in flight or due.
    for cut_after in [1, 1_000, 3_332, 3_333, 3_334, 5_000, 6_700, 20_000] {
        let bench = bench(5);
        let way = Way::default();
        let lease = way.client(&bench, |builder| builder).lock("r").ttl(TTL).acquire().await.unwrap();
        bench.pass(Duration::from_millis(cut_after)).await;
        way.cut();
        let (watch, clock) = (lease.watch(), bench.clock.clone());
        let notified = tokio::spawn(async move {
            let lost = watch.lost().await;
            (lost.reason, clock.now())
        });
        let _next = bench.lock().wait(Wait::Forever).acquire().await.unwrap();
        let entered = bench.clock.now();
        assert!(lease.check().is_err(), "cut after {cut_after} ms: two holders");
        let (reason, notified) = notified.await.unwrap();
        assert_eq!(reason, LossReason::Expired);
        assert!(notified < entered, "cut after {cut_after} ms: notified {:?} late", notified.since(entered));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_renewal_does_not_move_the_end() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    let end = bench.clock.now() + lease.remaining();
    bench.nodes.iter().for_each(MemoryNode::hang);
    // Several renewals are sent, and none is confirmed.
    bench.pass(VALIDITY - Duration::from_millis(10)).await;
    assert!(bench.nodes[0].requests().renew >= 2, "it was tried again");
    assert_eq!(bench.clock.now() + lease.remaining(), end);
}

/// The runtime that would renew it has ended, with all its tasks and timers.
#[test]
fn a_lease_ends_even_if_its_keeper_dies() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clock = Arc::new(SkewedClock::new(Arc::new(SystemClock::default()), 1.0));
    let nodes = memory_nodes_on(&(clock.clone() as Arc<dyn Clock>), 3);
    let client = Coordinator::builder().custom_nodes(nodes).clock(clock.clone()).build().unwrap();
    let first = runtime();
    let lease = first.block_on(client.lock("r").ttl(TTL).acquire()).unwrap();
    drop(first);
    clock.jump_forward(VALIDITY - Duration::from_secs(8));
    assert_eq!(lease.check(), Ok(()), "it was acquired, and has not ended yet");
    clock.jump_forward(Duration::from_secs(8));
    assert!(lease.check().is_err(), "it must expire without a renewal or a notification");
    let lost = runtime().block_on(lease.lost());
    assert_eq!(lost.reason, LossReason::Expired);
}

#[test]
fn a_lease_survives_its_runtime_and_is_released_elsewhere() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let nodes = memory_nodes(3);
    let client = Coordinator::builder().custom_nodes(nodes.clone()).build().unwrap();
    let first = runtime();
    let renewed = first.block_on(client.lock("a").acquire()).unwrap();
    let released = first.block_on(client.lock("b").acquire()).unwrap();
    drop(first);
    assert_eq!((renewed.check(), released.check()), (Ok(()), Ok(())));
    runtime().block_on(renewed.renew()).unwrap();
    assert_eq!(renewed.check(), Ok(()));
    runtime().block_on(released.release()).unwrap();
    assert!(nodes.iter().all(|node| node.holder("a").is_some() && node.holder("b").is_none()));
}
