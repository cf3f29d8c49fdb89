//! Revoking a lock from its holder.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{TTL, another, bench};
use quorlock::protocol::Claim;
use quorlock::{
    LossReason, Wait,
    node::{Request, Vote, ask},
    votes::VoteOutcome,
};
use quorlock_testkit::UnreadRequests;

#[tokio::test(start_paused = true)]
async fn a_revoked_lock_is_free_at_every_node_and_its_next_holder_has_a_larger_number() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    let operator = another(&bench.clock, &bench.nodes, |builder| builder);
    let report = operator.lock("r").revoke(lease.token()).await.unwrap();
    assert!(report.votes().iter().all(|vote| vote.outcome == VoteOutcome::Granted), "{report}");
    let next = operator.lock("r").ttl(TTL).wait(Wait::Never).acquire().await.unwrap();
    assert!(next.fencing_token() > lease.fencing_token(), "the counters were kept");
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn its_holder_learns_of_it_at_the_next_renewal_and_gets_nothing_back() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    let operator = another(&bench.clock, &bench.nodes, |builder| builder);
    operator.lock("r").revoke(lease.token()).await.unwrap();
    assert!(lease.check().is_ok(), "the holder does not know yet, as documented");
    let revoked = bench.clock.now();
    assert_eq!(lease.lost().await.reason, LossReason::QuorumLost);
    let told = bench.clock.now().since(revoked);
    assert!(told <= TTL / 2, "reported by the first renewal, not at the end of validity: {told:?}");
    assert_eq!(operator.lock("r").inspect().await.unwrap().holder(), None, "the renewal has stored it again");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_on_its_way_does_not_store_the_key_again() {
    let bench = bench(3);
    let lease = bench.lock().acquire().await.unwrap();
    let operator = another(&bench.clock, &bench.nodes, |builder| builder);
    operator.lock("r").revoke(lease.token()).await.unwrap();
    let claim = Arc::new(Claim::new("r".into(), lease.token().clone()));
    for node in &bench.nodes {
        let renew = Request::Renew { claim: claim.clone(), ttl: TTL, fencing_token: lease.fencing_token() };
        assert_eq!(ask(node, renew).await.unwrap().vote, Vote::Free);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_somebody_else_got_in_between_is_left_alone() {
    let bench = bench(3);
    let first = bench.lock().acquire().await.unwrap();
    let seen = first.token().clone();
    first.release().await.unwrap();
    let second = bench.lock().acquire().await.unwrap();
    let operator = another(&bench.clock, &bench.nodes, |builder| builder);
    let report = operator.lock("r").revoke(&seen).await.unwrap();
    assert_eq!(report.granted(), 0, "nothing was deleted: {report}");
    bench.pass(TTL).await;
    second.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_answer_is_reported_and_keeps_nobody_waiting() {
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
async fn a_share_is_taken_away_from_one_reader_and_the_others_keep_theirs() {
    let bench = bench(3);
    let (one, two) =
        (bench.lock().shared().acquire().await.unwrap(), bench.lock().shared().acquire().await.unwrap());
    let operator = another(&bench.clock, &bench.nodes, |builder| builder);
    let report = operator.lock("r").shared().revoke(one.token()).await.unwrap();
    assert_eq!(report.granted(), 3, "{report}");
    assert_eq!(one.lost().await.reason, LossReason::QuorumLost);
    two.renew().await.unwrap();
    let readers = operator.lock("r").inspect().await.unwrap().holder().unwrap().readers;
    assert_eq!(readers, [two.token().clone()]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_loses_its_share_by_its_token_and_the_others_keep_theirs() {
    let bench = bench(3);
    let catalog = bench.lock().shared();
    let (one, other) = (catalog.acquire().await.unwrap(), catalog.acquire().await.unwrap());
    let operator = another(&bench.clock, &bench.nodes, |builder| builder);
    let report = operator.lock("r").revoke(one.token()).await.unwrap();
    assert_eq!(report.granted(), 3, "{report}");
    let left = operator.lock("r").inspect().await.unwrap().holder().unwrap().readers;
    assert_eq!(left, [other.token().clone()]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_revoked_everywhere_though_a_node_has_not_heard_of_its_downgrade() {
    let bench = bench(5);
    let writer = bench.lock().acquire().await.unwrap();
    let deaf = &bench.nodes[4];
    deaf.hang();
    let reader = writer.downgrade().await.unwrap();
    deaf.unread_requests(UnreadRequests::Lost);
    deaf.disconnect();
    deaf.resume();
    deaf.connect();
    bench.settle().await;
    assert_eq!(deaf.holder("r").as_ref(), Some(reader.token()), "still exclusive there");
    let operator = another(&bench.clock, &bench.nodes, |builder| builder);
    let report = operator.lock("r").revoke(reader.token()).await.unwrap();
    assert_eq!(report.granted(), 5, "{report}");
    assert_eq!(bench.keys(), 0);
    assert_eq!(reader.lost().await.reason, LossReason::QuorumLost);
    assert_eq!(bench.keys(), 0);
}
