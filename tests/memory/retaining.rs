//! Retaining: a lock that stays held after its lease has ended, by no process (rules R-10 and R-11).

use std::time::Duration;

use crate::common::{MS, TTL, VALIDITY, another, bench, bench_with, client};
use quorlock::protocol::{HoldEnd, Token};
use quorlock::{
    ConfigError, LossReason, Owner, Renewal, RestartGuard, RetainError, Wait,
    node::{Expiry, NodeErrorKind},
};
use quorlock_testkit::MemoryNode;

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn r10_a_retained_lock_stays_held_without_a_process() {
    let bench = bench(5);
    let lease = bench.lock().label("import").acquire().await.unwrap();
    let (token, watch) = (lease.token().clone(), lease.watch());
    bench.pass(Duration::from_secs(3)).await;
    lease.retain(HOUR, "ran at noon").await.unwrap();
    assert_eq!(watch.check().unwrap_err().reason, LossReason::Released, "the lease is over");

    // Longer than the TTL, and than any TTL there may be.
    bench.pass(HOUR - MS * 10).await;
    let elsewhere = client(&bench);
    let lock = elsewhere.lock("r").wait(Wait::Never);
    let holder = lock.inspect().await.unwrap().holder().unwrap();
    assert!(holder.token.is_retained());
    assert_ne!(holder.token, token);
    assert_eq!(holder.nodes, 5);
    assert_eq!(lock.revoke(&token).await.unwrap().granted(), 0, "the old token is invalid");
    let text = holder.token.to_string();
    assert!(text.ends_with(" import ran at noon"), "{text}");
    assert!(lock.try_acquire().await.unwrap().is_none(), "the lock is retained");
    let refused = lock.acquire().await.unwrap_err().to_string();
    assert!(refused.starts_with("`r` stays taken for up to "), "{refused}");
    assert!(refused.ends_with(" import ran at noon"), "{refused}");

    bench.pass(MS * 20).await;
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn r10_the_lock_is_never_free_in_between() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    bench.delay(MS * 2, MS * 2);
    let retaining = tokio::spawn(lease.retain(HOUR, ""));
    while !retaining.is_finished() {
        assert_eq!(bench.keys(), 5, "each node has one of the two tokens");
        bench.pass(MS / 2).await;
    }
    retaining.await.unwrap().unwrap();
    let requests = bench.nodes[0].requests();
    assert_eq!((requests.transfer, requests.release), (1, 0), "one round");
}

