//! Hints of the nodes wake waiters, and a lost hint costs a heartbeat.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{
    Bench, MS, TTL, VALIDITY, acquiring, asked, bench, client, client_of, forever, passing, unnotified,
};
use quorlock::{
    Lease, LossReason, Renewal,
    node::{Expiry, Hint, HintListener, Node, Request},
};
use quorlock_testkit::{MemoryNode, WrappedNode};

#[tokio::test(start_paused = true)]
async fn a_plain_delete_and_an_expiry_wake_just_as_well() {
    for deleted in [true, false] {
        let bench = bench(5);
        for node in &bench.nodes {
            node.set_data("r", "another library's token", Expiry::In(TTL));
        }
        let waiting = acquiring(forever(&bench.coordinator));
        bench.pass(Duration::from_secs(1)).await;
        let mut before = bench.clock.now();
        if deleted {
            for node in &bench.nodes {
                node.remove("r");
            }
        } else {
            before = before + (TTL - Duration::from_secs(1));
        }
        let _lease = waiting.await.unwrap().unwrap();
        let late = bench.clock.now().since(before);
        assert!(late <= 10 * MS, "deleted: {deleted}, {late:?} late");
    }
}

/// A bench of five nodes, 10 ms away.
fn far() -> Bench {
    let bench = bench(5);
    bench.delay(5 * MS, 5 * MS);
    bench
}

/// Waits until the leases have been renewed, and for another second.
async fn renewed(bench: &Bench) {
    bench.pass(TTL / 3 + Duration::from_secs(1)).await;
    assert_eq!(asked(&bench.nodes), 2 * 5);
}

/// Deletes the key on a quorum of the nodes, and asserts that its holder is notified.
async fn hears<K, F>(bench: &Bench, lease: &Lease<K, F>, key: &str) {
    renewed(bench).await;
    let before = bench.clock.now();
    bench.nodes[..3].iter().for_each(|node| node.remove(key));
    assert_eq!(lease.lost().await.reason, LossReason::QuorumLost);
    let heard = bench.clock.now().since(before);
    assert!(heard <= 20 * MS, "{heard:?} after {key} was deleted");
    bench.settle().await;
    assert!(format!("{:?}", bench.coordinator).contains("queues: 0"), "{:?}", bench.coordinator);
}

#[tokio::test(start_paused = true)]
async fn i52_a_holder_whose_key_is_deleted_on_a_quorum_hears_of_it_within_two_trips() {
    let bench = far();
    let lease = bench.lock().acquire().await.unwrap();
    hears(&bench, &lease, "r").await;
    for key in ["r", "s"] {
        let bench = far();
        let lease = bench.coordinator.lock_all(["r", "s"]).ttl(TTL).acquire().await.unwrap();
        hears(&bench, &lease, key).await;
    }
}

/// Without its hint, a second and a third node would lose it before the next renewal.
#[tokio::test(start_paused = true)]
async fn i52_a_key_that_is_deleted_on_one_node_after_the_other_is_restored_in_between() {
    let bench = far();
    let lease = bench.lock().acquire().await.unwrap();
    renewed(&bench).await;
    for node in &bench.nodes {
        node.remove("r");
        bench.pass(30 * MS).await;
        assert!(bench.nodes.iter().all(|node| node.holder("r").as_ref() == Some(lease.token())));
    }
    lease.check().unwrap();
    assert_eq!(asked(&bench.nodes), 7 * 5);
}

