//! A MariaDB or MySQL server for a test.

use std::fmt::Display;
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
        let engine = Engine::mariadb()
            .inspect_err(|why| skipped(format_args!("{why}; Debian has it in `mariadb-server`")));
        let server = Server(engine.ok()?.settings(settings).start().await.unwrap());
        server.sql("ALTER USER 'locks'@'%' IDENTIFIED BY 'secret'").await;
        Some(server)
    }

    pub(crate) fn is_mysql(&self) -> bool {
        self.engine().is_mysql()
    }

    async fn root(&self) -> Result<Conn, mysql_async::Error> {
        Conn::new(self.opts()).await
    }

    /// The options of a connection as an administrator.
    pub(crate) fn opts(&self) -> OptsBuilder {
        let socket = self.folder().join("socket").display().to_string();
        OptsBuilder::default().user(Some("root")).socket(Some(socket))
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
        self.url_with(&[])
    }

    /// With these options.
    pub(crate) fn url_with(&self, options: &[&str]) -> String {
        self.url_of("locks:secret@127.0.0.1", options)
    }

    /// With this login and host, and with what lets a client log in first after a start.
    pub(crate) fn url_of(&self, login_and_host: &str, options: &[&str]) -> String {
        let mut options = options.to_vec();
        if self.is_mysql() {
            options.push("cleartext-password=loopback");
        }
        let mut url = format!("mysql://{login_and_host}:{}/locks", self.port());
        for (option, mark) in options.into_iter().zip(['?'].into_iter().chain(std::iter::repeat('&'))) {
            url.push(mark);
            url.push_str(option);
        }
        url
    }

    /// Ends the connections of the user.
    pub(crate) async fn disconnects_the_user(&self) {
        if !self.is_mysql() {
            self.sql("KILL USER locks").await;
            return;
        }
        let mut root = self.root().await.unwrap();
        let theirs = "SELECT id FROM information_schema.PROCESSLIST WHERE user = 'locks'";
        let theirs: Vec<u64> = root.query(theirs).await.unwrap();
        for id in theirs {
            // It may have ended in the meantime.
            root.query_drop(format!("KILL {id}")).await.ok();
        }
        root.disconnect().await.unwrap();
    }
}

/// Prints that a test, or a part of it, is not run. Not by `eprintln`, whose output the harness captures while a test passes.
pub(crate) fn skipped(why: impl Display) {
    drop(writeln!(io::stderr(), "skipped: {why}"));
}

pub(crate) fn other(error: mysql_async::Error) -> io::Error {
    io::Error::other(error)
}
