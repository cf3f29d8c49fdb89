//! Real PostgreSQL servers, each in its own folder, which end with the test.

use std::io::{self, Write as _};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock::protocol::companion;
use quorlock::{
    Coordinator, RestartGuard,
    node::{Expiry, Node, NodeKind as _, Seams},
    runtime::{Clock as _, SystemClock},
};
use quorlock_postgres::{PostgresKind, SCHEMA};
use quorlock_testkit::contract::Plant;
use quorlock_testkit::{Database, Engine, Proxy, Value};
use tokio_postgres::{Client, NoTls};

/// Starts a server, or prints why not and returns `None` if PostgreSQL is not installed.
pub(crate) fn server() -> Option<Server> {
    match Engine::postgres() {
        Ok(_) => Some(Server::start(&[])),
        Err(why) => {
            // Not `eprintln`, whose output the harness captures while a test passes.
            drop(writeln!(io::stderr(), "skipped: {why}"));
            None
        }
    }
}

/// A server, which ends when dropped.
pub(crate) struct Server(Database);

impl Deref for Server {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.0
    }
}

impl Server {
    /// Starts a server with these settings.
    pub(crate) fn start(settings: &[&str]) -> Server {
        Server::with_files(settings, &[])
    }

    /// Starts a server with these settings, and with these files in its data folder.
    pub(crate) fn with_files(settings: &[&str], files: &[(&str, &str)]) -> Server {
        let engine = Engine::postgres().unwrap().settings(settings);
        let engine = files.iter().fold(engine, |engine, (name, text)| engine.file(name, text));
        Server(block_on(engine.start()))
    }

    /// Starts a standby of this server.
    pub(crate) fn standby(&self) -> Server {
        Server(block_on(self.0.standby(self.address())))
    }

    /// Starts a copy of this server beside it, on another port. Restarts this one.
    pub(crate) fn copy(&self) -> Server {
        Server(block_on(self.0.copy()))
    }

    /// Promotes a standby.
    pub(crate) fn promote(&self) {
        block_on(self.0.promote());
    }

    /// Restarts it.
    pub(crate) fn start_again(&self) {
        block_on(self.restart_with_data());
    }

    /// Returns the address of its Unix socket, with these options.
    pub(crate) fn url(&self, options: &str) -> String {
        let (folder, port) = (self.folder().display(), self.address().port());
        format!("postgres://postgres@/postgres?host={folder}&port={port}{options}")
    }

    /// Returns the TCP address of this server, as this user.
    pub(crate) fn tcp_url(&self, user: &str, host: &str, options: &str) -> String {
        format!("postgres://{user}@{host}:{}/postgres{options}", self.address().port())
    }

    /// Starts a proxy in front of it. Returns its address for nodes, with one connection.
    pub(crate) async fn behind_proxy(&self) -> (Proxy, String) {
        let proxy = Proxy::start(self.address()).await.unwrap();
        let url = format!("{}?connections=1", self.engine().url(proxy.address()));
        (proxy, url)
    }

    pub(crate) fn node(&self) -> Arc<dyn Node> {
        node(&self.url(""))
    }

    /// Opens another client connection to this server.
    pub(crate) async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(""), NoTls).await.unwrap();
        drop(tokio::spawn(connection));
        client
    }
}

/// Waits on a thread of its own, so that tests without a runtime can start servers too.
fn block_on<T: Send>(work: impl Future<Output = io::Result<T>> + Send) -> T {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::scope(|scope| scope.spawn(|| runtime().block_on(work)).join().unwrap().unwrap())
}

/// How the names of the functions of this version begin.
pub(crate) fn rules() -> &'static str {
    SCHEMA.split_once("own text := '").unwrap().1.split_once('\'').unwrap().0
}

/// Puts the names of the functions of this version into SQL that has them as the script does.
pub(crate) fn sql(text: &str) -> String {
    text.replace("rules.", &format!("quorlock.{}", rules()))
}

/// Opens a node of this address.
pub(crate) fn node(url: &str) -> Arc<dyn Node> {
    PostgresKind::new().parse(url).unwrap().node(&Seams::default()).unwrap()
}

