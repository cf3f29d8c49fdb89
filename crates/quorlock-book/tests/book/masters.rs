//! Tests the claims of `docs/masters.md` on five real masters.

use std::time::Duration;

use quorlock::{
    Coordinator,
    doctor::{Check, Finding, Severity},
    health::NodeStatus,
};
use quorlock_book::block::blocks;
use quorlock_book::page::page;
use quorlock_testkit::{Kind, Servers, eventually, patience};

/// Short, so that the quarantine is short.
const MAX_TTL: Duration = Duration::from_secs(2);

/// Returns the settings of the page as command-line arguments.
fn options() -> Vec<String> {
    let page = page("docs/masters.md").unwrap();
    let block = blocks(&page.text).into_iter().find(|block| block.language == "conf").expect("a file");
    let lines = block.text.lines().filter(|line| !line.starts_with('#'));
    let words = lines.flat_map(|line| {
        let (name, value) = line.split_once(' ').expect("a name and a value");
        [format!("--{name}"), value.trim_matches('"').to_owned()]
    });
    words.collect()
}

async fn masters() -> Option<Servers> {
    if !matches!(Kind::choose().unwrap(), Kind::Program { .. }) {
        crate::skip("no valkey-server or redis-server installed");
        return None;
    }
    let options = options();
    let words: Vec<&str> = options.iter().map(String::as_str).collect();
    Some(Servers::setup().durable().options(&words).start(5).await.unwrap())
}

/// Returns a client with the restart guard, as in production.
fn client(servers: &Servers) -> Coordinator {
    Coordinator::builder().nodes(servers.urls()).ttl(MAX_TTL).max_ttl(MAX_TTL).build().unwrap()
}

/// Waits until each node votes, the first `restarted` of them after a restart: the condition for which the
/// page waits between two restarts.
async fn all_vote(coordinator: &Coordinator, restarted: usize) {
    let health = coordinator.health();
    eventually("a vote of each node", patience(), async || {
        let nodes = health.now();
        let back = nodes.iter().take(restarted).all(|node| node.restarts == 1);
        back && nodes.iter().all(|node| node.status == NodeStatus::Connected)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_the_settings_as_safe() {
    let Some(servers) = masters().await else { return };
    let coordinator = client(&servers);
    let examination = coordinator.doctor().await;
    assert!(!examination.has(Severity::Unsafe), "{:?}", examination.findings);
    let durable = |finding: &Finding| finding.check != Check::NotPersistent;
    assert!(examination.findings.iter().all(durable), "{:?}", examination.findings);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_survives_a_rolling_restart_of_all_five_masters() {
    let Some(servers) = masters().await else { return };
    let (holder, other) = (client(&servers), client(&servers));
    let held = eventually("a first lock, after the quarantine of new servers", patience(), async || {
        holder.lock("before").try_acquire().await.is_ok_and(|lease| lease.is_some())
    });
    held.await.unwrap();
    all_vote(&holder, 0).await;
    let lease = holder.lock("held").acquire().await.unwrap();
    let token = lease.fencing_token();

    for (number, server) in servers.iter().enumerate() {
        // Some of them lose their data.
        if number % 2 == 0 {
            server.restart_empty().await.unwrap();
        } else {
            server.restart_with_data().await.unwrap();
        }
        lease.check().unwrap_or_else(|lost| panic!("after the restart of server {number}: {lost}"));
        let free = other.lock("free").acquire().await;
        free.unwrap_or_else(|error| panic!("while server {number} does not vote: {error}"))
            .release()
            .await
            .unwrap();
        let other_lease = other.lock("held").try_acquire().await.unwrap();
        assert!(
            other_lease.is_none(),
            "the lock was lost by the restart of server {number}: its holder has {:?}",
            lease.check()
        );
        all_vote(&holder, number + 1).await;
    }

    lease.check().expect("the lock was lost in the last restart");
    assert_eq!(lease.fencing_token(), token, "another lease");
    lease.release().await.expect("the lock was lost unnoticed");
}
