//! Dropping a future, at any point in time, leaves no key behind (rules I-5 and I-20).

use std::pin::pin;
use std::time::Duration;

use crate::common::{Bench, TTL, bench, client};
use futures::{FutureExt as _, poll};
use quorlock::{
    Wait,
    node::{Access, NodeErrorKind},
};
use quorlock_testkit::{MemoryNode, UnreadRequests};

/// The points in time at which a future is dropped: every millisecond of more than two node timeouts
/// and several attempts.
const POINTS: u64 = 220;

/// The fault of the nodes while the future is dropped.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    Slow,
    OneHung,
    MajorityHung,
    RequestsDelayed,
    RepliesLost,
    Failing,
    Flapping,
    Contended,
}

const TROUBLES: [Fault; 9] = [
    Fault::None,
    Fault::Slow,
    Fault::OneHung,
    Fault::MajorityHung,
    Fault::RequestsDelayed,
    Fault::RepliesLost,
    Fault::Failing,
    Fault::Flapping,
    Fault::Contended,
];

impl Fault {
    fn begin(self, nodes: &[MemoryNode]) {
        let ms = Duration::from_millis;
        for (index, node) in nodes.iter().enumerate() {
            let spread = ms(7 * index as u64);
            match self {
                Fault::None | Fault::Contended => node.delay(ms(3), ms(3)),
                Fault::Slow => node.delay(ms(5) + spread, ms(11) + spread),
                Fault::OneHung if index == 0 => node.hang(),
                Fault::MajorityHung if index < 3 => node.hang(),
                Fault::OneHung | Fault::MajorityHung => node.delay(spread, spread),
                Fault::RequestsDelayed => node.delay(ms(60) + spread, ms(1)),
                Fault::RepliesLost => node.lose_replies(index < 3),
                Fault::Failing if index < 3 => {
                    node.fail(NodeErrorKind::OutOfSpace, "OOM command not allowed");
                }
                Fault::Failing => node.delay(ms(20), ms(20)),
                // The connection ends with requests in its socket, which the server reads later.
                Fault::Flapping => {
                    node.unread_requests(UnreadRequests::CarriedOut);
                    node.delay(ms(10), ms(10) + spread);
                }
            }
        }
        if let (Fault::Contended, Some(first)) = (self, nodes.first()) {
            first.set_data("r", "another client", quorlock::node::Expiry::In(ms(90)));
        }
    }

    fn at_the_cut(self, nodes: &[MemoryNode]) {
        if let Fault::Flapping = self {
            for node in nodes {
                node.disconnect();
            }
        }
    }

    fn end(nodes: &[MemoryNode]) {
        for node in nodes {
            node.delay(Duration::ZERO, Duration::ZERO);
            node.recover();
            node.lose_replies(false);
            node.resume();
            node.connect();
        }
    }
}

/// Long enough for every cleanup that the fault delayed, and far below the TTL, which would remove the
/// keys without a cleanup.
const GRACE: Duration = Duration::from_millis(1_500);

