//! Releasing: quick, complete, and without an error if there is nothing to release.

use std::time::Duration;

use quorlock::{LossReason, Renewal, node::Expiry};
use quorlock_testkit::MemoryNode;

use crate::common::{LATE, MS, TTL, bench};

#[tokio::test(start_paused = true)]
async fn a_release_ends_within_one_node_timeout() {
    for hung in 0..=5 {
        let bench = bench(5);
        let lease = bench.lock().acquire().await.unwrap();
        bench.nodes[..hung].iter().for_each(MemoryNode::hang);
        let before = bench.clock.now();
        lease.release().await.expect("it was valid until now");
        let took = bench.clock.now().since(before);
        let most = if hung <= 2 { Duration::ZERO } else { 51 * MS };
        assert!(took <= most, "{took:?} with {hung} of 5 hung");
        bench.nodes.iter().for_each(MemoryNode::resume);
        bench.settle().await;
        assert_eq!(bench.keys(), 0, "the hung nodes must delete their keys when they resume");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_does_not_wait_for_an_irrelevant_node() {
    let bench = bench(3);
    bench.nodes[2].set_data("r", "another client", Expiry::In(TTL));
    let lease = bench.lock().acquire().await.unwrap();
    bench.nodes[1].hang();
    let before = bench.clock.now();
    lease.release().await.unwrap();
    assert_eq!(bench.clock.now(), before, "one has released, and one never had the key");
}

#[tokio::test(start_paused = true)]
async fn releasing_an_expired_lease_sends_no_request() {
    let bench = bench(5);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    bench.nodes.iter().for_each(MemoryNode::hang);
    bench.pass(TTL + LATE).await;
    let requests = || bench.nodes.iter().map(|node| node.requests().total()).sum::<usize>();
    let before = (bench.clock.now(), requests());
    let lost = lease.release().await.unwrap_err();
    assert_eq!(lost.reason, LossReason::Expired, "an expired lease is no failure");
    assert_eq!(bench.clock.now(), before.0);
    bench.settle().await;
    assert_eq!(requests(), before.1);
}
