//! The contract suite on a table.

use std::array::from_fn;
use std::io;
use std::time::Duration;

use futures::future::BoxFuture;
use mysql_async::prelude::Queryable as _;
use quorlock::protocol::{WaiterId, companion};
use quorlock::{
    node::{Expiry, Node as _, Seams},
    runtime::{Clock as _, SystemClock},
};
use quorlock_mysql::MysqlNode;
use quorlock_testkit::Value;
use quorlock_testkit::contract::{Plant, check_contract};
use tokio::sync::Mutex;

use crate::faults::node;
use crate::server::{OLD, Server, other};
use crate::together::agree;

/// Another client: an administrator with a console.
struct Console(Mutex<Server>);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Returns the key of the lock, given the key of its counter.
fn is_counter(key: &str) -> bool {
    companion(key).is_some_and(|(_, rest)| rest.starts_with("fence:"))
}

/// Returns the key of the lock, given the key of a waiter's turn.
fn turn_of(key: &str) -> Option<&str> {
    let (lock, rest) = companion(key)?;
    WaiterId::parse(rest.strip_prefix("want:mark:")?.as_bytes()).map(|_| lock)
}

impl Console {
    async fn run(&self, statement: String) -> io::Result<()> {
        let mut conn = self.0.lock().await.other().await;
        conn.query_drop(statement).await.map_err(other)?;
        conn.disconnect().await.map_err(other)
    }

    async fn write(&self, key: &str, value: Value, expiry: Expiry) -> io::Result<()> {
        if is_counter(key) {
            let number = if let Value::Number(number) = value { number } else { u64::MAX };
            let insert = format!(
                "INSERT INTO quorlock_locks SET name = x'{}', nonce = RAND() * 1e9, dead_at = ~0",
                hex(key.as_bytes())
            );
            let now = format!("counter = {number}");
            return self
                .run(format!("{insert}, {now} ON DUPLICATE KEY UPDATE nonce = nonce + 1, {now}"))
                .await;
        }
        let ends = match expiry {
            Expiry::In(left) => (SystemClock::default().wall() + left).as_micros().to_string(),
            Expiry::Never => "NULL".to_owned(),
        };
        let what = match value {
            Value::Text(token) => format!("token = x'{}', ends = {ends}", hex(&token)),
            Value::Number(_) | Value::List(_) => "beside = 'a list of items'".to_owned(),
        };
        let name = hex(key.as_bytes());
        self.run(format!(
            "INSERT INTO quorlock_locks SET name = x'{name}', nonce = RAND() * 1e9, dead_at = ~0, {what}"
        ))
        .await
    }

    async fn delete(&self, key: &str) -> io::Result<()> {
        let (set, key) = match turn_of(key) {
            // A waiter that is no longer in the queue has its turn.
            Some(lock) => ("waiters = NULL", lock),
            None => ("token = NULL, ends = NULL, beside = NULL, counter = 0", key),
        };
        self.run(format!(
            "UPDATE quorlock_locks SET nonce = nonce + 1, {set} WHERE name = x'{}'",
            hex(key.as_bytes())
        ))
        .await
    }

    async fn ends(&self, key: &str) -> io::Result<Option<Expiry>> {
        let mut conn = self.0.lock().await.other().await;
        let select = format!(
            "SELECT token IS NULL, ends, counter FROM quorlock_locks WHERE name = x'{}'",
            hex(key.as_bytes())
        );
        let row: Option<(bool, Option<u64>, u64)> = conn.query_first(select).await.map_err(other)?;
        conn.disconnect().await.map_err(other)?;
        let left = |ends: Duration| Expiry::In(ends.saturating_sub(SystemClock::default().wall()));
        Ok(match row {
            Some((_, _, 1..)) => Some(Expiry::Never),
            Some((false, ends, _)) => {
                Some(ends.map_or(Expiry::Never, |ends| left(Duration::from_micros(ends))))
            }
            Some((true, ..)) | None => None,
        })
    }
}

impl Plant for Console {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(self.write(key, value, expiry))
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(self.delete(key))
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(self.ends(key))
    }

    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { self.0.lock().await.restart_with_data().await })
    }

    fn restore(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async {
            let server = self.0.lock().await;
            server.sql(OLD).await;
            server.outlives_a_second().await;
            server.dump().await?;
            server.restore().await
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_keeps_the_contract() {
    let Some(server) = Server::start(&[]).await else { return };
    let node = MysqlNode::new(&server.url(), &Seams::default()).unwrap();
    node.ready().await.unwrap();
    let checked = check_contract(&node, &Console(Mutex::new(server)), &SystemClock::default()).await;
    assert!(checked.is_ok(), "{}", checked.unwrap_err());
}

#[tokio::test]
async fn the_first_clients_of_a_database_agree_about_its_history() {
    let Some(server) = Server::start(&[]).await else { return };
    agree(from_fn(|_| node(&server))).await;
}
