//! What an operator does with the data, each time before the eyes of a connected client and of a new one.

use std::sync::Arc;
use std::time::Duration;

use quorlock::doctor::Check;
use quorlock::node::{Identity, Node, NodeError, Request, Vote, ask};
use quorlock_testkit::{scaled, until};

use crate::node::answered;
use crate::requests::{TTL, acquire, claim, release};
use crate::support::{OLD, Server, backends, coordinator, node, server, waits};

/// Returns a client whose history is an hour old, and that history.
async fn client(server: &Server) -> (Arc<dyn Node>, Arc<Identity>) {
    acquire(&*server.node(), &claim("a")).await.unwrap();
    server.client().await.batch_execute(OLD).await.unwrap();
    let node = server.node();
    let identity = acquire(&*node, &claim("b")).await.unwrap().identity;
    assert!(identity.age > TTL, "{identity:?}");
    (node, identity)
}

/// Asserts that the connected client and a new one know another history, which is young.
async fn is_new(server: &Server, (connected, before): &(Arc<dyn Node>, Arc<Identity>)) {
    for node in [Arc::clone(connected), server.node()] {
        let mut granted = None;
        until("a lock is granted", async || {
            granted = acquire(&*node, &claim("c")).await.ok();
            granted.is_some()
        })
        .await;
        let after = granted.unwrap().identity;
        assert!(after.id != before.id && after.age < TTL, "{after:?}, {before:?}");
    }
}

#[tokio::test]
async fn rows_that_are_written_back_into_the_tables_are_a_new_history() {
    let Some(server) = server() else { return };
    let client = client(&server).await;
    let rows = "CREATE TABLE public.kept AS SELECT * FROM quorlock.history; DELETE FROM quorlock.history;
        DELETE FROM quorlock.locks; INSERT INTO quorlock.history SELECT * FROM public.kept";
    server.client().await.batch_execute(rows).await.unwrap();
    is_new(&server, &client).await;
}

/// The note is another table, and is not replaced.
const OLDER_ROWS: &str = "CREATE TABLE public.kept AS SELECT * FROM quorlock.locks; TRUNCATE quorlock.locks;
    INSERT INTO quorlock.locks SELECT * FROM public.kept";

#[tokio::test]
async fn older_rows_in_place_of_truncated_ones_are_a_new_history() {
    let Some(server) = server() else { return };
    let client = client(&server).await;
    server.client().await.batch_execute(OLDER_ROWS).await.unwrap();
    is_new(&server, &client).await;
}

/// It waits for the transaction, and then finds the older rows.
#[tokio::test]
async fn a_request_that_has_waited_for_older_rows_grants_nothing() {
    let Some(server) = server() else { return };
    let (node, before) = client(&server).await;
    let (other, observer) = (server.client().await, server.client().await);
    other.batch_execute(&format!("BEGIN; {OLDER_ROWS}")).await.unwrap();
    let waiting = claim("d");
    let (granted, ()) = futures::join!(acquire(&*node, &waiting), async {
        until("the request waits for the table", async || waits(&observer).await).await;
        other.batch_execute("COMMIT").await.unwrap();
    });
    // Or it has waited too long, on a busy machine.
    assert!(granted.is_err(), "{granted:?}");
    is_new(&server, &(node, before)).await;
}

#[tokio::test]
async fn dropped_tables_are_created_again_and_are_a_new_history() {
    let Some(server) = server() else { return };
    let client = client(&server).await;
    server.client().await.batch_execute("DROP SCHEMA quorlock CASCADE").await.unwrap();
    is_new(&server, &client).await;
}

#[tokio::test]
async fn a_copy_that_is_started_beside_its_server_is_a_new_history_and_the_same_voter() {
    let Some(server) = server() else { return };
    let (connected, before) = client(&server).await;
    let copy = server.copy();
    is_new(&copy, &(copy.node(), Arc::clone(&before))).await;
    assert_eq!(answered(&*connected, "a").await.identity.id, before.id, "the server has lost nothing");
    let both = coordinator([server.url(""), copy.url("")]);
    let refused = both.lock("a").try_acquire().await;
    assert!(refused.is_err(), "{refused:?}");
    let found = both.doctor().await;
    assert!(found.findings.iter().any(|finding| finding.check == Check::SameServer), "{found:?}");
}

#[tokio::test]
async fn two_databases_of_one_server_have_one_vote() {
    let Some(server) = server() else { return };
    server.client().await.batch_execute("CREATE DATABASE other").await.unwrap();
    // By two ways, which only the server knows to lead to one place.
    let other = server.engine().url(server.address());
    let other = format!("{}/other", other.strip_suffix("/postgres").unwrap());
    let both = coordinator([server.url(""), other]);
    until("both have answered", async || {
        let refused = both.lock("a").try_acquire().await.unwrap_err().to_string();
        refused.contains("same")
    })
    .await;
}

#[tokio::test]
async fn a_session_that_is_idle_for_longer_than_the_server_allows_goes_on() {
    let Some(server) = server() else { return };
    let client = server.client().await;
    let version: String = client.query_one("SHOW server_version_num", &[]).await.unwrap().get(0);
    if version.parse::<u32>().unwrap() < 140_000 {
        return;
    }
    // Longer than a client on a busy machine pauses while it logs in.
    let limit = scaled(Duration::from_millis(50)).as_millis();
    client.batch_execute(&format!("ALTER ROLE postgres SET idle_session_timeout = {limit}")).await.unwrap();
    let node = node(&server.url("&connections=1"));
    until("a connection", async || node.ready().await.is_ok()).await;
    let holder = claim("a");
    acquire(&*node, &holder).await.unwrap();
    let idle = format!(
        "SELECT FROM pg_stat_activity
         WHERE application_name = 'quorlock' AND clock_timestamp() - state_change > '{} ms'",
        limit * 4
    );
    until("the session was idle for long, or is gone", async || {
        backends(&client).await.is_empty() || !client.query(&idle, &[]).await.unwrap().is_empty()
    })
    .await;
    assert_eq!(release(&*node, &holder).await, Vote::Granted);
}

#[tokio::test]
async fn a_release_after_an_idle_connection_has_ended_goes_out_over_the_next_one() {
    let Some(server) = server() else { return };
    let (client, node) = (server.client().await, node(&server.url("&connections=1")));
    let holder = claim("a");
    acquire(&*node, &holder).await.unwrap();
    let ours = "pid FROM pg_stat_activity WHERE application_name = 'quorlock'";
    let old = format!("SELECT {ours} AND backend_start < clock_timestamp() - interval '1.5 s'");
    until("the connection was of use for a while", async || {
        !client.query(&old, &[]).await.unwrap().is_empty()
    })
    .await;
    let pid: i32 = client.query_one(&old, &[]).await.unwrap().get(0);
    client.query("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    let gone = format!("SELECT {ours} AND pid = $1");
    until("it has ended", async || client.query(&gone, &[&pid]).await.unwrap().is_empty()).await;
    // On a busy machine the end arrives after the request has left: it is not carried out then.
    until("the release over the next one", async || {
        match ask(&*node, Request::Release { claim: holder.clone() }).await {
            Ok(released) => {
                assert_eq!(released.vote, Vote::Granted);
                true
            }
            Err(NodeError::Unreachable { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}
