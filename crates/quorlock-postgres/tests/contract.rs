//! A PostgreSQL server keeps the contract of every node, and the suite notices one that does not.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use quorlock::{Node, SystemClock};
use quorlock_testkit::contract::check_contract;

use support::{Editor, Server, server};

mod support;

/// The clauses that `node` breaks.
async fn broken(node: &dyn Node, server: &Server, restarts: bool) -> Vec<String> {
    let editor = Editor { server, restarts };
    let Err(breach) = check_contract(node, &editor, &SystemClock::default()).await else { return Vec::new() };
    breach.to_string().lines().filter(|line| line.starts_with("- ")).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_database_keeps_the_contract() {
    let Some(server) = server() else { return };
    let broken = broken(&*server.node(), &server, true).await;
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// What is left out of the schema, and a clause that says so.
const LEFT_OUT: [(&str, &str); 3] = [
    (
        "CREATE OR REPLACE FUNCTION quorlock.is_cancelled(ks bytea[], tok bytea, t bigint) RETURNS boolean LANGUAGE sql \
         AS 'SELECT false'",
        "a late acquisition of a cancelled attempt does nothing",
    ),
    (
        "CREATE OR REPLACE FUNCTION quorlock.next_number(counter bigint, hint bigint, lead bigint, t bigint) RETURNS \
         bigint LANGUAGE sql AS 'SELECT hint + 1'",
        "a number is one more than the larger of counter and hint",
    ),
    (
        "CREATE OR REPLACE FUNCTION quorlock.usable(counter bigint) RETURNS bigint LANGUAGE sql AS 'SELECT counter'",
        "a counter that is no number fails and leaves no key",
    ),
];

#[tokio::test]
async fn what_is_left_out_of_the_schema_is_noticed() {
    let Some(server) = server() else { return };
    for (left_out, clause) in LEFT_OUT {
        let client = server.client().await;
        client.batch_execute("DROP SCHEMA IF EXISTS quorlock CASCADE").await.unwrap();
        client.batch_execute(quorlock_postgres::SCHEMA).await.unwrap();
        client.batch_execute(left_out).await.unwrap();
        let broken = broken(&*server.node(), &server, false).await;
        assert!(broken.iter().any(|broken| broken.contains(clause)), "{left_out}: {}", broken.join("\n"));
    }
}
