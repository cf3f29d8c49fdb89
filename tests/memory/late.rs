//! Late requests have no effect: a request whose connection has ended is stopped by a tombstone (rules
//! I-5 and I-40).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Bench, MS, TTL, bench, client_of, forever};
use quorlock::node::{Node, NodeError, Order, Request, ask};
use quorlock_testkit::{MemoryNode, WrappedNode};

/// How late the requests arrive: soon, and close to the end of a tombstone, which lives for the longest
/// TTL of the deployment.
const DELAYS: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(25)];

/// The first renewal is this late, on connections that have ended since. The second one is confirmed.
async fn lose_a_renewal(bench: &Bench, late: Duration) {
    bench.delay(late, Duration::ZERO);
    bench.pass(TTL / 3 + MS).await;
    for node in &bench.nodes {
        node.disconnect();
        node.delay(Duration::ZERO, Duration::ZERO);
        node.connect();
    }
    bench.pass(500 * MS).await;
}

/// The connections end with the requests for votes in flight, after their caller has gone. Other connections remain.
#[tokio::test(start_paused = true)]
async fn i5_votes_that_arrive_after_their_attempt_was_given_up_take_no_lock() {
    for late in DELAYS {
        let bench = bench(3);
        let loses_votes = |node: &MemoryNode| {
            let (clock, able) = (bench.clock.clone(), node.capabilities().in_order(Order::Unordered));
            WrappedNode::new(node.clone()).capabilities(able).on_request(move |request, responder, inner| {
                if !matches!(*request, Request::Acquire { .. }) {
                    return inner.ask(request, responder);
                }
                let (clock, inner) = (clock.clone(), inner.clone());
                tokio::spawn(async move {
                    clock.sleep_until(clock.now() + 5 * MS).await;
                    responder.send(Err(NodeError::Disconnected { reason: "it was reset".into() }));
                    clock.sleep_until(clock.now() + late).await;
                    ask(&inner, request).await
                });
            })
        };
        let client = client_of(&bench, bench.nodes.iter().map(loses_votes));
        let waiting = bench.waiting(forever(&client)).await;
        waiting.abort();
        bench.pass(late + TTL / 10).await;
        assert_eq!(bench.keys(), 0, "votes arrived {late:?} late");
    }
}

#[tokio::test(start_paused = true)]
async fn i40_a_release_stops_an_unanswered_renewal_before_a_confirmed_one() {
    for late in DELAYS {
        let bench = bench(5);
        let lease = forever(&bench.coordinator).acquire().await.unwrap();
        lose_a_renewal(&bench, late).await;
        lease.check().unwrap();
        lease.release().await.unwrap();
        bench.pass(late).await;
        assert_eq!(bench.keys(), 0, "a renewal arrived {late:?} late");
    }
}

#[tokio::test(start_paused = true)]
async fn i40_a_handed_off_lease_stops_its_unanswered_renewals() {
    for late in DELAYS {
        let bench = bench(5);
        let first = forever(&bench.coordinator).acquire().await.unwrap();
        lose_a_renewal(&bench, late).await;
        first.check().unwrap();
        let waiting = bench.waiting(forever(&bench.coordinator)).await;
        first.release().await.unwrap();
        let second = waiting.await.unwrap().unwrap();
        assert_eq!(bench.nodes[0].requests().transfer, 1, "it was handed off");
        second.release().await.unwrap();
        bench.settle().await;
        assert_eq!(bench.keys(), 0);
        bench.pass(late).await;
        assert_eq!(bench.keys(), 0, "a renewal of the first arrived {late:?} late");
    }
}

#[tokio::test(start_paused = true)]
async fn r13_a_late_renewal_does_not_retake_a_retained_lock() {
    for late in DELAYS {
        let bench = bench(5);
        let lease = forever(&bench.coordinator).acquire().await.unwrap();
        lose_a_renewal(&bench, late).await;
        lease.check().unwrap();
        lease.retain(Duration::from_secs(1), "").await.unwrap();
        assert_eq!(bench.keys(), 5);
        bench.pass(Duration::from_secs(1) + MS).await;
        assert_eq!(bench.keys(), 0, "its time is up");
        bench.pass(late).await;
        assert_eq!(bench.keys(), 0, "a renewal of the lease arrived {late:?} late");
    }
}

/// A node whose connection ends when it is to release, with the earlier requests in flight.
fn ends_at_release(node: &MemoryNode) -> WrappedNode {
    let (memory, ended) = (node.clone(), AtomicBool::new(false));
    WrappedNode::new(node.clone()).on_request(move |request, responder, inner| {
        if matches!(*request, Request::Release { .. }) && !ended.swap(true, Ordering::SeqCst) {
            memory.disconnect();
            memory.delay(Duration::ZERO, Duration::ZERO);
            memory.connect();
            return responder.send(Err(NodeError::Disconnected { reason: "it was reset".into() }));
        }
        inner.ask(request, responder);
    })
}

