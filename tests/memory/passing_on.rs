//! Handoffs within a process: bounded, without a moment in which the lock is free, and clean when they
//! fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{MS, TTL, Turns, VALIDITY, bench, client, client_of, forever};
use quorlock::{
    Fencing, Handoff, LossReason,
    node::{Node, Request},
};
use quorlock_testkit::{MemoryNode, UnreadRequests, WrappedNode};

#[tokio::test(start_paused = true)]
async fn keys_a_handoff_did_not_replace_are_deleted() {
    let bench = bench(5);
    let lock = forever(&bench.coordinator);
    let first = lock.acquire().await.unwrap();
    let next = bench.waiting(lock).await;
    // The request to replace the token is lost with its connection.
    bench.nodes[0].unread_requests(UnreadRequests::Lost);
    bench.nodes[0].lose_requests(true);
    first.release().await.unwrap();
    let second = next.await.unwrap().unwrap();
    bench.nodes[0].disconnect();
    bench.nodes[0].lose_requests(false);
    bench.nodes[0].connect();
    bench.pass(Duration::from_secs(1)).await;
    assert_eq!(bench.nodes[0].holder("r"), None, "the first holder's key is deleted");
    second.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handoff_deletes_nothing_if_nothing_was_stored() {
    let bench = bench(5);
    bench.nodes[0].disconnect();
    let lock = forever(&bench.coordinator);
    let first = lock.acquire().await.unwrap();
    let next = bench.waiting(lock).await;
    bench.nodes[0].connect();
    bench.nodes[0].lose_requests(true);
    first.release().await.unwrap();
    let second = next.await.unwrap().unwrap();
    bench.pass(Duration::from_secs(1)).await;
    let asked = bench.nodes[0].requests();
    assert_eq!(
        (asked.transfer, asked.release + asked.cancel),
        (1, 0),
        "that node had no key of the first holder"
    );
    second.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn handoffs_respect_their_number_and_duration() {
    let passed_on = async |fencing, handoff, tasks, held| {
        let bench = bench(5);
        let mut turns = Turns::default();
        let lock = forever(&bench.coordinator).handoff(handoff).fencing(fencing);
        (0..tasks).for_each(|_| turns.join(&bench, lock.clone(), held));
        assert_eq!(turns.order().await.len(), tasks);
        tasks - bench.nodes[0].requests().acquire
    };
    for fencing in [Fencing::On, Fencing::Off] {
        assert_eq!(passed_on(fencing, Handoff::times(0), 3, MS).await, 0);
        assert_eq!(passed_on(fencing, Handoff::times(2), 4, MS).await, 2, "the fourth asks anew");
        let within = Handoff::times(9).within(20 * MS);
        assert_eq!(passed_on(fencing, within, 3, 10 * MS).await, 1, "the third would exceed the time");
    }
}

#[tokio::test(start_paused = true)]
async fn other_processes_get_a_turn_after_bounded_handoffs() {
    let bench = bench(5);
    let lock = forever(&bench.coordinator).handoff(Handoff::times(5));
    let greedy: Arc<AtomicUsize> = Arc::default();
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let (lock, clock, greedy) = (lock.clone(), bench.clock.clone(), greedy.clone());
            tokio::spawn(async move {
                let lease = lock.acquire().await.unwrap();
                greedy.fetch_add(1, Ordering::SeqCst);
                clock.sleep_until(clock.now() + MS).await;
                lease.release().await.unwrap();
            })
        })
        .collect();
    bench.pass(3 * MS).await;
    let other = client(&bench);
    let before = greedy.load(Ordering::SeqCst);
    let lease = forever(&other).acquire().await.unwrap();
    let overtaken = greedy.load(Ordering::SeqCst) - before;
    assert!(overtaken <= 12, "{overtaken} waiters of the process came first");
    lease.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_asks_again_queues_behind_the_others() {
    let bench = bench(5);
    bench.delay(MS / 2, MS / 2);
    let other = client(&bench);
    let greedy = {
        let (lock, clock) = (forever(&bench.coordinator), bench.clock.clone());
        tokio::spawn(async move {
            loop {
                let lease = lock.acquire().await.unwrap();
                clock.sleep_until(clock.now() + 5 * MS).await;
                lease.release().await.unwrap();
            }
        })
    };
    bench.pass(2 * MS).await;
    for _ in 0..20 {
        let before = bench.clock.now();
        let lease = forever(&other).acquire().await.unwrap();
        let waited = bench.clock.now().since(before);
        assert!(waited <= 30 * MS, "waited {waited:?} for holds of 5 ms");
        lease.release().await.unwrap();
    }
    greedy.abort();
}

#[tokio::test(start_paused = true)]
async fn a_handoff_never_leaves_the_lock_free() {
    let bench = bench(5);
    let lock = forever(&bench.coordinator);
    let first = lock.acquire().await.unwrap();
    let next = bench.waiting(lock.clone()).await;
    let (token, watch) = (first.token().clone(), first.watch());
    bench.delay(MS, MS);
    first.release().await.unwrap();
    assert_eq!(watch.check().unwrap_err().reason, LossReason::Released, "the old lease ends first");
    let second = next.await.unwrap().unwrap();
    assert_ne!(*second.token(), token, "its own token");
    assert!(second.remaining() > VALIDITY - 10 * MS, "and a full TTL");
    assert!(second.remaining() <= VALIDITY - 2 * MS, "from before it was sent");
    bench.settle().await;
    assert_eq!(bench.nodes.iter().map(|node| node.requests().release).sum::<usize>(), 0);
    assert_eq!(bench.nodes.iter().map(|node| node.requests().transfer).sum::<usize>(), 5, "one round");
    assert!(bench.nodes.iter().all(|node| node.holder("r").as_ref() == Some(second.token())));
}

#[tokio::test(start_paused = true)]
async fn a_failed_handoff_leaves_no_key_and_the_next_succeeds() {
    let bench = bench(5);
    let lock = forever(&bench.coordinator);
    let first = lock.acquire().await.unwrap();
    let next = bench.waiting(lock.clone()).await;
    bench.nodes[..3].iter().for_each(MemoryNode::hang);
    first.release().await.unwrap();
    bench.pass(Duration::from_secs(1)).await;
    assert!(!next.is_finished(), "three of five nodes hang");
    bench.nodes[..3].iter().for_each(MemoryNode::resume);
    let before = bench.clock.now();
    let second = next.await.unwrap().unwrap();
    let waited = bench.clock.now().since(before);
    // It asks once a second, give or take what is drawn.
    assert!(waited <= Duration::from_secs(2), "and the TTL need not expire: {waited:?}");
    second.release().await.unwrap();
    bench.pass(Duration::from_secs(1)).await;
    assert_eq!(bench.keys(), 0);
}

/// A node that panics at the next renewal, once the test arms it.
fn panicking(node: MemoryNode, armed: Arc<AtomicBool>) -> WrappedNode {
    WrappedNode::new(node).on_request(move |request, responder, inner| {
        let renews = matches!(*request, Request::Renew { .. });
        assert!(!(renews && armed.swap(false, Ordering::Relaxed)), "this node panics on request");
        inner.ask(request, responder);
    })
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_still_served_after_its_keeper_panics() {
    let bench = bench(3);
    let armed = Arc::<AtomicBool>::default();
    let nodes = bench.nodes.iter().cloned().map(|node| panicking(node, armed.clone()));
    let coordinator = client_of(&bench, nodes);
    let lock = forever(&coordinator);
    let held = lock.acquire().await.unwrap();
    // Its renewal is due at the same moment.
    let other = coordinator.lock("other").acquire().await.unwrap();
    let next = bench.waiting(lock).await;
    armed.store(true, Ordering::Relaxed);
    bench.pass(TTL / 2).await;
    assert!(!armed.load(Ordering::Relaxed), "a renewal was due");
    bench.pass(TTL).await;
    assert!(held.check().is_err(), "it is not renewed");
    assert!(other.check().is_ok(), "the lease beside it is");
    assert!(next.is_finished(), "the waiter behind it is not forgotten");
    next.await.unwrap().unwrap().release().await.unwrap();
}
