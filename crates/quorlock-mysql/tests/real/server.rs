//! A MariaDB server for a test.

use std::io;
use std::ops::Deref;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder, Row};
use quorlock_testkit::{Database, Engine, eventually, patience};

/// It ends when dropped.
pub(crate) struct Server(Database);

impl Deref for Server {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.0
    }
}

/// Returns why no server can be started, if so.
pub(crate) fn missing() -> Option<String> {
    Engine::mariadb().err().map(|why| format!("skipped: {why}; Debian has it in `mariadb-server`"))
}

impl Server {
    /// Starts a server with a database `locks` and a user `locks`, who has all privileges on it and a password.
    pub(crate) async fn start(settings: &[&str]) -> Server {
        let server = Server(Engine::mariadb().unwrap().settings(settings).start().await.unwrap());
        server.sql("ALTER USER 'locks'@'%' IDENTIFIED BY 'secret'").await;
        server
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

/// Waits until `done` returns `true`.
pub(crate) async fn until(what: &str, done: impl AsyncFnMut() -> bool) {
    eventually(what, patience(), done).await.unwrap();
}

pub(crate) fn other(error: mysql_async::Error) -> io::Error {
    io::Error::other(error)
}