#[tokio::test(start_paused = true)]
async fn i5_a_repeated_release_also_stops_late_requests() {
    let late = DELAYS[0];
    let bench = bench(3);
    let client = client_of(&bench, bench.nodes.iter().map(ends_at_release));
    let lease = forever(&client).acquire().await.unwrap();
    bench.delay(late, Duration::ZERO);
    bench.pass(TTL / 3 + MS).await;
    lease.release().await.unwrap();
    bench.pass(Duration::from_secs(1)).await;
    assert_eq!(bench.keys(), 0, "released at the second try");
    bench.pass(late).await;
    assert_eq!(bench.keys(), 0, "a renewal arrived {late:?} late");
}

/// How the connection of a renewal ends, behind which its lease ends, too.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// The node keeps no order of its own, and 50 ms later nothing is known of the renewal.
    Unordered,
    /// The node does, and the request that replaces the token is not sent yet: it goes over the next connection (rule
    /// I-30).
    BeforeTransfer,
}

/// A node on which the first renewal arrives `late`, over a connection that has ended.
fn loses_renewal(bench: &Bench, node: &MemoryNode, late: Duration, ends: Ends) -> WrappedNode {
    let (clock, memory, ended) = (bench.clock.clone(), node.clone(), AtomicBool::new(false));
    let order = match ends {
        Ends::Unordered => Order::Unordered,
        Ends::BeforeTransfer => Order::PerKey,
    };
    let able = node.capabilities().in_order(order);
    WrappedNode::new(node.clone()).capabilities(able).on_request(move |request, responder, inner| {
        let ends_here = match (ends, &*request) {
            (Ends::Unordered, Request::Renew { .. }) | (Ends::BeforeTransfer, Request::Transfer { .. }) => {
                !ended.swap(true, Ordering::SeqCst)
            }
            _ => false,
        };
        if ends_here && matches!(ends, Ends::BeforeTransfer) {
            memory.disconnect();
            memory.delay(Duration::ZERO, Duration::ZERO);
            memory.connect();
        } else if ends_here {
            let (clock, inner) = (clock.clone(), inner.clone());
            tokio::spawn(async move {
                clock.sleep_until(clock.now() + 50 * MS).await;
                responder.send(Err(NodeError::Disconnected { reason: "it was reset".into() }));
                clock.sleep_until(clock.now() + late).await;
                ask(&inner, request).await
            });
            return;
        }
        inner.ask(request, responder);
    })
}

/// Retains the lock for a second behind a renewal in flight, or passes it on, and expects no key when all have gone.
async fn ends_behind_a_renewal_in_flight(retains: bool) {
    for (late, ends) in
        DELAYS.into_iter().flat_map(|late| [(late, Ends::Unordered), (late, Ends::BeforeTransfer)])
    {
        let bench = bench(3);
        let nodes = bench.nodes.iter().map(|node| loses_renewal(&bench, node, late, ends));
        let coordinator = client_of(&bench, nodes);
        let lease = forever(&coordinator).acquire().await.unwrap();
        if matches!(ends, Ends::BeforeTransfer) {
            bench.delay(late, Duration::ZERO);
        }
        bench.pass(TTL / 3 + MS).await;
        if retains {
            lease.retain(Duration::from_secs(1), "").await.unwrap();
            bench.pass(Duration::from_secs(1) + MS).await;
        } else {
            let waiting = bench.waiting(forever(&coordinator)).await;
            lease.release().await.unwrap();
            waiting.await.unwrap().unwrap().release().await.unwrap();
            bench.settle().await;
        }
        assert_eq!(bench.nodes[0].requests().transfer, 1, "the token was replaced: {ends:?}");
        assert_eq!(bench.keys(), 0, "all have gone: {ends:?}");
        bench.pass(late + MS * 100).await;
        assert_eq!(bench.keys(), 0, "a renewal arrived {late:?} late: {ends:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn i40_a_lease_that_is_passed_on_stops_a_renewal_in_flight_whose_outcome_is_unknown_later() {
    ends_behind_a_renewal_in_flight(false).await;
}

#[tokio::test(start_paused = true)]
async fn r13_a_lock_that_is_retained_stops_a_renewal_in_flight_whose_outcome_is_unknown_later() {
    ends_behind_a_renewal_in_flight(true).await;
}
