//! Renewing: a lost lease stays lost, a valid lease stays held.

use std::time::Duration;

use quorlock::{
    LossReason, RenewError, Renewal, Wait, WithError,
    node::{Expiry, NodeErrorKind},
};
use quorlock_testkit::MemoryNode;

use crate::common::{MS, TTL, VALIDITY, another, bench, bench_by_default};

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_never_releases_a_valid_lease() {
    let bench = bench(3);
    let other = another(&bench.clock, &bench.nodes, |builder| builder);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    bench.pass(Duration::from_secs(1)).await;
    let end = bench.clock.now() + lease.remaining();
    for failure in [MemoryNode::hang, MemoryNode::disconnect, |node: &MemoryNode| {
        node.fail(NodeErrorKind::Busy, "LOADING");
    }] {
        bench.nodes[..2].iter().for_each(failure);
        let error = lease.renew().await.unwrap_err();
        assert!(matches!(error, RenewError::Unconfirmed { .. }), "{error}");
        for node in &bench.nodes {
            node.recover();
            node.connect();
            node.resume();
        }
        bench.pass(100 * MS).await;
        assert_eq!(bench.keys(), 3, "every node has the key");
        assert!(
            other.lock("r").ttl(TTL).try_acquire().await.unwrap().is_none(),
            "no other client can acquire it"
        );
        assert!(bench.clock.now() + lease.remaining() >= end, "and its end has not moved closer");
        assert_eq!(lease.check(), Ok(()));
    }
    lease.renew().await.expect("it can be renewed once the nodes answer again");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ended_is_not_renewed_although_the_lock_is_free_again() {
    let bench = bench(5);
    let other = another(&bench.clock, &bench.nodes, |builder| builder);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    bench.pass(TTL + MS).await;
    other.lock("r").ttl(TTL).acquire().await.unwrap().release().await.unwrap();
    let error = lease.renew().await.unwrap_err();
    assert!(matches!(&error, RenewError::Lost(lost) if lost.reason == LossReason::Expired), "{error}");
    bench.settle().await;
    assert_eq!(bench.keys(), 0, "and no key was stored again");
}

#[tokio::test(start_paused = true)]
async fn a_lease_held_by_another_in_between_is_lost() {
    let bench = bench(5);
    let other = another(&bench.clock, &bench.nodes, |builder| builder);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    // By mistake, or by another program.
    bench.nodes.iter().for_each(|node| node.remove("r"));
    other.lock("r").ttl(TTL).acquire().await.unwrap().release().await.unwrap();
    let error = lease.renew().await.unwrap_err();
    assert!(matches!(&error, RenewError::Lost(lost) if lost.reason == LossReason::QuorumLost), "{error}");
    bench.settle().await;
    assert_eq!(bench.keys(), 0, "the keys stored by the renewal are deleted");
}

#[tokio::test(start_paused = true)]
async fn a_majority_of_the_nodes_that_granted_is_no_quorum() {
    let bench = bench(5);
    let other = another(&bench.clock, &bench.nodes, |builder| builder);
    bench.nodes[3..].iter().for_each(MemoryNode::disconnect);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    bench.nodes[3..].iter().for_each(MemoryNode::connect);
    // One of the three that granted loses the key, which only a renewal can notice.
    bench.nodes[2].remove("r");
    let second = other.lock("r").ttl(TTL).try_acquire().await.unwrap().expect("three of five are free");
    let error = lease.renew().await.unwrap_err();
    assert!(matches!(&error, RenewError::Lost(lost) if lost.reason == LossReason::QuorumLost), "{error}");
    assert!(lease.check().is_err(), "two of the three that granted are not enough");
    second.renew().await.expect("the other holds three of five");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_takes_nothing_from_others() {
    let bench = bench(5);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    for node in &bench.nodes[..2] {
        node.set_data("r", "another client", Expiry::In(2 * TTL));
    }
    lease.renew().await.expect("three of five are a quorum");
    lease.release().await.unwrap();
    bench.settle().await;
    for node in &bench.nodes[..2] {
        assert_eq!(node.holder("r").unwrap().as_bytes(), b"another client");
        assert_eq!(node.expiry("r"), Some(Expiry::In(2 * TTL - MS)), "with the expiry that it had");
    }
}

#[tokio::test(start_paused = true)]
async fn work_continues_during_a_renewal() {
    let bench = bench_by_default(5, |builder| builder);
    // A renewal takes almost a second.
    bench.delay(400 * MS, 400 * MS);
    let lock = bench.lock().wait(Wait::UpTo(TTL));
    let clock = bench.clock.clone();
    let longest = lock
        .with(async |lease| {
            let (mut longest, start) = (Duration::ZERO, clock.now());
            while clock.now().since(start) < 3 * TTL {
                let before = clock.now();
                clock.sleep_until(before + 10 * MS).await;
                longest = longest.max(clock.now().since(before));
                lease.check()?;
            }
            Ok::<_, WithError>(longest)
        })
        .await
        .unwrap();
    assert!(bench.nodes[0].requests().renew >= 8, "it was renewed meanwhile");
    assert!(longest <= 11 * MS, "the work was blocked for {longest:?}");
}

#[tokio::test(start_paused = true)]
async fn answers_one_by_one_still_renew() {
    let bench = bench(5);
    for (index, node) in (0..).zip(&bench.nodes) {
        node.delay(Duration::ZERO, index * 25 * MS);
    }
    let lease = bench.lock().wait(Wait::UpTo(TTL)).acquire().await.unwrap();
    for _ in 0..100 {
        bench.pass(TTL / 3).await;
        assert_eq!(lease.check(), Ok(()));
        assert!(lease.remaining() >= TTL / 2, "only {:?} left", lease.remaining());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hiccup_during_a_renewal_does_not_stop_renewing() {
    let troubles: [fn(&MemoryNode); 5] = [
        MemoryNode::hang,
        MemoryNode::disconnect,
        MemoryNode::connecting,
        |node| node.fail(NodeErrorKind::Busy, "LOADING Redis is loading the dataset in memory"),
        |node| node.lose_replies(true),
    ];
    for (number, failure) in troubles.into_iter().enumerate() {
        let bench = bench(5);
        let lease = bench.lock().acquire().await.unwrap();
        for _ in 0..5 {
            bench.pass(TTL / 3 - 200 * MS).await;
            bench.nodes.iter().for_each(failure);
            bench.pass(Duration::from_millis(1_200)).await;
            for node in &bench.nodes {
                node.recover();
                node.connect();
                node.resume();
            }
            bench.pass(2 * TTL).await;
            assert_eq!(lease.check(), Ok(()), "trouble number {number}");
        }
        assert!(lease.remaining() > VALIDITY / 2, "it is renewed as before");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_acquired_again_renews_itself_again() {
    let bench = bench(5);
    let lock = bench.lock();
    for round in 0..5 {
        let lease = lock.acquire().await.unwrap();
        bench.pass(3 * TTL).await;
        assert_eq!(lease.check(), Ok(()), "the {round}th time");
        lease.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn renewing_an_ended_lease_fails_without_waiting() {
    let bench = bench(3);
    let expired = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    bench.pass(TTL + MS).await;
    let closed = bench.lock().acquire().await.unwrap();
    bench.coordinator.close(TTL).await;
    for (lease, reason) in [(expired, LossReason::Expired), (closed, LossReason::Closed)] {
        let before = bench.clock.now();
        for _ in 0..2 {
            let error = lease.renew().await.unwrap_err();
            assert!(matches!(&error, RenewError::Lost(lost) if lost.reason == reason), "{error}");
        }
        assert_eq!(bench.clock.now(), before, "it takes no time");
        assert_eq!(lease.release().await.unwrap_err().reason, reason);
    }
}
