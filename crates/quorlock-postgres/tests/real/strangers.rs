//! What users without any right to the locks can do to those who hold them: nothing.

use futures::future::join_all;
use quorlock::node::{Request, Vote, ask};
use quorlock_testkit::until;
use tokio_postgres::{Client, NoTls};

use crate::requests::{TTL, acquire, claim};
use crate::support::{Server, node, server};

/// Returns a client of mallory, who may connect to this database and nothing else.
async fn mallory(server: &Server, database: &str) -> Client {
    let url = server.url("").replace("postgres@/postgres", &format!("mallory@/{database}"));
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    drop(tokio::spawn(connection));
    client
}

/// An advisory lock names nothing: everyone sees its number in `pg_locks`, and may take it or queue for it.
#[tokio::test]
async fn a_stranger_keeps_no_client_from_the_next_connection() {
    let Some(server) = server() else { return };
    let admin = server.client().await;
    // No superuser, which could end mallory's sessions.
    let made = "CREATE USER mallory; CREATE USER app; GRANT CREATE ON DATABASE postgres TO app";
    admin.batch_execute(made).await.unwrap();
    admin.batch_execute("CREATE DATABASE elsewhere").await.unwrap();
    let url = server.url("&connections=1").replace("postgres@", "app@");
    let (node, held) = (node(&url), claim("a"));
    assert_eq!(acquire(&*node, &held).await.unwrap().vote, Vote::Granted);
    let (same, other) = (mallory(&server, "postgres").await, mallory(&server, "elsewhere").await);
    let asked = "SELECT (classid::int8 << 32) + objid::int8 FROM pg_locks WHERE locktype = 'advisory'";
    let numbers: Vec<i64> =
        same.query(asked, &[]).await.unwrap().iter().map(|row| row.get::<_, i64>(0)).collect();
    for number in &numbers {
        other.query("SELECT pg_advisory_lock($1)", &[number]).await.unwrap();
    }
    // Granted as soon as the backend of the client has ended.
    let queue = numbers.iter().map(|number| {
        let text = format!("SELECT pg_advisory_lock({number})");
        let same = &same;
        async move { same.batch_execute(&text).await.unwrap() }
    });
    let renewed = async {
        let asked =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'quorlock'";
        assert_eq!(admin.query(asked, &[]).await.unwrap().len(), 1);
        let mut last = String::new();
        until("it renews over the next connection", async || {
            let request = Request::Renew { claim: held.clone(), ttl: TTL, fencing_token: None };
            let answer = ask(&*node, request).await.map(|answer| answer.vote);
            let shown = format!("{answer:?}");
            if shown != last {
                println!("{shown}");
                last = shown;
            }
            answer.is_ok_and(|vote| vote == Vote::Granted)
        })
        .await;
    };
    futures::join!(join_all(queue), renewed);
    assert_eq!(numbers, [0; 0], "numbers that everyone can see and take");
}

#[tokio::test]
async fn a_stranger_keeps_no_client_from_creating_the_schema() {
    let Some(server) = server() else { return };
    server.client().await.batch_execute("CREATE USER mallory").await.unwrap();
    let mallory = mallory(&server, "postgres").await;
    // The number by which clients once waited for each other.
    mallory.batch_execute("SELECT pg_advisory_lock(8102099357864587376)").await.unwrap();
    let nodes: Vec<_> = (0..4).map(|_| server.node()).collect();
    for ready in join_all(nodes.iter().map(|node| node.ready())).await {
        ready.unwrap();
    }
}
