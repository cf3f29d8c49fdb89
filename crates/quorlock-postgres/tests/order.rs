//! What is carried out after what: a connection after its predecessor.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use quorlock::{Request, ask};
use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::Client;

use support::{Gate, Server, node, server, until};

mod support;

/// The processes that serve the connections of nodes.
async fn backends(client: &Client) -> Vec<i32> {
    let asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'quorlock'";
    client.query(asked, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn a_connection_waits_for_the_end_of_its_predecessor_and_not_for_ever() {
    if server().is_none() {
        return;
    }
    let server = Server::start(&["log_statement=all"]);
    let gate = Gate::open(&server);
    let node = node(&gate.url());
    ask(&*node, Request::Inspect { key: "a".into() }).await.unwrap();
    let client = server.client().await;
    let predecessor = *backends(&client).await.first().unwrap();
    let process = Pid::from_raw(predecessor).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    gate.cut();
    until("its successor votes, though it is stopped", async || {
        ask(&*node, Request::Inspect { key: "a".into() }).await.is_ok()
    })
    .await;
    let log = server.log();
    let (_, since) = log.split_once("pg_terminate_backend(pid)").expect("the predecessor is ended");
    let (waited, _) = since.split_once("quorlock.known_since").expect("the successor has begun");
    let looks = waited.matches("SELECT pg_try_advisory_lock($1)").count();
    assert!(looks > 1, "it looks until it has ended: {waited}");
    kill_process(process, Signal::CONT).unwrap();
    until("the predecessor ends", async || !backends(&client).await.contains(&predecessor)).await;
}
