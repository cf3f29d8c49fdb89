//! Renewal: by a quorum, before the old deadline; validity counts from before the renewal was sent.

use std::time::Duration;

use crate::common::{Bench, TTL, VALIDITY, bench, bench_with, client};
use futures::future::join_all;
use quorlock::{
    ConfigError, Lease, LossReason, RenewError, Renewal,
    node::{Expiry, NodeErrorKind},
};
use quorlock_testkit::MemoryNode;

const THIRD: Duration = Duration::from_millis(3_334);

#[tokio::test(start_paused = true)]
async fn a_lease_renews_itself_for_as_long_as_it_is_held() {
    let bench = bench(5);
    let lock = bench.lock();
    for round in 0..2 {
        let lease = lock.acquire().await.unwrap();
        for _ in 0..20 {
            bench.pass(TTL).await;
            assert_eq!(lease.check(), Ok(()), "round {round}");
        }
        lease.release().await.unwrap();
        bench.settle().await;
        assert_eq!(bench.keys(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn i7_a_renewal_counts_from_before_it_was_sent() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    bench.delay(Duration::from_millis(20), Duration::from_millis(20));
    lease.renew().await.unwrap();
    assert!(lease.remaining() <= VALIDITY - Duration::from_millis(40), "{:?}", lease.remaining());
}

#[tokio::test(start_paused = true)]
async fn i8_i11_a_renewal_that_reaches_a_minority_keeps_the_old_deadline_and_the_lease() {
    let bench = bench(5);
    let other = client(&bench);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    bench.pass(Duration::from_secs(1)).await;
    let failures: [fn(&MemoryNode); 4] = [
        |node| node.lose_requests(true),
        MemoryNode::hang,
        MemoryNode::disconnect,
        |node| node.fail(NodeErrorKind::Busy, "LOADING"),
    ];
    for failure in failures {
        let before = bench.clock.now() + lease.remaining();
        bench.nodes[..3].iter().for_each(failure);
        let error = lease.renew().await.unwrap_err();
        assert!(matches!(error, RenewError::Unconfirmed { .. }), "{error}");
        assert!(error.to_string().contains("2 of 5 granted"), "{error}");
        assert_eq!(bench.clock.now() + lease.remaining(), before, "the old deadline is kept");
        for node in &bench.nodes[..3] {
            node.lose_requests(false);
            node.recover();
            node.connect();
            node.resume();
        }
        bench.pass(Duration::from_millis(100)).await;
        assert_eq!(bench.keys(), 5, "a failed renewal releases nothing");
        assert!(other.lock("r").ttl(TTL).try_acquire().await.unwrap().is_none(), "others are kept out");
    }
    lease.renew().await.expect("and it may be tried again");
}

#[tokio::test(start_paused = true)]
async fn a_second_renewal_waits_for_the_one_in_flight() {
    let bench = bench(5);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    bench.delay(Duration::from_millis(5), Duration::from_millis(5));
    let later = async {
        bench.settle().await;
        lease.renew().await
    };
    let renewed = tokio::join!(lease.renew(), later);
    assert!(matches!(renewed, (Ok(()), Ok(()))), "{renewed:?}");
    assert!(bench.nodes.iter().all(|node| node.requests().renew == 1));
}

#[tokio::test(start_paused = true)]
async fn an_extension_is_valid_for_its_own_ttl_and_so_are_the_renewals_after_it() {
    let bench = bench(5);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    let rest = TTL - VALIDITY;
    for ttl in [TTL * 2, TTL] {
        lease.extend(ttl).await.unwrap();
        assert!(
            lease.remaining() > TTL * 2 - rest * 3,
            "a shorter one changes nothing: {:?}",
            lease.remaining()
        );
    }
    for node in &bench.nodes {
        let Some(Expiry::In(left)) = node.expiry("r") else { panic!("the key exists") };
        assert!(left > TTL * 2 - rest, "{left:?}");
    }
    bench.pass(TTL).await;
    lease.renew().await.unwrap();
    assert!(lease.remaining() > TTL, "{:?}", lease.remaining());
}

#[tokio::test(start_paused = true)]
async fn i7_a_renewal_that_asked_for_less_is_not_counted_for_an_extension() {
    let bench = bench(5);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    bench.delay(Duration::ZERO, Duration::from_millis(5));
    let extension = async {
        bench.settle().await;
        // The renewal has arrived, and nothing after it does.
        for node in &bench.nodes {
            node.lose_requests(true);
        }
        lease.extend(TTL * 3).await
    };
    let (renewed, extended) = tokio::join!(lease.renew(), extension);
    assert!(matches!(extended, Err(RenewError::Unconfirmed { .. })), "{extended:?}");
    assert!(renewed.is_err(), "both callers hear of the later one: {renewed:?}");
    assert!(lease.remaining() <= VALIDITY, "{:?}", lease.remaining());
}

#[tokio::test(start_paused = true)]
async fn i13_an_extension_above_max_ttl_is_refused_and_changes_nothing() {
    let bench = bench(5);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    let refused = lease.extend(Duration::from_secs(31)).await;
    assert!(matches!(refused, Err(RenewError::Refused(ConfigError::TtlTooLong { .. }))), "{refused:?}");
    assert!(bench.nodes.iter().all(|node| node.requests().renew == 0));
    assert_eq!(lease.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn i9_i10_a_renewal_answered_after_the_old_deadline_does_not_revive_the_lease() {
    let bench = bench(5);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    for node in &bench.nodes {
        node.lose_replies(true);
    }
    let watch = lease.watch();
    let (renewed, lost) = tokio::join!(lease.renew(), async {
        // The renewal is carried out on every node, but the answers arrive later.
        bench.pass(VALIDITY).await;
        let lost = watch.check();
        for node in &bench.nodes {
            node.lose_replies(false);
        }
        lost
    });
    assert!(matches!(renewed, Err(RenewError::Unconfirmed { .. } | RenewError::Lost(_))), "{renewed:?}");
    assert_eq!(lost.unwrap_err().reason, LossReason::Expired);
    bench.settle().await;
    assert!(lease.check().is_err(), "a lost lease stays lost");
    assert_eq!(lease.release().await.unwrap_err().reason, LossReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn i6_a_renewal_never_shortens_a_key() {
    let bench = bench(3);
    let lease = bench.lock().acquire().await.unwrap();
    for node in &bench.nodes {
        let token = String::from_utf8(lease.token().as_bytes().to_vec()).unwrap();
        node.set_data("r", token.as_str(), Expiry::In(Duration::from_secs(300)));
    }
    lease.renew().await.unwrap();
    for node in &bench.nodes {
        let Some(Expiry::In(left)) = node.expiry("r") else { panic!("the key exists") };
        assert!(left > Duration::from_secs(299), "{left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn i11_too_many_nodes_without_the_key_end_the_lease_before_its_validity() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    for node in &bench.nodes[..3] {
        node.set_data("r", "another client", Expiry::In(TTL));
    }
    let before = bench.clock.now();
    let lost = lease.lost().await;
    assert_eq!(lost.reason, LossReason::QuorumLost);
    assert!(bench.clock.now().since(before) <= THIRD, "reported at the next renewal, not at the end");
    bench.settle().await;
    assert!(bench.nodes[..3].iter().all(|node| node.holder("r").is_some()), "the others keep theirs");
    assert!(bench.nodes[3..].iter().all(|node| node.holder("r").is_none()), "and ours is cleaned up");
}

#[tokio::test(start_paused = true)]
async fn a_long_lease_survives_a_rolling_restart_of_all_nodes() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    for node in &bench.nodes {
        node.restart_empty();
        // The quarantine of 10 s with drift, then one more renewal.
        bench.pass(Duration::from_secs(15)).await;
        assert_eq!(lease.check(), Ok(()));
    }
    assert_eq!(bench.keys(), 5, "every restarted node holds it again");
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_lease_however_often_it_was_renewed() {
    let bench = bench(5);
    let lease = bench.lock().max_hold(Duration::from_secs(25)).acquire().await.unwrap();
    let (before, watch) = (bench.clock.now(), lease.watch());
    assert!(!watch.is_at_max_hold(), "renewals still move its end");
    bench.pass(Duration::from_secs(20)).await;
    assert!(watch.is_at_max_hold() && lease.check().is_ok());
    let lost = lease.lost().await;
    assert_eq!(lost.reason, LossReason::MaxHold);
    let held = bench.clock.now().since(before);
    assert!(held <= Duration::from_millis(25_002) && held >= Duration::from_secs(24), "{held:?}");
    bench.pass(Duration::from_millis(5)).await;
    assert_eq!(bench.keys(), 0, "and the lock is released");
}

#[tokio::test(start_paused = true)]
async fn a_manual_lease_is_not_renewed_automatically() {
    let bench = bench(5);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    let lost = lease.lost().await;
    assert_eq!(lost.reason, LossReason::Expired);
    assert!(bench.nodes.iter().all(|node| node.requests().renew == 0));
}

#[tokio::test(start_paused = true)]
async fn i15_a_release_overtakes_no_renewal() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    for node in &bench.nodes {
        node.flush();
        node.delay(Duration::from_millis(20), Duration::from_millis(20));
    }
    // The renewal is in flight, and would store the key again.
    let (_, ()) = tokio::join!(lease.renew(), bench.settle());
    let watch = lease.watch();
    let (released, ()) = tokio::join!(lease.release(), bench.settle());
    drop(released);
    bench.pass(TTL / 2).await;
    assert!(watch.check().is_err());
    assert_eq!(bench.keys(), 0, "the release arrived last on every node");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_interval_that_would_occupy_the_nodes_is_refused() {
    let bench = bench_with(3, |builder| builder);
    let every = |interval| bench.lock().renewal(Renewal::Every(interval)).validate();
    for interval in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(9_999)] {
        let error = every(interval).unwrap_err();
        assert!(matches!(error, ConfigError::RenewalTooFrequent { .. }), "{error}");
        assert!(error.to_string().ends_with("renew every 10ms or less often"), "{error}");
    }
    assert_eq!(every(Duration::from_millis(10)), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_interval_that_leaves_no_second_try_is_refused() {
    let bench = bench_with(3, |builder| builder);
    let error = bench.lock().renewal(Renewal::Every(TTL * 2 / 3)).validate().unwrap_err();
    assert!(matches!(error, ConfigError::RenewalTooRare { .. }));
    assert!(error.to_string().contains("at least every 5s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_replaces_a_vote_that_was_not_sent() {
    let bench = bench(5);
    bench.nodes[4].connecting();
    let lease = bench.lock().acquire().await.unwrap();
    bench.pass(TTL / 2).await;
    bench.nodes[4].connect();
    bench.settle().await;
    let asked = bench.nodes[4].requests();
    assert_eq!((asked.acquire, asked.renew), (0, 1), "a vote after its renewal is useless");
    assert_eq!(bench.nodes[4].holder("r").as_ref(), Some(lease.token()));
}

/// Acquires `count` leases, all due at the same moment.
async fn leases_due_together(bench: &Bench, count: usize) -> Vec<Lease> {
    let acquire = async |number| bench.coordinator.lock(format!("r{number}")).acquire().await.unwrap();
    join_all((0..count).map(acquire)).await
}

/// How many renewals each node has received.
fn renewals(nodes: &[MemoryNode]) -> Vec<usize> {
    nodes.iter().map(|node| node.requests().renew).collect()
}

/// The latest time for a renewal that was due after a third of the TTL.
const LATEST: Duration = Duration::from_millis(10_000 / 3 + 10_000 / 30 + 2);

#[tokio::test(start_paused = true)]
async fn many_leases_due_together_are_renewed_in_batches() {
    let bench = bench(5);
    let leases = leases_due_together(&bench, 1000).await;
    bench.delay(Duration::from_millis(5), Duration::from_millis(5));
    bench.pass(THIRD + Duration::from_millis(7)).await;
    assert_eq!(renewals(&bench.nodes), [128; 5], "none of them has been decided");
    bench.pass(LATEST - THIRD).await;
    assert_eq!(renewals(&bench.nodes), [1000; 5]);
    let least = VALIDITY - (LATEST - THIRD) - Duration::from_millis(10);
    assert!(leases.iter().all(|lease| lease.remaining() > least), "each was renewed");
}

#[tokio::test(start_paused = true)]
async fn a_hung_minority_delays_no_renewal() {
    let bench = bench(5);
    let leases = leases_due_together(&bench, 1000).await;
    bench.nodes[..2].iter().for_each(MemoryNode::hang);
    bench.pass(THIRD).await;
    bench.settle().await;
    assert_eq!(renewals(&bench.nodes[2..]), [1000; 3]);
    assert!(leases.iter().all(|lease| lease.remaining() > VALIDITY - Duration::from_millis(5)));
}

#[tokio::test(start_paused = true)]
async fn no_renewal_is_delayed_beyond_its_slack() {
    let bench = bench(5);
    let leases = leases_due_together(&bench, 2000).await;
    bench.nodes[..3].iter().for_each(MemoryNode::hang);
    bench.pass(LATEST).await;
    assert!(renewals(&bench.nodes[3..]).iter().all(|asked| *asked >= 2000), "{:?}", renewals(&bench.nodes));
    bench.nodes[..3].iter().for_each(MemoryNode::resume);
    bench.pass(VALIDITY).await;
    assert!(leases.iter().all(|lease| lease.check().is_ok()), "there was time to try again");
}
