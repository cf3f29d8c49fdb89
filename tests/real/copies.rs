//! Votes that count only when replicas have acknowledged them: `?wait=1`.

use std::time::Duration;

use quorlock::{AcquireError, Coordinator, Lock, RestartGuard, Wait, node::NodeError, votes::VoteOutcome};
use quorlock_testkit::{Proxy, Server, Servers, Way, patience, until};

use crate::world::{TTL, client};

/// A replica must acknowledge within half of this.
const LIMIT: Duration = Duration::from_secs(1);

/// A master and a replica with a live connection.
async fn replicated() -> Servers {
    let servers = Servers::start(2).await.unwrap();
    follow(&servers[1], servers[0].port()).await;
    servers
}

async fn follow(replica: &Server, port: u16) {
    replica.command(&["REPLICAOF", "127.0.0.1", &port.to_string()]).await.unwrap();
    let up = async || {
        let info = replica.command(&["INFO", "replication"]).await;
        info.is_ok_and(|info| info.to_string().contains("master_link_status:up"))
    };
    until("a replica", up).await;
}

fn waiting(server: &Server) -> Coordinator {
    client(&[format!("{}?wait=1", server.url())], |builder| builder.node_timeout(LIMIT))
}

fn lock(of: &Coordinator) -> Lock {
    of.lock("r").wait(Wait::UpTo(patience()))
}

async fn keys(server: &Server) -> String {
    server.command(&["EXISTS", "r"]).await.unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_lock_is_stored_on_the_replica() {
    let servers = Servers::start(2).await.unwrap();
    // Replication is delayed: without WAIT, the reply would arrive before the key is replicated.
    let way = Proxy::start(servers[0].address()).await.unwrap();
    way.delay(Way::ToClient, Duration::from_millis(20));
    follow(&servers[1], way.address().port()).await;
    let coordinator = waiting(&servers[0]);
    for _ in 0..10 {
        let lease = lock(&coordinator).acquire().await.unwrap();
        assert_eq!(keys(&servers[1]).await, "1", "a failover now would forget it");
        lease.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_replica_nothing_is_granted_or_left() {
    let servers = replicated().await;
    let coordinator = waiting(&servers[0]);
    // Until it is released, this process itself holds it, and sends no request.
    lock(&coordinator).acquire().await.unwrap().release().await.unwrap();
    servers[1].freeze().unwrap();
    let error = lock(&coordinator).try_acquire().await.unwrap_err();
    let AcquireError::Unavailable { report, .. } = &error else { panic!("{error}") };
    let unconfirmed = |reply: &VoteOutcome| {
        matches!(reply, VoteOutcome::Failed(NodeError::Unconfirmed { copies: 0, needed: 1 }))
    };
    assert!(report.votes().iter().all(|vote| unconfirmed(&vote.outcome)), "{error}");
    let gone = async || keys(&servers[0]).await == "0";
    until("the vote is undone", gone).await;
    servers[1].thaw().unwrap();
    drop(lock(&coordinator).acquire().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_without_a_replica_does_not_count() {
    let servers = replicated().await;
    let coordinator = waiting(&servers[0]);
    let lease = lock(&coordinator).acquire().await.unwrap();
    // Within the first millisecond a renewal has nothing to write.
    let whole = TTL.as_millis().to_string();
    let shorter = async || servers[0].command(&["PTTL", "r"]).await.unwrap().to_string() != whole;
    until("a shorter life", shorter).await;
    servers[1].freeze().unwrap();
    let error = lease.renew().await.unwrap_err().to_string();
    assert!(error.contains("only 0 of the 1 required replicas"), "{error}");
    servers[1].thaw().unwrap();
    until("a renewal", async || lease.renew().await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_of_many_tasks_are_confirmed_together_and_each_on_its_own() {
    let servers = replicated().await;
    let coordinator = waiting(&servers[0]);
    let leases = futures::future::join_all((0..64).map(|number| {
        let lock = coordinator.lock(format!("r{number}")).wait(Wait::UpTo(patience()));
        async move { lock.acquire().await.unwrap() }
    }));
    let leases = leases.await;
    let names: Vec<_> = (0..leases.len()).map(|number| format!("r{number}")).collect();
    let asked: Vec<_> = ["EXISTS"].into_iter().chain(names.iter().map(String::as_str)).collect();
    assert_eq!(servers[1].command(&asked).await.unwrap().to_string(), "64");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_wait_gets_an_error() {
    let servers = replicated().await;
    let words = ["ACL", "SETUSER", "anna", "on", ">pw", "~*", "+@all", "-wait"];
    servers[0].command(&words).await.unwrap();
    let url = format!("{}?wait=1", servers[0].url_as("anna:pw"));
    let coordinator = client(&[url], |builder| builder.ttl(TTL).restart_guard(RestartGuard::Off));
    let error = coordinator.lock("r").acquire().await.unwrap_err().to_string();
    assert!(error.contains("may not run WAIT"), "{error}");
}