/// Returns the PIDs of the backends that serve nodes.
pub(crate) async fn backends(client: &Client) -> Vec<i32> {
    let asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'quorlock'";
    client.query(asked, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Whether a statement of a node waits for a lock.
pub(crate) async fn waits(client: &Client) -> bool {
    let waiting =
        "SELECT FROM pg_stat_activity WHERE application_name = 'quorlock' AND wait_event_type = 'Lock'";
    !client.query(waiting, &[]).await.unwrap().is_empty()
}

/// A coordinator of these nodes, which were created just now and have forgotten nothing.
pub(crate) fn coordinator(nodes: impl IntoIterator<Item = String>) -> Coordinator {
    Coordinator::builder()
        .kind(PostgresKind::new())
        .nodes(nodes)
        .restart_guard(RestartGuard::Off)
        .build()
        .unwrap()
}

/// Another client, which changes rows without going through the node.
pub(crate) struct Editor<'a> {
    pub(crate) server: &'a Server,
    /// Whether the suite may restart the server.
    pub(crate) restarts: bool,
}

fn is_counter(key: &str) -> bool {
    companion(key).is_some_and(|(_, rest)| rest.starts_with("fence:"))
}

/// Makes the history of the data an hour older, as its note would be by then.
pub(crate) const OLD: &str = "UPDATE quorlock.history SET since = since - 3600000000::bigint,
    writer = (txid_current() & 4294967295)::text::xid";

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap()
}

impl Editor<'_> {
    async fn change(
        &self,
        key: &str,
        text: &str,
        parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> io::Result<()> {
        let client = self.server.client().await;
        let ensured = "INSERT INTO quorlock.locks (key) VALUES ($1) ON CONFLICT DO NOTHING";
        client.execute(ensured, &[&key.as_bytes()]).await.map_err(io::Error::other)?;
        let name = key.as_bytes();
        let mut all: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> = vec![&name];
        all.extend(parameters);
        client
            .execute(&format!("UPDATE quorlock.locks SET {text} WHERE key = $1"), &all)
            .await
            .map_err(io::Error::other)?;
        Ok(())
    }
}

impl Plant for Editor<'_> {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let ends = if let Expiry::In(left) = expiry {
                Some(micros(SystemClock::default().wall() + left))
            } else {
                None
            };
            if is_counter(key) {
                // A number column stores a negative number for a value that is not a number.
                let current = if let Value::Number(number) = value {
                    i64::try_from(number).unwrap_or(i64::MAX)
                } else {
                    -1
                };
                let set = "INSERT INTO quorlock.counters VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET counter = $2";
                let client = self.server.client().await;
                return client
                    .execute(set, &[&key.as_bytes(), &current])
                    .await
                    .map(drop)
                    .map_err(io::Error::other);
            }
            let token = if let Value::Text(text) = value { Some(text) } else { None };
            self.change(key, "token = $2, expires = $3, number = NULL", &[&token, &ends]).await
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            if companion(key).is_some_and(|(_, rest)| rest.starts_with("want:")) {
                // Simulates the release that notifies this waiter of its turn.
                let client = self.server.client().await;
                let statement =
                    "WITH gone AS (DELETE FROM quorlock.waiters WHERE turn_key = $1 RETURNING turn_key)
                            SELECT pg_notify('quorlock', encode(turn_key, 'hex')) FROM gone";
                return client.query(statement, &[&key.as_bytes()]).await.map(drop).map_err(io::Error::other);
            }
            self.change(key, "token = NULL, expires = NULL, number = NULL, wanted = 0", &[]).await
        })
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(async move {
            let client = self.server.client().await;
            if is_counter(key) {
                let counter = "SELECT FROM quorlock.counters WHERE key = $1";
                let row = client.query_opt(counter, &[&key.as_bytes()]).await.map_err(io::Error::other)?;
                return Ok(row.map(|_| Expiry::Never));
            }
            let row = client
                .query_opt("SELECT token, expires FROM quorlock.locks WHERE key = $1", &[&key.as_bytes()])
                .await;
            let Some(row) = row.map_err(io::Error::other)? else { return Ok(None) };
            let (token, expires): (Option<Vec<u8>>, Option<i64>) = (row.get(0), row.get(1));
            let left = |ends: Duration| Expiry::In(ends.saturating_sub(SystemClock::default().wall()));
            let ends = expires.map(|ends| Duration::from_micros(u64::try_from(ends).unwrap()));
            Ok(token.map(|_| ends.map_or(Expiry::Never, left)))
        })
    }

    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        if !self.restarts {
            return Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())));
        }
        self.server.kill();
        self.server.start_again();
        Box::pin(std::future::ready(Ok(())))
    }

    fn restore(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            // An old history.
            self.server.client().await.batch_execute(OLD).await.map_err(io::Error::other)?;
            self.server.dump().await?;
            self.server.restore().await
        })
    }
}
