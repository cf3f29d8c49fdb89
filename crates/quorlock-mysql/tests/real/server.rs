//! A MariaDB server for a test.

use std::io::{self, Write as _};
use std::ops::Deref;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder, Row};
use quorlock_testkit::{Database, Engine};

/// It ends when dropped.
pub(crate) struct Server(Database);

impl Deref for Server {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.0
    }
}

/// Makes the history of the data an hour older.
pub(crate) const OLD: &str = "UPDATE locks.quorlock_history SET noted_at = noted_at - 3600000000";

impl Server {
    /// Stops it, copies its data, and starts both.
    pub(crate) async fn copied(&self) -> Server {
        Server(self.copy().await.unwrap())
    }

    /// Starts a server with a database `locks` and a user `locks`, who has all privileges on it and a password. Prints
    /// why not and returns `None` if MariaDB is not installed.
    pub(crate) async fn start(settings: &[&str]) -> Option<Server> {
        let engine = Engine::mariadb().inspect_err(|why| {
            // Not `eprintln`, whose output the harness captures while a test passes.
            drop(writeln!(io::stderr(), "skipped: {why}; Debian has it in `mariadb-server`"));
        });
        let server = Server(engine.ok()?.settings(settings).start().await.unwrap());
        server.sql("ALTER USER 'locks'@'%' IDENTIFIED BY 'secret'").await;
        Some(server)
    }

    async fn root(&self) -> Result<Conn, mysql_async::Error> {
        let socket = self.folder().join("socket").display().to_string();
        Conn::new(OptsBuilder::default().user(Some("root")).socket(Some(socket))).await
    }

    /// Executes a statement as an administrator.
    pub(crate) async fn sql(&self, statement: impl Into<String>) -> Vec<Row> {
        let mut conn = self.root().await.unwrap();
        let rows = conn.query(statement.into()).await.unwrap();
        conn.disconnect().await.unwrap();
        rows
    }

    /// Waits until the table of locks is older than a second: servers report creation times in whole seconds.
    pub(crate) async fn outlives_a_second(&self) {
        let later = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'locks' AND \
                     TABLE_NAME = 'quorlock_locks' AND CREATE_TIME < NOW()";
        while self.sql(later).await.is_empty() {
            self.sql("DO SLEEP(0.05)").await;
        }
    }

    /// Opens a connection as an administrator.
    pub(crate) async fn other(&self) -> Conn {
        let mut conn = self.root().await.unwrap();
        conn.query_drop("USE locks").await.unwrap();
        conn
    }

    pub(crate) fn port(&self) -> u16 {
        self.address().port()
    }

    pub(crate) fn url(&self) -> String {
        format!("mysql://locks:secret@127.0.0.1:{}/locks", self.port())
    }
}

pub(crate) fn other(error: mysql_async::Error) -> io::Error {
    io::Error::other(error)
}
