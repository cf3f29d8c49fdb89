//! The restart guard: a node that may have lost a lock does not vote (rules I-12 to I-14).

use std::time::Duration;

use crate::common::{TTL, acquiring, another, bench, bench_with, client};
use quorlock::{RestartGuard, Wait, votes::VoteOutcome};

/// `max_ttl`, 30 s by default, plus the drift allowance.
const QUARANTINE: Duration = Duration::from_millis(30_302);

/// Holds the lock at a bare majority: the other two nodes were down.
async fn hold_at_three(bench: &crate::common::Bench) -> quorlock::Lease {
    for node in &bench.nodes[3..] {
        node.disconnect();
    }
    let lease = bench.lock().acquire().await.unwrap();
    for node in &bench.nodes[3..] {
        node.connect();
    }
    lease
}

#[tokio::test(start_paused = true)]
async fn i12_a_node_restarted_empty_does_not_vote() {
    let bench = bench(5);
    let _held = hold_at_three(&bench).await;
    bench.nodes[0].restart_empty();
    let other = client(&bench);
    let lock = other.lock("r").ttl(TTL).wait(Wait::Never);
    let error = lock.acquire().await.expect_err("two grants and a vote that does not count");
    let report = error.report().unwrap();
    let VoteOutcome::Quarantined { left, .. } = report.votes()[0].outcome else { panic!("{report}") };
    assert!(left > Duration::from_secs(29) && left <= QUARANTINE, "{left:?}");
    assert!(
        report.to_string().contains("restarted or first used too recently to vote: 30.3s to go"),
        "{report}"
    );
}

#[tokio::test(start_paused = true)]
async fn with_the_guard_off_the_same_restart_makes_two_holders() {
    let bench = bench_with(5, |builder| builder.restart_guard(RestartGuard::Off));
    let held = hold_at_three(&bench).await;
    bench.nodes[0].restart_empty();
    let other = another(&bench.clock, &bench.nodes, |builder| builder.restart_guard(RestartGuard::Off));
    let second = other.lock("r").ttl(TTL).try_acquire().await.unwrap().expect("the node has lost the key");
    assert!(held.check().is_ok() && second.check().is_ok(), "two holders: the test above proves something");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_node_votes_again_once_nothing_it_forgot_can_be_held() {
    let bench = bench(1);
    bench.nodes[0].restart_empty();
    bench.pass(QUARANTINE - Duration::from_millis(2)).await;
    assert!(bench.lock().try_acquire().await.is_err(), "two milliseconds too early");
    bench.pass(Duration::from_millis(2)).await;
    bench.pass(Duration::from_millis(50)).await;
    assert!(bench.lock().try_acquire().await.unwrap().is_some());
}

/// Each request in vain leaves a tombstone, and on some nodes a commit of all their members.
#[tokio::test(start_paused = true)]
async fn a_waiter_asks_nodes_that_must_not_vote_yet_once_a_second() {
    for (nodes, young) in [(1, 1), (5, 3)] {
        let bench = bench(nodes);
        bench.nodes[..young].iter().for_each(quorlock_testkit::MemoryNode::restart_empty);
        let since = bench.clock.now();
        let waiting = acquiring(bench.lock().wait(Wait::UpTo(QUARANTINE * 2)));
        bench.pass(QUARANTINE + Duration::from_millis(50)).await;
        drop(waiting.await.unwrap().unwrap());
        let waited = bench.clock.now().since(since);
        assert!(waited <= QUARANTINE + Duration::from_millis(50), "{waited:?} of {QUARANTINE:?}");
        let asked = bench.nodes[0].requests();
        assert!(asked.cancel + asked.release <= 35, "{nodes} nodes: {asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn i13_the_quarantine_lasts_for_the_longest_ttl_of_the_deployment() {
    let hour = Duration::from_secs(3600);
    let bench = bench_with(1, |builder| builder.max_ttl(hour));
    bench.nodes[0].age(hour);
    assert!(bench.lock().try_acquire().await.is_err(), "an hour is not enough: clocks drift");
    bench.nodes[0].age(hour + hour / 50);
    assert!(bench.lock().try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_node_in_quarantine_gets_the_key_and_gives_it_back() {
    let bench = bench(5);
    bench.nodes[2].restart_empty();
    let lease = bench.lock().acquire().await.unwrap();
    bench.settle().await;
    assert_eq!(bench.keys(), 5, "it will count for the renewals to come");
    lease.release().await.unwrap();
    bench.settle().await;
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_does_not_count_nodes_in_quarantine() {
    let bench = bench(3);
    let lease = bench.lock().acquire().await.unwrap();
    bench.nodes[0].restart_with_data();
    bench.nodes[1].restart_with_data();
    let error = lease.renew().await.unwrap_err();
    assert!(error.to_string().contains("1 of 3 granted"), "{error}");
}
