//! Acquiring: a quorum in time, or an error with the reason.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{LATE, TTL, VALIDITY, acquiring, bench, bench_with, client, suspendable};
use quorlock::{
    AcquireError, Coordinator, Wait,
    node::{Expiry, Node, NodeError, NodeErrorKind},
    votes::VoteOutcome,
};
use quorlock_testkit::{SkewedClock, WrappedNode};

#[tokio::test(start_paused = true)]
async fn a_free_lock_is_granted_by_all_nodes() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    assert_eq!(bench.keys(), 5, "every node has the key");
    assert_eq!(lease.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn i1_validity_counts_from_before_the_first_byte_was_sent() {
    let bench = bench(5);
    bench.delay(Duration::from_millis(10), Duration::from_millis(30));
    let before = bench.clock.now();
    let lease = bench.lock().acquire().await.unwrap();
    let took = bench.clock.now().since(before);
    assert!(took >= Duration::from_millis(40), "the answers took their time");
    assert!(lease.remaining() + took <= VALIDITY, "the time of the round counts against the validity");
}

#[tokio::test(start_paused = true)]
async fn i1_validity_counts_from_before_the_first_node_was_asked() {
    let bench = bench(3);
    let clock = Arc::new(SkewedClock::new(bench.clock.clone(), 1.0));
    // The clock runs while a request is sent, as when the sender's buffers are full or it is paused.
    let nodes = bench.nodes.iter().cloned().map(|node| {
        let clock = clock.clone();
        WrappedNode::new(node).on_request(move |request, responder, inner| {
            inner.ask(request, responder);
            clock.jump_forward(Duration::from_millis(10));
        })
    });
    let client = Coordinator::builder().custom_nodes(nodes).clock(clock.clone()).build().unwrap();
    let lease = client.lock("r").ttl(TTL).acquire().await.unwrap();
    assert!(lease.remaining() <= VALIDITY - Duration::from_millis(30), "{:?}", lease.remaining());
}

#[tokio::test(start_paused = true)]
async fn i3_a_quorum_seen_after_validity_ended_is_released() {
    // The answers arrive ten milliseconds after the request, plus the suspend: just as validity ends, or later.
    for suspend in [VALIDITY - Duration::from_millis(10), TTL] {
        let bench = bench(3);
        bench.delay(Duration::from_millis(5), Duration::from_millis(5));
        // The machine is suspended while the answers are in flight; its clock keeps running.
        let (suspended, client) = suspendable(&bench);
        let acquiring = acquiring(client.lock("r").wait(Wait::Never));
        bench.pass(Duration::from_millis(7)).await;
        suspended.jump_forward(suspend);
        let error = acquiring.await.unwrap().unwrap_err();
        assert!(matches!(error, AcquireError::Unavailable { .. }), "{suspend:?}: {error}");
        bench.pass(LATE).await;
        assert_eq!(bench.keys(), 0, "no key is left");
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_lock_names_its_holder_and_the_time_it_has_left() {
    let bench = bench_with(5, |builder| builder.label("nightly import"));
    let _lease = bench.lock().acquire().await.unwrap();
    let other = client(&bench);
    let error = other.lock("r").ttl(TTL).wait(Wait::Never).acquire().await.unwrap_err();
    let AcquireError::Contended { report, .. } = &error else { panic!("{error}") };
    let holder = report.holder().unwrap();
    assert_eq!(holder.nodes, 5);
    assert!(holder.remaining <= Expiry::In(TTL) && holder.remaining > Expiry::In(VALIDITY));
    assert_eq!((error.remaining(), error.holder()), (Some(holder.remaining), Some(holder)));
    let text = error.to_string();
    assert!(text.contains("nightly import"), "the loser sees the holder's context: {text}");
    assert!(text.contains(&std::process::id().to_string()), "{text}");
}

#[tokio::test(start_paused = true)]
async fn try_acquire_gives_up_if_votes_stay_split() {
    let bench = bench(5);
    // Two other clients have two of five nodes each, and their attempts fail.
    for (place, node) in bench.nodes.iter().take(4).enumerate() {
        node.set_data("r", if place < 2 { "ann" } else { "ben" }, Expiry::In(TTL));
    }
    let before = bench.clock.now();
    let reports = Arc::new(AtomicUsize::new(0));
    let count = reports.clone();
    let lock = bench.lock().on_wait(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(bench.clock.now().since(before) < Duration::from_millis(200), "try_acquire does not wait");
    assert_eq!(bench.nodes[4].requests().acquire, 6, "it asks again, as no client has the lock");
    assert_eq!(reports.load(Ordering::Relaxed), 0, "nor does it report a wait");
    bench.pass(LATE).await;
    assert_eq!(bench.nodes[4].holder("r"), None, "no key is left");
}

#[tokio::test(start_paused = true)]
async fn try_acquire_asks_once_if_a_client_may_have_the_lock() {
    for down in [0, 1] {
        let bench = bench(5);
        for node in &bench.nodes[..3] {
            node.set_data("r", "ann", Expiry::In(TTL));
        }
        bench.nodes[..down].iter().for_each(|node| node.fail(NodeErrorKind::OutOfSpace, "out of memory"));
        assert!(bench.lock().try_acquire().await.unwrap().is_none());
        assert_eq!(bench.nodes[4].requests().acquire, 1, "with {down} of the holder's nodes down");
    }
}

#[tokio::test(start_paused = true)]
async fn try_acquire_is_none_for_a_held_lock_and_an_error_in_an_outage() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    assert!(bench.lock().try_acquire().await.unwrap().is_none(), "other clients hold it");
    lease.release().await.unwrap();
    for node in &bench.nodes[..3] {
        node.disconnect();
    }
    let error = bench.lock().try_acquire().await.unwrap_err();
    let AcquireError::Unavailable { report, .. } = &error else { panic!("{error}") };
    assert_eq!(report.granted(), 2);
    let causes = report
        .votes()
        .iter()
        .filter(|vote| matches!(vote.outcome, VoteOutcome::Failed(NodeError::Unreachable { .. })));
    assert_eq!(causes.count(), 3, "each node has its own cause");
    assert!(error.to_string().contains("2 of 5 granted, 3 needed"), "{error}");
    assert!(error.to_string().contains("node-1, node-2, node-3"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_hung_majority_costs_one_node_timeout_and_no_more() {
    let bench = bench(5);
    for node in &bench.nodes[2..] {
        node.hang();
    }
    let before = bench.clock.now();
    let error = bench.lock().try_acquire().await.unwrap_err();
    let took = bench.clock.now().since(before);
    assert!(matches!(error, AcquireError::Unavailable { .. }), "{error}");
    assert!(took >= Duration::from_millis(50) && took < Duration::from_millis(60), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn i2_two_addresses_of_one_server_are_one_vote() {
    let bench = bench(3);
    bench.nodes[1].identify_as("twin");
    bench.nodes[0].identify_as("twin");
    bench.nodes[2].disconnect();
    let error = bench.lock().try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("node-2: the same server as node-1"), "{error}");
    bench.nodes[2].connect();
    assert!(
        bench.lock().try_acquire().await.unwrap().is_some(),
        "two distinct servers of three are a quorum"
    );
}

#[tokio::test(start_paused = true)]
async fn i4_every_attempt_has_its_own_token() {
    let bench = bench(3);
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let lease = bench.lock().acquire().await.unwrap();
        tokens.push(lease.token().clone());
        lease.release().await.unwrap();
    }
    assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), 3, "no token is used twice");
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_after_the_time_given() {
    let bench = bench(5);
    let _lease = bench.lock().acquire().await.unwrap();
    let before = bench.clock.now();
    let error = bench.lock().wait(Wait::UpTo(Duration::from_secs(3))).acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::Contended { .. }), "{error}");
    let waited = bench.clock.now().since(before);
    assert!(waited >= Duration::from_secs(3) && waited < Duration::from_millis(3_060), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_holds_data_is_named_and_not_waited_for() {
    let bench = bench(5);
    for node in &bench.nodes {
        node.set_data("r", "an invoice", Expiry::Never);
    }
    for wait in [Wait::Never, Wait::UpTo(Duration::from_millis(1)), Wait::UpTo(TTL), Wait::Forever] {
        let error = bench.lock().wait(wait).acquire().await.unwrap_err();
        assert!(matches!(error, AcquireError::Misconfigured { .. }), "{wait:?}: {error}");
        assert!(error.to_string().contains("no expiry: it is data and not a lock"), "{wait:?}: {error}");
    }
    let left = bench.nodes[0].holder("r").unwrap();
    assert_eq!(left.as_bytes(), b"an invoice", "and the data stays");
}

#[tokio::test(start_paused = true)]
async fn two_clients_never_hold_together_and_both_get_a_turn() {
    let bench = bench(5);
    let other = client(&bench);
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for client in [&bench.coordinator, &other].into_iter().cycle().take(8) {
        let lock = client.lock("r").ttl(TTL).wait(Wait::Forever);
        let (inside, clock) = (inside.clone(), bench.clock.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                let lease = lock.acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                clock.sleep_until(clock.now() + Duration::from_millis(1)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                lease.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}