/// What is dropped at the cut, at each point of each fault, leaves no key.
async fn leaves_no_key(cut: impl AsyncFn(&Bench, Fault, Duration)) {
    for fault in TROUBLES {
        for point in (0..POINTS).map(Duration::from_millis) {
            let bench = bench(5);
            cut(&bench, fault, point).await;
            bench.pass(Duration::from_millis(30)).await;
            Fault::end(&bench.nodes);
            bench.pass(GRACE).await;
            let held = bench.nodes.iter().filter_map(|node| node.holder("r"));
            let left: Vec<_> = held.filter(|token| token.as_bytes() != b"another client").collect();
            assert!(left.is_empty(), "cut after {point:?} under {fault:?} left {left:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn i20_an_acquire_dropped_at_any_point_leaves_no_key() {
    leaves_no_key(async |bench, fault, point| {
        fault.begin(&bench.nodes);
        let lock = bench.lock().wait(Wait::Forever);
        let cut = bench.clock.now() + point;
        tokio::select! {
            biased;
            // A lease that was granted in time is dropped at the cut instead.
            lease = lock.acquire() => {
                bench.clock.sleep_until(cut).await;
                fault.at_the_cut(&bench.nodes);
                drop(lease);
            }
            () = bench.clock.sleep_until(cut) => fault.at_the_cut(&bench.nodes),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_release_dropped_at_any_point_leaves_no_key() {
    leaves_no_key(async |bench, fault, point| {
        let lease = bench.lock().acquire().await.unwrap();
        fault.begin(&bench.nodes);
        tokio::select! {
            biased;
            _ = lease.release() => {}
            () = bench.pass(point) => fault.at_the_cut(&bench.nodes),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_release_dropped_half_way_serves_a_new_waiter() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    bench.delay(Duration::from_millis(5), Duration::from_millis(5));
    let mut releasing = Box::pin(lease.release());
    assert!(poll!(releasing.as_mut()).is_pending());
    let lock = bench.lock().wait(Wait::Forever);
    let mut waiting = pin!(lock.acquire());
    assert!(poll!(waiting.as_mut()).is_pending());
    drop(releasing);
    let cut = bench.clock.now();
    waiting.await.unwrap().release().await.unwrap();
    assert!(bench.clock.now().since(cut) < Duration::from_millis(100), "the key does not stay until its TTL");
}

#[tokio::test(start_paused = true)]
async fn a_task_takes_over_if_the_first_waiter_is_dropped() {
    let bench = bench(5);
    let holder = client(&bench);
    let held = holder.lock("r").ttl(TTL).acquire().await.unwrap();
    let lock = bench.lock().wait(Wait::Forever);
    let mut first = Box::pin(lock.acquire());
    let mut second = pin!(lock.acquire());
    assert!(poll!(first.as_mut()).is_pending());
    assert!(poll!(second.as_mut()).is_pending());
    bench.settle().await;
    drop(first);
    held.release().await.unwrap();
    bench.pass(Duration::from_secs(1)).await;
    assert!(second.now_or_never().is_some_and(|lease| lease.is_ok()), "a task must have contended for it");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_dropped_at_any_point_and_released_leaves_no_key() {
    leaves_no_key(async |bench, fault, point| {
        let lease = bench.lock().acquire().await.unwrap();
        // Renewals would store the key again, also after the release.
        bench.nodes[1].flush();
        bench.nodes[4].flush();
        fault.begin(&bench.nodes);
        let cut = bench.clock.now() + point;
        tokio::select! {
            biased;
            _ = lease.renew() => bench.clock.sleep_until(cut).await,
            () = bench.clock.sleep_until(cut) => {}
        }
        fault.at_the_cut(&bench.nodes);
        drop(lease);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_attempt_is_not_sent() {
    let bench = bench(5);
    drop(bench.lock().acquire().await.unwrap());
    bench.settle().await;
    let before = bench.nodes[0].requests();
    for node in &bench.nodes[..3] {
        node.connecting();
    }
    assert!(bench.lock().acquire().await.is_err());
    for node in &bench.nodes[..3] {
        node.connect();
    }
    bench.settle().await;
    assert_eq!(bench.nodes[0].requests().acquire, before.acquire, "the attempt was abandoned");
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_renewal_is_not_sent() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    bench.settle().await;
    bench.nodes[0].connecting();
    lease.renew().await.unwrap();
    lease.release().await.unwrap();
    bench.nodes[0].connect();
    bench.settle().await;
    assert_eq!(bench.nodes[0].requests().renew, 0, "the renewal was abandoned");
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_set_that_lands_after_its_release_does_nothing() {
    let bench = bench(5);
    let node = &bench.nodes[0];
    // The connection ends with the SET in its socket. The release arrives over a new connection and
    // overtakes it: the server reads the old socket later.
    node.unread_requests(UnreadRequests::CarriedOut);
    node.hang();
    let lease = bench.lock().acquire().await.unwrap();
    bench.pass(Duration::from_millis(100)).await;
    node.disconnect();
    node.connect();
    lease.release().await.unwrap();
    bench.pass(Duration::from_secs(1)).await;
    node.resume();
    bench.pass(Duration::from_secs(1)).await;
    assert_eq!(node.holder("r"), None, "the tombstone stops it");
    assert!(node.keys().iter().any(|key| key.contains("tomb")), "{:?}", node.keys());
    bench.pass(TTL * 4).await;
    assert_eq!(node.keys(), Vec::<String>::new(), "and then expires");
}

#[tokio::test(start_paused = true)]
async fn i5_a_release_reaches_only_nodes_that_may_hold_a_key() {
    let bench = bench(5);
    let _lease = bench.lock().acquire().await.unwrap();
    assert!(bench.lock().try_acquire().await.unwrap().is_none());
    bench.settle().await;
    assert!(bench.nodes.iter().all(|node| node.requests().release + node.requests().cancel == 0));
}

#[tokio::test(start_paused = true)]
async fn a_release_deletes_only_its_own_key() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    for node in &bench.nodes[..2] {
        node.set_data("r", "another client", quorlock::node::Expiry::In(TTL));
    }
    lease.release().await.unwrap();
    bench.settle().await;
    assert_eq!(bench.keys(), 2, "the others' keys stay");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_missed_the_release_gets_it_when_it_is_back() {
    for is_dropped in [false, true] {
        let bench = bench(5);
        let lease = bench.lock().acquire().await.unwrap();
        bench.nodes[4].disconnect();
        if is_dropped {
            bench.delay(Duration::from_millis(5), Duration::from_millis(5));
            assert!(poll!(pin!(lease.release())).is_pending());
        } else {
            lease.release().await.unwrap();
        }
        bench.pass(Duration::from_secs(3)).await;
        assert_eq!(bench.keys(), 1);
        bench.nodes[4].connect();
        bench.pass(Duration::from_millis(1_100)).await;
        assert_eq!(bench.keys(), 0, "long before its TTL");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_without_a_quorum_says_so() {
    for (failing, confirmed) in [(2, true), (3, false), (5, false)] {
        let bench = bench(5);
        let lease = bench.lock().acquire().await.unwrap();
        let watch = lease.watch();
        bench.nodes[..failing].iter().for_each(|node| {
            node.fail(
                NodeErrorKind::PermissionDenied(Access::Operation),
                "NOPERM this user may not run 'del'",
            );
        });
        assert_eq!(watch.unconfirmed_release(), None, "it is held");
        lease.release().await.unwrap();
        let unconfirmed = watch.unconfirmed_release();
        assert_eq!(unconfirmed.is_none(), confirmed, "{failing} refuse: {unconfirmed:?}");
        assert!(unconfirmed.is_none_or(|report| report.to_string().contains("may not run")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_handoff_failed_is_not_confirmed_released() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    let watch = lease.watch();
    let waiting = bench.waiting(bench.lock().wait(Wait::UpTo(TTL / 10))).await;
    bench.nodes[..3].iter().for_each(|node| {
        node.fail(NodeErrorKind::PermissionDenied(Access::Operation), "NOPERM this user may not run 'set'");
    });
    lease.release().await.unwrap();
    assert!(watch.unconfirmed_release().is_some());
    waiting.await.unwrap().unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_late_answers_of_a_finished_release() {
    for hangs in [Duration::from_millis(5), Duration::from_millis(500)] {
        let bench = bench(5);
        let lease = bench.lock().acquire().await.unwrap();
        bench.nodes[4].hang();
        lease.release().await.unwrap();
        let mut closing = pin!(bench.coordinator.close(TTL / 2));
        bench.pass(hangs).await;
        assert!(poll!(closing.as_mut()).is_pending(), "after {hangs:?}");
        bench.nodes[4].resume();
        bench.settle().await;
        assert!(poll!(closing.as_mut()).is_ready(), "after {hangs:?}");
        assert_eq!(bench.keys(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_late_answers_of_a_running_release() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    bench.delay(Duration::from_millis(5), Duration::from_millis(5));
    bench.nodes[4].hang();
    let mut releasing = Box::pin(lease.release());
    assert!(poll!(releasing.as_mut()).is_pending());
    let mut closing = pin!(bench.coordinator.close(TTL / 2));
    assert!(poll!(closing.as_mut()).is_pending());
    releasing.await.unwrap();
    assert!(poll!(closing.as_mut()).is_pending(), "a node has not answered");
    bench.nodes[4].resume();
    closing.await;
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn close_waits_no_longer_than_a_key_may_be_stored() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    bench.nodes[4].hang();
    lease.release().await.unwrap();
    let began = bench.clock.now();
    bench.coordinator.close(3 * TTL).await;
    assert!(bench.clock.now().since(began) < 2 * TTL, "the key has expired");
}

#[tokio::test(start_paused = true)]
async fn clean_ups_of_several_clients_do_not_disturb_each_other() {
    let bench = bench(5);
    let other = client(&bench);
    for node in &bench.nodes[..2] {
        node.hang();
    }
    let first = bench.lock().acquire().await.unwrap();
    first.release().await.unwrap();
    let second = other.lock("r").ttl(TTL).acquire().await.unwrap();
    for node in &bench.nodes[..2] {
        node.resume();
    }
    bench.pass(Duration::from_millis(100)).await;
    assert_eq!(bench.keys(), 5, "the cleanup of the first client deleted keys of the second");
    second.release().await.unwrap();
}

/// Once the key has expired, nothing is left to clean up.
#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_to_a_down_node_until_its_ttl_ends() {
    let bench = bench(3);
    let mut health = bench.coordinator.health();
    let lease = bench.lock().acquire().await.unwrap();
    bench.settle().await;
    bench.nodes[2].disconnect();
    lease.release().await.unwrap();
    let Bench { clock, nodes, coordinator } = bench;
    drop(coordinator);
    let ended = async { while health.changed().await.is_some() {} };
    let late = clock.sleep_until(clock.now() + 2 * TTL);
    tokio::select! {
        () = ended => {}
        () = late => panic!("the nodes are still in use, with nothing left to release"),
    }
    drop(nodes);
}