/// The marker of a shared lock changes with each reader, and a holder that renews itself has said when.
#[tokio::test(start_paused = true)]
async fn i52_readers_and_holders_that_renew_themselves_hear_of_nothing() {
    let bench = bench(5);
    let reader = bench.lock().shared().acquire().await.unwrap();
    let manual = bench.coordinator.lock("s").ttl(TTL).renewal(Renewal::Manual).acquire().await.unwrap();
    manual.renew().await.unwrap();
    bench.pass(TTL / 3 + Duration::from_secs(1)).await;
    let before = asked(&bench.nodes);
    for node in &bench.nodes {
        node.remove("r");
        node.remove("s");
    }
    bench.pass(Duration::from_secs(1)).await;
    assert_eq!(asked(&bench.nodes), before);
    assert!(reader.check().is_ok() && manual.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_dead_holders_lock_is_free_after_its_ttl_and_not_earlier() {
    let bench = bench(5);
    let start = bench.clock.now();
    // Neither renewed nor released, as after SIGKILL.
    for node in &bench.nodes {
        node.set_data("r", "00000000000000000000000000000000 db-7:4121", Expiry::In(TTL));
    }
    let before = asked(&bench.nodes);
    let _lease = forever(&bench.coordinator).acquire().await.unwrap();
    let entered = bench.clock.now().since(start);
    assert!(entered > VALIDITY && entered <= TTL + 20 * MS, "{entered:?}");
    assert!(asked(&bench.nodes) - before <= 5 + 2 * 10 + 15, "no polling: {}", asked(&bench.nodes) - before);
}

#[tokio::test(start_paused = true)]
async fn without_notifications_waiters_poll_at_random() {
    let bench = bench(5);
    bench.nodes.iter().for_each(|node| node.hints(false));
    let holder = client(&bench);
    let held = forever(&holder).acquire().await.unwrap();
    let waiting = acquiring(forever(&bench.coordinator));
    bench.pass(Duration::from_secs(1)).await;
    let before = bench.clock.now();
    held.release().await.unwrap();
    let _lease = waiting.await.unwrap().unwrap();
    let took = bench.clock.now().since(before);
    assert!(took <= 110 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_is_lost_costs_a_heartbeat() {
    let bench = bench(5);
    let holder = client(&bench);
    let held = forever(&holder).acquire().await.unwrap();
    let waiting = bench.waiting(forever(&bench.coordinator)).await;
    // The nodes promise hints, and then send none.
    bench.nodes.iter().for_each(|node| node.lose_replies(true));
    let releasing = tokio::spawn(held.release());
    bench.pass(100 * MS).await;
    bench.nodes.iter().for_each(|node| {
        node.disconnect();
        node.connect();
        node.lose_replies(false);
    });
    drop(releasing.await);
    let before = bench.clock.now();
    let _lease = waiting.await.unwrap().unwrap();
    assert!(bench.clock.now().since(before) <= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_makes_a_waiter_ask_again() {
    let bench = bench(5);
    let holder = client(&bench);
    let _held = forever(&holder).acquire().await.unwrap();
    let waiting = passing(forever(&bench.coordinator));
    bench.pass(100 * MS).await;
    let before = asked(&bench.nodes);
    for node in &bench.nodes {
        node.disconnect();
        node.connect();
    }
    bench.pass(200 * MS).await;
    assert!(asked(&bench.nodes) > before, "not only at the next heartbeat");
    waiting.abort();
}

/// A node that notifies a process of its own cleanups, like Redis 6.0.
fn echoing(node: MemoryNode) -> WrappedNode {
    let listeners = Arc::<Mutex<Vec<Arc<dyn HintListener>>>>::default();
    let all = listeners.clone();
    WrappedNode::new(node)
        .on_listen(move |listener, inner| {
            listeners.lock().unwrap().push(listener.clone());
            inner.listen(listener);
        })
        .on_request(move |request, responder, inner| {
            let changes = matches!(*request, Request::Release { .. });
            inner.ask(request, responder);
            if changes {
                all.lock().unwrap().iter().for_each(|listener| listener.on_hint(Hint::Invalidated(b"r")));
            }
        })
}

#[tokio::test(start_paused = true)]
async fn a_waiter_ignores_hints_of_its_own_cleanup() {
    // Whichever node is asked first: the other holder has three of five.
    for first in 0..5 {
        let bench = bench(5);
        bench.delay(MS, MS);
        for held in 0..3 {
            bench.nodes[(first + held) % 5].set_data("r", "another library's token", Expiry::In(TTL));
        }
        let client = client_of(&bench, bench.nodes.iter().cloned().map(echoing));
        let waiting = passing(forever(&client));
        bench.pass(Duration::from_secs(8)).await;
        let asked = asked(&bench.nodes);
        // Each round asks five nodes and undoes two; before it, a node is asked for a place, and
        // another for the holder. The shortest of the random heartbeats is half a second.
        assert!(asked <= 9 * (1 + 16), "two heartbeats a second at the most: {asked} requests in 8 s");
        waiting.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn hints_that_never_come_cost_a_heartbeat_and_an_expiry_costs_nothing() {
    for (ttl, latest) in [(600 * MS, 620 * MS), (TTL, Duration::from_secs(1) + 3_100 * MS)] {
        let bench = bench(5);
        let client = unnotified(&bench);
        for node in &bench.nodes {
            node.set_data("r", "another library's token", Expiry::In(ttl));
        }
        let before = bench.clock.now();
        let waiting = passing(forever(&client));
        bench.pass(Duration::from_secs(1)).await;
        for node in &bench.nodes {
            // Expired in the first case, and deleted in the second.
            node.remove("r");
        }
        if ttl == TTL {
            waiting.await.unwrap().unwrap();
            assert!(bench.clock.now().since(before) <= latest, "{:?}", bench.clock.now().since(before));
        } else {
            assert!(waiting.is_finished(), "the keys ended after {ttl:?}");
        }
    }
}
