//! A promotion counts as a restart (rule I-17), on real servers.

use std::time::Duration;

use quorlock::{Coordinator, Lease, RestartGuard, Wait, health::NodeStatus};
use quorlock_testkit::{Server, Servers, patience, until};

use crate::world::{client, quarantined, reported, run_command, wait_for_info};

/// Short, to keep the quarantine short.
const MAX_TTL: Duration = Duration::from_secs(2);

/// A client with a single node.
fn of(server: &Server, guard: RestartGuard) -> Coordinator {
    client(&[server.url()], |builder| builder.ttl(MAX_TTL).max_ttl(MAX_TTL).restart_guard(guard))
}

async fn follow(replica: &Server, master: &Server) {
    run_command(replica, &["REPLICAOF", "127.0.0.1", &master.port().to_string()]).await;
    wait_for_info(replica, "master_link_status:up").await;
}

async fn promote(server: &Server) {
    run_command(server, &["REPLICAOF", "NO", "ONE"]).await;
    wait_for_info(server, "role:master").await;
}

/// Waits until the uptime of a server proves nothing: it is longer than the quarantine.
async fn grown_up(server: &Server) {
    let old = async || reported(server, "uptime_in_seconds:").await.unwrap() > MAX_TTL.as_secs() + 1;
    until("a long uptime", old).await;
}

/// A replica that was connected to its master and is then disconnected.
async fn cut_off() -> Servers {
    let servers = Servers::start(2).await.unwrap();
    println!("on {}", servers.kind());
    follow(&servers[1], &servers[0]).await;
    grown_up(&servers[1]).await;
    // An unused port: it keeps its data, and receives nothing more.
    run_command(&servers[1], &["REPLICAOF", "127.0.0.1", "1"]).await;
    servers
}

async fn hold(server: &Server) -> Lease {
    of(server, RestartGuard::Off).lock("r").wait(Wait::UpTo(patience())).acquire().await.unwrap()
}

/// Whether the server is treated as restarted.
async fn is_quarantined(client: &Coordinator) -> bool {
    let answer = client.lock("r").try_acquire().await;
    println!("{answer:?}");
    answer.is_err_and(|error| quarantined(&error) > 0)
}

async fn votes(client: &Coordinator) {
    let granted = async || matches!(client.lock("r").try_acquire().await, Ok(Some(_)));
    until("a vote", granted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_a_promoted_replica_waits_out_the_keys_it_lacks() {
    let servers = cut_off().await;
    let held = hold(&servers[0]).await;
    servers[0].kill();
    promote(&servers[1]).await;
    let other = of(&servers[1], RestartGuard::On);
    assert!(is_quarantined(&other).await);
    let second = other.lock("r").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    assert!(held.check().is_err(), "two holders");
    assert!(second.check().is_ok());
    // A client that connects later reads the note of the first one.
    drop(second.release().await);
    let third = of(&servers[1], RestartGuard::On);
    assert!(third.lock("r").try_acquire().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_guard_off_a_promotion_makes_two_holders() {
    let servers = cut_off().await;
    // With leases that outlast the promotion, however long it takes.
    let [first, other] = [0, 1].map(|at| client(&[servers[at].url()], |builder| builder));
    let held = first.lock("r").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    servers[0].kill();
    promote(&servers[1]).await;
    let second = other.lock("r").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    assert!(held.check().is_ok() && second.check().is_ok(), "the test above proves something");
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_a_note_of_one_master_says_nothing_of_the_next() {
    let servers = Servers::start(3).await.unwrap();
    follow(&servers[1], &servers[0]).await;
    promote(&servers[1]).await;
    grown_up(&servers[1]).await;
    votes(&of(&servers[1], RestartGuard::On)).await;
    // It has a copy of the note, which is old enough.
    follow(&servers[2], &servers[1]).await;
    grown_up(&servers[2]).await;
    promote(&servers[2]).await;
    assert!(is_quarantined(&of(&servers[2], RestartGuard::On)).await);
    assert!(!is_quarantined(&of(&servers[1], RestartGuard::On)).await, "it has been master for long enough");
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_a_master_that_was_demoted_and_promoted_again_is_new_again() {
    let servers = Servers::start(2).await.unwrap();
    follow(&servers[1], &servers[0]).await;
    promote(&servers[1]).await;
    grown_up(&servers[1]).await;
    let known = of(&servers[1], RestartGuard::On);
    votes(&known).await;
    // It gets its own note back with the data of the server that replaced it for a while: no client
    // connected to that one as a master.
    follow(&servers[0], &servers[1]).await;
    promote(&servers[0]).await;
    follow(&servers[1], &servers[0]).await;
    let refused = async || {
        known.lock("r").try_acquire().await.is_err_and(|error| error.to_string().contains("replica"))
    };
    until("it is seen to be a replica", refused).await;
    let ended = async || !matches!(known.health().now()[0].status, NodeStatus::Connected);
    until("its connection ends", ended).await;
    let kept = servers[1].command(&["EXISTS", &quorlock::protocol::gate("")]).await.unwrap();
    assert_eq!(kept.to_string(), "1", "the note exists");
    promote(&servers[1]).await;
    assert!(is_quarantined(&of(&servers[1], RestartGuard::On)).await);
    votes(&known).await;
}
