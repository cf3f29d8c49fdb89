//! What an operator does with the data, each time before the eyes of a connected client and of a new one.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Identity, Node, NodeError, NodeErrorKind, Response, Vote};
use quorlock::{Coordinator, RestartGuard};
use quorlock_mysql::{MysqlKind, MysqlNode};
use quorlock_testkit::until;

use crate::faults::node;
use crate::requests::{acquire, claim, release};
use crate::server::{OLD, Server, skipped};

const YOUNG: Duration = Duration::from_secs(60);

/// Retries until a free lock is granted, and releases it.
async fn granted(node: &MysqlNode) -> Response {
    let mut answer = None;
    until("a lock is granted", async || {
        let claim = claim("c");
        answer = acquire(node, &claim).await.ok().filter(|answer| answer.vote == Vote::Granted);
        answer.is_some() && release(node, &claim).await == Vote::Granted
    })
    .await;
    answer.unwrap()
}

/// Returns a client whose history is an hour old and that remembers a row, and that history.
async fn client(server: &Server) -> (MysqlNode, Arc<Identity>) {
    node(server).ready().await.unwrap();
    server.sql(OLD).await;
    server.outlives_a_second().await;
    let node = node(server);
    let identity = granted(&node).await.identity;
    assert!(identity.age > YOUNG, "{identity:?}");
    (node, identity)
}

/// Asserts that the connected client and a new one know another history, which is young.
async fn is_new(server: &Server, connected: &MysqlNode, before: &Identity) {
    for node in [connected, &node(server)] {
        let after = granted(node).await.identity;
        assert!(after.id != before.id && after.age < YOUNG, "{after:?}, {before:?}");
    }
}

/// The client remembers a row, and writes it without reading it first.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_dump_is_a_new_history_into_which_no_remembered_row_is_written() {
    let Some(server) = Server::start(&[]).await else { return };
    let (node, before) = client(&server).await;
    server.dump().await.unwrap();
    server.restore().await.unwrap();
    let written = acquire(&node, &claim("c")).await;
    assert!(written.is_err(), "{written:?}");
    is_new(&server, &node, &before).await;
}

/// Nothing else of the table changes: neither its creation time nor the note.
#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_table_is_a_new_history() {
    let Some(server) = Server::start(&[]).await else { return };
    for emptied in ["TRUNCATE", "DELETE FROM", "DROP TABLE"] {
        let (node, before) = client(&server).await;
        server.sql(format!("{emptied} locks.quorlock_locks")).await;
        is_new(&server, &node, &before).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_tables_are_created_again_and_are_a_new_history() {
    let Some(server) = Server::start(&[]).await else { return };
    let (node, before) = client(&server).await;
    server.sql("DROP TABLE locks.quorlock_locks, locks.quorlock_history").await;
    until("the tables are back", async || acquire(&node, &claim("b")).await.is_ok()).await;
    is_new(&server, &node, &before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_started_beside_its_server_is_a_new_history() {
    let Some(server) = Server::start(&[]).await else { return };
    let (connected, before) = client(&server).await;
    let copy = server.copied().await;
    is_new(&copy, &node(&copy), &before).await;
    assert_eq!(granted(&connected).await.identity.id, before.id, "the server has lost nothing");
}

/// Host and port are those of the primary, and so is the creation time of the table, to the second.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_another_id_has_another_history() {
    let Some(server) = Server::start(&[]).await else { return };
    let (node, before) = client(&server).await;
    server.sql("SET GLOBAL server_id = 77").await;
    is_new(&server, &node, &before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_addresses_of_one_database_have_one_vote() {
    let Some(server) = Server::start(&[]).await else { return };
    let urls = [server.url(), server.url().replace("127.0.0.1", "localhost")];
    let builder = Coordinator::builder().kind(MysqlKind::new()).nodes(urls).restart_guard(RestartGuard::Off);
    let refused = builder.build().unwrap().lock("a").try_acquire().await.unwrap_err().to_string();
    assert!(refused.contains("same"), "{refused}");
}

async fn refused(node: &MysqlNode) -> NodeError {
    acquire(node, &claim("d")).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_refused_with_the_documented_rights_and_one_that_was_promoted_is_new() {
    let Some(primary) = Server::start(&["--log-bin=log", "--sync-binlog=1", "--server-id=1"]).await else {
        return;
    };
    let replica = Server::start(&["--server-id=2"]).await.unwrap();
    primary.sql("CREATE USER follower@'%' IDENTIFIED BY 'secret'").await;
    primary.sql("GRANT REPLICATION SLAVE ON *.* TO follower@'%'").await;
    let is_mysql = primary.is_mysql();
    let port = primary.port();
    let source = if is_mysql {
        format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'follower', \
             SOURCE_PASSWORD = 'secret', GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1"
        )
    } else {
        format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'follower', \
             MASTER_PASSWORD = 'secret', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1"
        )
    };
    // MySQL has only the new words.
    let replica_word = if is_mysql { "REPLICA" } else { "SLAVE" };
    let [start, stop] = ["START", "STOP"].map(|verb| format!("{verb} {replica_word}"));
    let (of_primary, before) = client(&primary).await;
    // It is asked while it follows no server, and goes on asking.
    let early = node(&replica);
    early.ready().await.unwrap();
    replica.sql("DROP TABLE locks.quorlock_locks, locks.quorlock_history").await;
    replica.sql(source).await;
    replica.sql(&*start).await;
    until("the replica has the tables", async || {
        let rows = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_NAME = 'quorlock_history'";
        !replica.sql(rows).await.is_empty()
    })
    .await;
    for node in [&early, &node(&replica)] {
        until("the replica is refused", async || refused(node).await.kind() == NodeErrorKind::ReadOnly).await;
        let words = refused(node).await.to_string();
        // Its user may know which one on MySQL only.
        let of = if is_mysql { "127.0.0.1" } else { "another server" };
        assert!(words.contains(&format!("is a replica of {of}: name the primary")), "{words}");
    }
    granted(&of_primary).await;

    // Its user may not know whether it is a replica that is broken, or a primary.
    let right = if is_mysql { "REPLICATION CLIENT" } else { "REPLICA MONITOR" };
    if is_mysql {
        // The launcher has granted it, because without it no MySQL server votes.
        replica.sql(format!("REVOKE {right} ON *.* FROM 'locks'@'%'")).await;
    }
    replica.sql(stop).await;
    until("the right is asked for", async || refused(&early).await.to_string().contains(right)).await;
    let words = refused(&node(&replica)).await.to_string();
    let (_, grant) = words.split_once("run `").unwrap();
    replica.sql(grant.trim_end_matches('`')).await;
    is_new(&replica, &early, &before).await;

    replica.sql(start).await;
    if is_mysql {
        until("a new client is refused", async || {
            node(&replica).ready().await.is_err_and(|error| error.kind() == NodeErrorKind::ReadOnly)
        })
        .await;
        return skipped(
            "a connected client notices that its server follows another: on MySQL the next connection does",
        );
    }
    // A client that is connected hears when it follows the other again.
    primary.sql("FLUSH TABLES locks.quorlock_locks").await;
    granted(&of_primary).await;
    until("the replica is refused", async || {
        let asked = acquire(&early, &claim("e")).await;
        asked.is_err_and(|error| error.kind() == NodeErrorKind::ReadOnly)
    })
    .await;
}
