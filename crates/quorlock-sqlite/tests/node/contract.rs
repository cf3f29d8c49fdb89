//! The contract suite on a database.

use std::array::from_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{
    node::{Capabilities, HintListener, Node, Responder, SharedRequest},
    runtime::{Clock as _, SystemClock},
};
use quorlock_sqlite::SqliteNode;
use quorlock_testkit::contract::{OfRecords, RecordStore, check_contract};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::node::{booted, new_file};
use crate::together::agree;

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

impl RecordStore for Editor {
    fn read(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        let sql = "SELECT record FROM locks WHERE key = ?1";
        let found = self.open().query_row(sql, [key], |row| row.get::<_, String>(0)).optional();
        Ok(found.map_err(io::Error::other)?.map(String::into_bytes))
    }

    fn write(&self, key: &str, record: &[u8]) -> io::Result<()> {
        let sql = "INSERT OR REPLACE INTO locks (key, record, dead_at) VALUES (?1, ?2, ?3)";
        let text = str::from_utf8(record).unwrap();
        self.open().execute(sql, params![key, text, i64::MAX]).map(drop).map_err(io::Error::other)
    }

    fn now(&self) -> Duration {
        SystemClock::default().now().since(Moment::ORIGIN)
    }

    fn restart(&self) -> io::Result<()> {
        self.node.reboot();
        Ok(())
    }

    fn restore(&self) -> io::Result<()> {
        restore(&self.path)
    }
}

/// Puts a backup in the place of the database.
pub(crate) fn restore(path: &Path) -> io::Result<()> {
    let backup = path.with_extension("backup");
    let database = Connection::open(path).map_err(io::Error::other)?;
    database.execute("VACUUM INTO ?1", [backup.to_str()]).map_err(io::Error::other)?;
    for what in ["db-wal", "db-shm"] {
        // One that is not there is not in the way.
        drop(std::fs::remove_file(path.with_extension(what)));
    }
    std::fs::rename(backup, path)
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
        let node = Mutex::new(booted(path, "boot-0"));
        Arc::new(Rebooted { path: path.to_owned(), boots: AtomicU64::new(0), node })
    }

    fn reboot(&self) {
        let boot = self.boots.fetch_add(1, Ordering::Relaxed) + 1;
        *self.node.lock().unwrap() = booted(&self.path, &format!("boot-{boot}"));
    }

    fn node(&self) -> SqliteNode {
        self.node.lock().unwrap().clone()
    }
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

#[tokio::test]
async fn a_database_keeps_the_contract() {
    let (_directory, path) = new_file();
    let node = Rebooted::new(&path);
    let editor = OfRecords(Editor { path, node: Arc::clone(&node) });
    let checked = check_contract(&*node, &editor, &SystemClock::default()).await;
    assert!(checked.is_ok(), "{}", checked.unwrap_err());
}

#[tokio::test]
async fn the_first_clients_of_a_file_agree_about_its_history() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..50 {
        let path = directory.path().join(format!("{round}.db"));
        agree(from_fn(|_| crate::node::node(&path))).await;
    }
}
