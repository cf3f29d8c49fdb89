//! Revoking a lock from its holder.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{TTL, bench, client, unnotified};
use quorlock::protocol::Claim;
use quorlock::{
    LossReason, Wait,
    node::{Request, Vote, ask},
    votes::VoteOutcome,
};
use quorlock_testkit::UnreadRequests;

#[tokio::test(start_paused = true)]
async fn a_revoked_lock_is_free_and_its_next_token_is_larger() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    let operator = client(&bench);
    let report = operator.lock("r").revoke(lease.token()).await.unwrap();
    assert!(report.votes().iter().all(|vote| vote.outcome == VoteOutcome::Granted), "{report}");
    let next = operator.lock("r").ttl(TTL).wait(Wait::Never).acquire().await.unwrap();
    assert!(next.fencing_token() > lease.fencing_token(), "the counters were kept");
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn those_who_watch_on_the_coordinator_that_revokes_learn_of_it_at_once() {
    let bench = bench(5);
    let client = unnotified(&bench);
    let lease = bench.coordinator.lock("r").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = client.lock("r");
        async move { lock.until_free().await }
    });
    bench.settle().await;
    let revoked = bench.clock.now();
    client.lock("r").revoke(lease.token()).await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(bench.clock.now().since(revoked) <= Duration::from_millis(30), "it polled");
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_has_renewed_learns_that_its_own_coordinator_has_revoked_the_lock() {
    let bench = bench(5);
    let client = unnotified(&bench);
    let lease = client.lock("r").acquire().await.unwrap();
    let permit = client.semaphore("s", 2).acquire().await.unwrap();
    let several = client.lock_all(["a", "b"]).acquire().await.unwrap();
    for renewed in [lease.renew().await, permit.renew().await, several.renew().await] {
        renewed.unwrap();
    }
    let key_of_permit = format!("s#{}", permit.number());
    let revoked = [("r", lease.token()), (&*key_of_permit, permit.token()), ("b", several.token())];
    for (key, token) in revoked {
        client.lock(key).revoke(token).await.unwrap();
    }
    bench.pass(Duration::from_millis(50)).await;
    for (checked, (key, _)) in [lease.check(), permit.check(), several.check()].into_iter().zip(revoked) {
        assert!(checked.is_err(), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_revoked_holder_learns_of_it_at_its_next_renewal() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    let operator = client(&bench);
    operator.lock("r").revoke(lease.token()).await.unwrap();
    assert!(lease.check().is_ok(), "the holder does not know yet, as documented");
    let revoked = bench.clock.now();
    assert_eq!(lease.lost().await.reason, LossReason::QuorumLost);
    let notified = bench.clock.now().since(revoked);
    assert!(notified <= TTL / 2, "reported by the first renewal, not at the end of validity: {notified:?}");
    assert_eq!(operator.lock("r").inspect().await.unwrap().holder(), None, "the renewal has stored it again");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_in_flight_does_not_restore_the_key() {
    let bench = bench(3);
    let lease = bench.lock().acquire().await.unwrap();
    let operator = client(&bench);
    operator.lock("r").revoke(lease.token()).await.unwrap();
    let claim = Arc::new(Claim::new("r".into(), lease.token().clone()));
    for node in &bench.nodes {
        let renew =
            Request::Renew { claim: claim.clone(), ttl: TTL, fencing_token: Some(lease.fencing_token()) };
        assert_eq!(ask(node, renew).await.unwrap().vote, Vote::Free);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_acquired_in_between_is_left_alone() {
    let bench = bench(3);
    let first = bench.lock().acquire().await.unwrap();
    let seen = first.token().clone();
    first.release().await.unwrap();
    let second = bench.lock().acquire().await.unwrap();
    let operator = client(&bench);
    let report = operator.lock("r").revoke(&seen).await.unwrap();
    assert_eq!(report.granted(), 0, "nothing was deleted: {report}");
    bench.pass(TTL).await;
    second.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_reported_and_delays_no_call() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    bench.settle().await;
    bench.nodes[4].hang();
    let asked = bench.clock.now();
    let report = bench.coordinator.lock("r").revoke(lease.token()).await.unwrap();
    assert_eq!(report.granted(), 4, "{report}");
    assert!(matches!(report.votes()[4].outcome, VoteOutcome::Failed(_)), "{report}");
    assert!(bench.clock.now().since(asked) < TTL / 10);
}

#[tokio::test(start_paused = true)]
async fn a_share_is_revoked_by_token_and_others_stay() {
    for knows_the_kind in [true, false] {
        let bench = bench(3);
        let catalog = bench.lock().shared();
        let (one, other) = (catalog.acquire().await.unwrap(), catalog.acquire().await.unwrap());
        let lock = client(&bench).lock("r");
        let revoked = if knows_the_kind { lock.clone().shared() } else { lock.clone() };
        let report = revoked.revoke(one.token()).await.unwrap();
        assert_eq!(report.granted(), 3, "{report}");
        assert_eq!(one.lost().await.reason, LossReason::QuorumLost);
        other.renew().await.unwrap();
        let left = lock.inspect().await.unwrap().holder().unwrap().readers;
        assert_eq!(left, [other.token().clone()]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_revoked_though_a_node_missed_its_downgrade() {
    let bench = bench(5);
    let writer = bench.lock().acquire().await.unwrap();
    let behind = &bench.nodes[4];
    behind.hang();
    let reader = writer.downgrade().await.unwrap();
    behind.unread_requests(UnreadRequests::Lost);
    behind.disconnect();
    behind.resume();
    behind.connect();
    bench.settle().await;
    assert_eq!(behind.holder("r").as_ref(), Some(reader.token()), "still exclusive there");
    let operator = client(&bench);
    let report = operator.lock("r").revoke(reader.token()).await.unwrap();
    assert_eq!(report.granted(), 5, "{report}");
    assert_eq!(bench.keys(), 0);
    assert_eq!(reader.lost().await.reason, LossReason::QuorumLost);
    assert_eq!(bench.keys(), 0);
}
