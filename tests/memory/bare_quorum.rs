//! A lock acquired at a bare quorum: the other nodes are asked again (rule I-38).

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Bench, LATE, MS, TTL, another, asked, bench, client};
use quorlock::{Fencing, Lease, Renewal, Wait, node::Expiry, runtime::Clock};
use quorlock_testkit::{MemoryNode, SkewedClock, TokioClock};

/// Makes the last two of five nodes refuse for this long, as if they had granted a client that lost.
fn others_have_two(bench: &Bench, for_as_long: Duration) {
    for node in &bench.nodes[3..] {
        node.set_data("r", "another client's token", Expiry::In(for_as_long));
    }
}

/// Counts the nodes that store the token of this lease.
fn held<K, F>(bench: &Bench, lease: &Lease<K, F>) -> usize {
    bench.nodes.iter().filter(|node| node.holder("r").as_ref() == Some(lease.token())).count()
}

/// Five nodes, each with its own clock.
fn with_clocks() -> (Bench, Vec<Arc<SkewedClock>>) {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let clocks: Vec<_> = (0..5).map(|_| Arc::new(SkewedClock::new(clock.clone(), 1.0))).collect();
    let node = |(number, own): (usize, &Arc<SkewedClock>)| {
        MemoryNode::with_own_clock(format!("node-{number}"), clock.clone(), own.clone())
    };
    let nodes: Vec<_> = clocks.iter().enumerate().map(node).collect();
    for node in &nodes {
        node.age(TTL * 1000);
    }
    let coordinator = another(&clock, &nodes, |builder| builder);
    (Bench { clock, nodes, coordinator }, clocks)
}

#[tokio::test(start_paused = true)]
async fn i38_one_stepped_clock_does_not_lose_a_bare_quorum() {
    let (bench, clocks) = with_clocks();
    others_have_two(&bench, 2 * MS);
    let lease = bench.lock().acquire().await.unwrap();
    bench.pass(100 * MS).await;
    assert_eq!(held(&bench, &lease), 5);
    clocks[0].jump_forward(TTL);
    let other = client(&bench);
    assert!(other.lock("r").try_acquire().await.unwrap().is_none(), "one of five is outvoted");
    lease.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn i38_nodes_without_the_key_are_asked_again_for_every_kind_of_lock() {
    for of_readers in [false, true] {
        let bench = bench(5);
        others_have_two(&bench, 2 * MS);
        let lock = bench.lock().fencing(Fencing::Off).renewal(Renewal::Manual);
        let lease = if of_readers { lock.shared() } else { lock }.acquire().await.unwrap();
        let end = bench.clock.now() + lease.remaining();
        bench.pass(100 * MS).await;
        assert_eq!(
            bench.clock.now() + lease.remaining(),
            end,
            "a key stored later does not extend the lease"
        );
        let shared = bench.nodes.iter().filter(|node| node.readers("r").len() == 1).count();
        assert_eq!(if of_readers { shared } else { held(&bench, &lease) }, 5);
        lease.release().await.unwrap();
        bench.settle().await;
        assert_eq!(bench.keys(), 0, "and the key is released there as well");
    }
    let bench = bench(5);
    others_have_two(&bench, 2 * MS);
    let lease = bench.coordinator.lock_all(["r", "s"]).ttl(TTL).acquire().await.unwrap();
    bench.pass(100 * MS).await;
    assert_eq!(held(&bench, &lease), 5);
}

#[tokio::test(start_paused = true)]
async fn i38_a_node_that_refuses_after_the_verdict_is_asked_again() {
    let bench = bench(5);
    others_have_two(&bench, LATE / 2);
    bench.nodes[3..].iter().for_each(|node| node.delay(MS, LATE));
    let lease = bench.lock().acquire().await.unwrap();
    assert_eq!(held(&bench, &lease), 3);
    bench.pass(LATE * 2).await;
    assert_eq!(held(&bench, &lease), 5);
}

#[tokio::test(start_paused = true)]
async fn i38_a_node_that_comes_back_gets_the_key_before_a_renewal_is_due() {
    let bench = bench(5);
    bench.nodes[3..].iter().for_each(MemoryNode::disconnect);
    let lease = bench.lock().acquire().await.unwrap();
    bench.pass(200 * MS).await;
    bench.nodes[3].connect();
    bench.pass(TTL / 6).await;
    assert_eq!(held(&bench, &lease), 4, "the last one is down");
    lease.release().await.unwrap();
    bench.settle().await;
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_node_is_asked_less_often() {
    let bench = bench(3);
    bench.nodes[0].set_data("r", "forever", Expiry::Never);
    let lease = bench.lock().wait(Wait::Never).acquire().await.unwrap();
    bench.settle().await;
    let before = asked(&bench.nodes);
    bench.pass(TTL / 4).await;
    let again = asked(&bench.nodes) - before;
    assert!((4..=16).contains(&again), "asked {again} times in a quarter of the TTL");
    bench.pass(TTL / 4).await;
    let renewed = asked(&bench.nodes);
    bench.pass(TTL / 10).await;
    assert_eq!(asked(&bench.nodes), renewed, "from the first renewal on only renewals ask");
    lease.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_does_not_overtake_a_repeated_request() {
    let bench = bench(5);
    others_have_two(&bench, 2 * MS);
    bench.nodes[3..].iter().for_each(|node| node.delay(30 * MS, MS));
    let lease = bench.lock().acquire().await.unwrap();
    // Asked again, and in flight.
    bench.pass(60 * MS).await;
    lease.release().await.unwrap();
    bench.pass(200 * MS).await;
    assert_eq!(bench.keys(), 0);
}