#[tokio::test(start_paused = true)]
async fn without_time_left_the_lock_is_released() {
    let bench = bench(5);
    for time in [Duration::ZERO, Duration::from_micros(999)] {
        bench.lock().acquire().await.unwrap().retain(time, "").await.unwrap();
        bench.settle().await;
        assert_eq!(bench.keys(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_here_and_elsewhere_get_the_lock_after_it() {
    let bench = bench(5);
    let elsewhere = client(&bench);
    for coordinator in [&bench.coordinator, &elsewhere] {
        let lease = bench.lock().acquire().await.unwrap();
        let waiting = bench.waiting(coordinator.lock("r").wait(Wait::Forever)).await;
        lease.retain(HOUR, "").await.unwrap();
        bench.pass(HOUR - MS * 10).await;
        assert!(!waiting.is_finished(), "the lock is retained");
        bench.pass(Duration::from_secs(2)).await;
        assert!(waiting.is_finished(), "waiters of both processes must acquire");
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn i15_a_renewal_in_flight_does_not_follow_it() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    bench.delay(MS * 20, MS * 20);
    let watch = lease.watch();
    let renewing = async {
        let renewed = lease.renew();
        tokio::pin!(renewed);
        // Sent, but not answered.
        tokio::select! { _ = &mut renewed => {}, () = bench.pass(MS * 5) => {} }
    };
    renewing.await;
    lease.retain(HOUR, "").await.unwrap();
    bench.pass(TTL * 2).await;
    let retained = |node: &MemoryNode| node.holder("r").is_some_and(|token| token.is_retained());
    assert!(bench.nodes.iter().all(retained));
    assert!(watch.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn r11_it_repeats_until_a_quorum_confirms_or_the_lease_ends() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    bench.nodes.iter().take(3).for_each(|node| node.fail(NodeErrorKind::Busy, "down"));
    let retaining = tokio::spawn(lease.retain(HOUR, ""));
    bench.pass(TTL / 2).await;
    assert!(!retaining.is_finished());
    bench.nodes.iter().for_each(MemoryNode::recover);
    bench.pass(TTL / 4).await;
    assert!(retaining.is_finished());
    retaining.await.unwrap().unwrap();
    let ends = |node: &MemoryNode| match node.expiry("r") {
        Some(Expiry::In(left)) => left,
        other => unreachable!("{other:?}"),
    };
    let at_least = HOUR - TTL;
    assert!(
        bench.nodes.iter().map(ends).all(|left| left > at_least && left <= HOUR),
        "counted from the call"
    );
}

#[tokio::test(start_paused = true)]
async fn r11_a_confirmation_after_the_end_of_the_lease_does_not_count() {
    let bench = bench(5);
    let lock = bench.lock().renewal(Renewal::Manual);
    let lease = lock.acquire().await.unwrap();
    bench.pass(VALIDITY).await;
    let error = lease.retain(HOUR, "").await.unwrap_err();
    assert!(matches!(error, RetainError::Lost(_)), "{error}");

    // Another lock was held and released in between: a grant then proves nothing.
    bench.pass(TTL).await;
    let lease = lock.acquire().await.unwrap();
    bench.pass(VALIDITY - MS * 10).await;
    bench.delay(MS * 15, MS * 15);
    let error = lease.retain(HOUR, "").await.unwrap_err();
    assert!(matches!(error, RetainError::Unconfirmed { .. }), "{error}");
}

/// A hold that is too short for a renewal: nothing else notices.
#[tokio::test(start_paused = true)]
async fn i11_a_retention_says_that_another_client_may_have_held_the_lock() {
    for (lost, (is_held, is_repeated), expected) in [
        (2, (false, false), None),
        (3, (false, false), Some(LossReason::QuorumLost)),
        (3, (true, false), Some(LossReason::QuorumLost)),
        (5, (true, false), Some(LossReason::QuorumLost)),
        (3, (false, true), Some(LossReason::QuorumLost)),
    ] {
        let case = format!("{lost} nodes, held: {is_held}, repeated: {is_repeated}");
        let bench = bench(5);
        let client = another(&bench.clock, &bench.nodes, |builder| builder.log(10));
        let lease = client.lock("r").acquire().await.unwrap();
        bench.settle().await;
        for node in bench.nodes.iter().take(lost) {
            node.remove("r");
            if is_held {
                node.set_data("r", "theirs", Expiry::In(HOUR));
            }
        }
        if is_repeated {
            bench.nodes.iter().skip(2).for_each(|node| node.fail(NodeErrorKind::Busy, "down"));
        }
        let retaining = tokio::spawn(lease.retain(HOUR, ""));
        bench.pass(MS * 20).await;
        bench.nodes.iter().for_each(MemoryNode::recover);
        bench.pass(TTL / 4).await;
        let reason = match retaining.await.unwrap() {
            Ok(()) => None,
            Err(RetainError::Lost(lost)) => Some(lost.reason),
            Err(error) => panic!("{case}: {error}"),
        };
        assert_eq!(reason, expected, "{case}");
        let ends = client.lock("r").log().await.unwrap().holds;
        let how = if reason.is_some() { HoldEnd::QuorumLost } else { HoldEnd::Retained };
        assert_eq!(ends.last().map(|hold| hold.hold.end), Some(how), "{case}");
        let left = if is_held { lost } else { 0 };
        assert_eq!(bench.keys(), if reason.is_some() { left } else { 5 }, "{case}: a lost lock is not kept");
    }
}

#[tokio::test(start_paused = true)]
async fn retaining_continues_if_it_is_dropped() {
    let bench = bench(5);
    bench.delay(MS * 5, MS * 5);
    for polled in [false, true] {
        let lease = bench.lock().acquire().await.unwrap();
        let mut retaining = Box::pin(lease.retain(Duration::from_secs(5), ""));
        if polled {
            tokio::select! { biased; _ = &mut retaining => unreachable!(), () = bench.pass(MS) => {} }
        }
        drop(retaining);
        bench.pass(MS * 50).await;
        let retained =
            bench.nodes.iter().filter_map(|node| node.holder("r")).all(|token| token.is_retained());
        assert!(retained, "{polled}");
        // Never polled, it owns the lease and releases it.
        assert_eq!(bench.keys(), if polled { 5 } else { 0 });
        bench.pass(Duration::from_secs(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_retained_is_known_before_the_work() {
    let bench = bench(5);
    let ten_years = HOUR * 24 * 366 * 10;
    let (lock, permits) = (bench.lock(), bench.coordinator.semaphore("s", 2));
    let reason = |outcome: Result<(), ConfigError>| {
        let error = outcome.unwrap_err();
        let ConfigError::NoRetention { reason } = error else { panic!("{error}") };
        reason
    };
    lock.validate_retention(ten_years).unwrap();
    permits.validate_retention(ten_years).unwrap();
    assert_eq!(reason(lock.validate_retention(ten_years + MS)), "it can be retained for ten years at most");
    assert_eq!(
        reason(permits.validate_retention(ten_years + MS)),
        "it can be retained for ten years at most"
    );
    assert_eq!(reason(lock.clone().shared().validate_retention(HOUR)), "it is shared with others");
    let error = bench.coordinator.lock("").validate_retention(HOUR).unwrap_err();
    assert!(matches!(error, ConfigError::Resource(_)), "{error}");
    assert_eq!(bench.nodes[0].requests().total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_others_depend_on_is_released() {
    let bench = bench(5);
    let refused = |outcome: Result<(), RetainError>| {
        let error = outcome.unwrap_err();
        assert!(matches!(error, RetainError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("this lease was released"), "{error}");
    };
    refused(bench.lock().shared().acquire().await.unwrap().retain(HOUR, "").await);
    bench.settle().await;
    assert_eq!(bench.keys(), 0);

    let me = Owner::new();
    let outer = bench.lock().owner(&me).acquire().await.unwrap();
    let inner = bench.lock().owner(&me).acquire().await.unwrap();
    refused(inner.retain(HOUR, "").await);
    assert!(outer.check().is_ok(), "the outer lease still holds it");
    outer.retain(HOUR, "").await.unwrap();
    assert_eq!(bench.keys(), 5);
    assert!(
        bench.lock().owner(&me).try_acquire().await.unwrap().is_none(),
        "its owner is refused like any other"
    );
}

#[tokio::test(start_paused = true)]
async fn a_retained_lock_can_be_revoked() {
    let bench = bench(5);
    bench.lock().acquire().await.unwrap().retain(HOUR, "").await.unwrap();
    let lock = bench.lock();
    let holder = lock.inspect().await.unwrap().holder().unwrap();
    assert_eq!(lock.revoke(&holder.token).await.unwrap().granted(), 5);
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn closing_waits_until_slower_nodes_have_retained_it() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    bench.nodes[4].delay(MS * 20, MS * 20);
    lease.retain(HOUR, "").await.unwrap();
    bench.coordinator.close(TTL).await;
    let retained = bench.nodes.iter().filter_map(|node| node.holder("r")).filter(Token::is_retained);
    assert_eq!(retained.count(), 5);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_forgot_it_free_the_lock_as_a_voting_majority() {
    let bench = bench_with(5, |builder| builder.max_ttl(TTL).restart_guard(RestartGuard::On));
    bench.lock().acquire().await.unwrap().retain(HOUR, "").await.unwrap();
    let elsewhere = another(&bench.clock, &bench.nodes, |builder| builder.max_ttl(TTL));
    let lock = elsewhere.lock("r").wait(Wait::Never);
    bench.nodes.iter().take(2).for_each(MemoryNode::restart_empty);
    bench.pass(TTL * 3).await;
    assert!(lock.try_acquire().await.unwrap().is_none(), "three nodes have it");
    bench.nodes[2].restart_empty();
    bench.pass(TTL * 3).await;
    assert!(lock.try_acquire().await.unwrap().is_some(), "as documented for restarts");
}

#[tokio::test(start_paused = true)]
async fn a_retained_permit_keeps_the_number_of_permits() {
    let bench = bench(5);
    let two = bench.coordinator.semaphore("s", 2).ttl(TTL).wait(Wait::Never);
    for _ in 0..2 {
        two.acquire().await.unwrap().into_lease().retain(HOUR, "ran at noon").await.unwrap();
    }
    bench.pass(HOUR / 2).await;
    let elsewhere = client(&bench);
    let full = elsewhere.semaphore("s", 2).wait(Wait::Never).acquire().await.unwrap_err().to_string();
    assert!(full.contains("ran at noon"), "{full}");
    let differs = elsewhere.semaphore("s", 3).wait(Wait::Never).acquire().await.unwrap_err().to_string();
    assert!(differs.contains("2 permits"), "{differs}");
    bench.pass(HOUR / 2).await;
    elsewhere.semaphore("s", 2).acquire().await.unwrap().release().await.unwrap();
}
