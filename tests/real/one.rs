//! A single node that restarts.

use std::time::Duration;

use quorlock::{AcquireError, RestartGuard, Wait, votes::VoteOutcome};
use quorlock_testkit::{Servers, patience, until};

use crate::world::client;

const TTL: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_single_node_waits_out_what_it_forgot() {
    let servers = Servers::start(1).await.unwrap();
    let guarded =
        || client(&servers.urls(), |builder| builder.ttl(TTL).max_ttl(TTL).restart_guard(RestartGuard::On));
    let (one, two) = (guarded(), guarded());
    let first = async || matches!(one.lock("first").try_acquire().await, Ok(Some(_)));
    until("the first quarantine is over", first).await;
    let lease = one.lock("r").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    servers[0].restart_empty().await.unwrap();
    let aside = async || match two.lock("r").try_acquire().await {
        Err(AcquireError::Unavailable { report, .. }) => {
            report.votes().iter().any(|vote| matches!(vote.outcome, VoteOutcome::Quarantined { .. }))
        }
        Ok(Some(_)) => panic!("two holders: {:?}", lease.check()),
        Ok(None) | Err(_) => false,
    };
    until("it does not vote", aside).await;
    let second = two.lock("r").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    assert!(lease.check().is_err() && second.check().is_ok());
}
