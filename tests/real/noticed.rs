//! Warnings about a server, given when it connects.

use quorlock::doctor::{Check, Severity};
use quorlock_testkit::{Servers, until};

use crate::world::client;

#[tokio::test(flavor = "multi_thread")]
async fn eviction_and_replicas_warn_and_votes_still_count() {
    let Ok(evicting) = Servers::setup()
        .options(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lfu"])
        .start(1)
        .await
    else {
        println!("skipped: no real server is installed");
        return;
    };
    let others = Servers::start(3).await.unwrap();
    let (master, replica) = (&others[0], &others[1]);
    replica.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]).await.unwrap();
    let followed = async || {
        let info = master.command(&["INFO", "replication"]).await;
        info.is_ok_and(|info| info.to_string().contains("connected_slaves:1"))
    };
    until("a replica", followed).await;

    let urls = [evicting[0].url(), master.url(), others[2].url()];
    let coordinator = client(&urls, |builder| builder);
    assert!(coordinator.warnings().is_empty(), "no server has connected yet");
    let lease = coordinator.lock("r").acquire().await.unwrap();
    until("three connections", async || coordinator.warnings().len() == 2).await;
    let mut noticed: Vec<_> =
        coordinator.warnings().into_iter().map(|finding| (finding.severity, finding.check)).collect();
    noticed.sort_by_key(|(severity, _)| *severity);
    assert_eq!(noticed, [(Severity::Unsafe, Check::Eviction), (Severity::Warning, Check::Replicas)]);
    until("three votes", async || {
        let report = coordinator.lock("r").inspect().await.unwrap();
        report.holder().is_some_and(|holder| holder.nodes == 3)
    })
    .await;
    lease.release().await.unwrap();
}
