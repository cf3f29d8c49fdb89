//! Renewing: a lost lease stays lost, a valid lease stays held.

use std::time::Duration;

use quorlock::{LossReason, RenewError, Renewal, Wait, node::NodeErrorKind};
use quorlock_testkit::MemoryNode;

use crate::common::{MS, TTL, VALIDITY, another, bench};

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
