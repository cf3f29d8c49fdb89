//! The contract suite on a database, and that the suite detects a broken node.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, ready};
use quorlock::protocol::Moment;
use quorlock::{
    node::{Capabilities, Expiry, HintListener, Node, Request, Responder, Seams, SharedRequest},
    runtime::{Clock as _, SystemClock},
};
use quorlock_sqlite::SqliteNode;
use quorlock_testkit::contract::{Plant, check_contract};
use quorlock_testkit::{Value, WrappedNode};
use rusqlite::{Connection, OptionalExtension as _, params};

/// Another client of the file, which changes rows without going through the node.
struct Editor {
    path: PathBuf,
    node: Arc<Rebooted>,
}

impl Editor {
    fn open(&self) -> Connection {
        let database = Connection::open(&self.path).unwrap();
        database.busy_timeout(Duration::from_secs(5)).unwrap();
        database
    }
}

/// Returns the clock of `ends` for this kind of row.
fn clock_of(what: i64) -> u64 {
    let clock = SystemClock::default();
    let now = if what == 2 { clock.wall() } else { clock.now().since(Moment::ORIGIN) };
    u64::try_from(now.as_micros()).unwrap()
}

impl Plant for Editor {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        let (what, token, number) = match value {
            Value::Text(text) => (1, text, None),
            // The maximum integer in SQL.
            Value::Number(counter) => {
                (2, Vec::new(), Some(i64::try_from(counter.current).unwrap_or(i64::MAX)))
            }
            Value::List(_) | Value::Scores(_) | Value::Fields(_) => (9, Vec::new(), None),
        };
        let ends = match expiry {
            Expiry::In(left) => Some(clock_of(what) + u64::try_from(left.as_micros()).unwrap()),
            Expiry::Never => None,
        };
        let sql = "INSERT INTO entries (key, part, member, what, ends, token, number) VALUES (?1, 0, x'', ?2, ?3, ?4, ?5)";
        let done = self.open().execute(sql, params![key, what, ends, token, number]);
        Box::pin(ready(done.map(drop).map_err(io::Error::other)))
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        let done = self.open().execute("DELETE FROM entries WHERE key = ?1 AND part = 0", [key]);
        Box::pin(ready(done.map(drop).map_err(io::Error::other)))
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        let sql = "SELECT what, ends FROM entries WHERE key = ?1 AND part = 0";
        let found = self.open().query_row(sql, [key], |row| Ok((row.get(0)?, row.get(1)?))).optional();
        let left = |(what, ends): (i64, Option<u64>)| {
            ends.map_or(Expiry::Never, |ends| {
                Expiry::In(Duration::from_micros(ends.saturating_sub(clock_of(what))))
            })
        };
        Box::pin(ready(found.map(|found| found.map(left)).map_err(io::Error::other)))
    }

    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        self.node.reboot();
        Box::pin(ready(Ok(())))
    }
}

/// A node whose host may reboot.
#[derive(Debug)]
struct Rebooted {
    path: PathBuf,
    boots: AtomicU64,
    node: Mutex<SqliteNode>,
}

impl Rebooted {
    fn new(path: &Path) -> Arc<Rebooted> {
        let node = Mutex::new(booted(path, 0));
        Arc::new(Rebooted { path: path.to_owned(), boots: AtomicU64::new(0), node })
    }

    fn reboot(&self) {
        let boot = self.boots.fetch_add(1, Ordering::Relaxed) + 1;
        *self.node.lock().unwrap() = booted(&self.path, boot);
    }

    fn node(&self) -> SqliteNode {
        self.node.lock().unwrap().clone()
    }
}

fn booted(path: &Path, boot: u64) -> SqliteNode {
    SqliteNode::booted_as(format!("boot-{boot}"), "sqlite", path.to_owned(), &Seams::default()).unwrap()
}

impl Node for Rebooted {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn capabilities(&self) -> Capabilities {
        self.node().capabilities()
    }

    fn ask(&self, request: SharedRequest, responder: Responder) {
        self.node().ask(request, responder);
    }

    fn listen(&self, listener: Arc<dyn HintListener>) {
        self.node().listen(listener);
    }
}

/// Returns the clauses that `node` breaks.
async fn broken(node: &dyn Node, editor: &Editor) -> Vec<String> {
    let Err(breach) = check_contract(node, editor, &SystemClock::default()).await else { return Vec::new() };
    breach.to_string().lines().filter(|line| line.starts_with("- ")).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_database_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.db");
    let node = Rebooted::new(&path);
    let broken = broken(&*node, &Editor { path, node: Arc::clone(&node) }).await;
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Releases where it should cancel, and so leaves no tombstone.
fn without_tombstones(node: impl Node) -> WrappedNode {
    WrappedNode::new(node).on_request(|request, responder, inner| {
        if let Request::Cancel { claim, .. } = &*request {
            inner.ask(Request::Release { claim: Arc::clone(claim) }.into(), responder);
        } else {
            inner.ask(request, responder);
        }
    })
}

#[tokio::test]
async fn a_database_that_breaks_the_contract_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.db");
    let node = Rebooted::new(&path);
    let editor = Editor { path, node: Arc::clone(&node) };
    let found = broken(&without_tombstones(node), &editor).await.join("\n");
    assert!(found.contains("a late acquisition of a cancelled attempt does nothing"), "{found}");
    assert!(!found.contains("a free key is granted"), "{found}");
}
