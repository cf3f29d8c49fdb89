//! The contract suite on a PostgreSQL server, and that the suite detects a broken schema.

use std::array::from_fn;

use quorlock::{node::Node, runtime::SystemClock};
use quorlock_testkit::contract::check_contract;

use crate::support::{Editor, Server, node, server, sql};
use crate::together::agree;

/// Returns the clauses that `node` breaks.
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

/// Pairs of text to replace in the schema, and a clause that then fails.
const BROKEN: [(&str, &str, &str); 5] = [
    (
        "AND attempt = substr(tok, 1, 32) AND expires > t",
        "AND false",
        "a late acquisition of a cancelled attempt does nothing",
    ),
    (
        "SET buried = GREATEST(buried, until)",
        "SET buried = NULL",
        "a cancellation leaves a foreign key and still stops its own attempt",
    ),
    (
        "GREATEST(rules.usable(c.counter) + 1, EXCLUDED.counter)",
        "EXCLUDED.counter",
        "a number is one more than the larger of counter and hint",
    ),
    ("stands >= num", "stands > num", "a write back where the counter is not below is refused"),
    (
        "counter < 0 OR counter >= 9007199254740991",
        "false",
        "a counter that is no number fails and leaves no key",
    ),
];

#[tokio::test]
async fn a_broken_schema_is_detected() {
    let Some(server) = server() else { return };
    for (part, replaced, clause) in BROKEN {
        let client = server.client().await;
        client.batch_execute("DROP SCHEMA IF EXISTS quorlock CASCADE").await.unwrap();
        // The next connection would refuse such functions.
        let node = node(&server.url("&connections=1"));
        node.ready().await.unwrap();
        let functions = quorlock_postgres::SCHEMA.split("CREATE FUNCTION ").skip(1);
        let mut functions = functions.filter(|function| function.contains(part)).peekable();
        assert!(functions.peek().is_some(), "{part}");
        for function in functions {
            let (function, _) = function.rsplit_once("$$;").unwrap();
            let broken = format!("CREATE OR REPLACE FUNCTION {}$$", function.replace(part, replaced));
            client.batch_execute(&sql(&broken)).await.unwrap();
        }
        let broken = broken(&*node, &server, false).await;
        assert!(broken.iter().any(|broken| broken.contains(clause)), "{part}: {}", broken.join("\n"));
    }
}

#[tokio::test]
async fn the_first_clients_of_a_database_agree_about_its_history() {
    let Some(server) = server() else { return };
    agree(from_fn(|_| server.node())).await;
}
