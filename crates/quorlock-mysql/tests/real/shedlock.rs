//! `ShedLock`'s table in MariaDB or MySQL.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use quorlock::node::{Expiry, ask};
use quorlock_mysql::MysqlKind as Kind;
use tokio::sync::Mutex;

use crate::server::Server;

#[path = "../../../../tests/stores/shedlock.rs"]
mod table;

use table::{acquire, cancels, claim, node, vote};

struct Db(Mutex<Server>, String);

impl Db {
    const TABLE: &str = "locks.shedlock";
    /// As in `ShedLock`'s documentation, but with names that fit the contract suite.
    const COLUMNS: &str = "name VARCHAR(700) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL PRIMARY KEY, lock_until \
         TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) \
         CHARACTER SET utf8mb4 NOT NULL";
    const THEY_LOCK: &[&str] = &[
        "INSERT IGNORE INTO locks.shedlock(name, lock_until, locked_at, locked_by) VALUES('job', {later}, UTC_TIMESTAMP(3), \
         'web-1')",
        "UPDATE locks.shedlock SET lock_until = {later}, locked_at = UTC_TIMESTAMP(3), locked_by = 'web-1' WHERE name = \
         'job' AND lock_until <= UTC_TIMESTAMP(3)",
    ];
    const THEY_UNLOCK: &[&str] = &[
        "UPDATE locks.shedlock SET lock_until = IF (TIMESTAMPADD(MICROSECOND, 0, locked_at) > \
         UTC_TIMESTAMP(3), TIMESTAMPADD(MICROSECOND, 0, locked_at), UTC_TIMESTAMP(3)) WHERE name = 'job' AND locked_by = \
         'web-1'",
    ];
    const FOREVER: Option<&str> = None;
    /// Why it cannot keep some names.
    const NO_NAME: &str = "takes 700";
    const WRONG: [(&str, &str, &str); 6] = [
        (
            "a",
            "name VARCHAR(64), lock_until TIMESTAMP(3), locked_at TIMESTAMP(3), locked_by VARCHAR(255)",
            "ADD PRIMARY KEY",
        ),
        (
            "b",
            "name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP, locked_at TIMESTAMP(3), locked_by VARCHAR(255)",
            "MODIFY lock_until timestamp(3)",
        ),
        (
            "c",
            "name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP(3), locked_at TIMESTAMP(3), locked_by VARCHAR(20)",
            "MODIFY locked_by varchar(255)",
        ),
        (
            "d",
            "name VARCHAR(64) PRIMARY KEY, lock_until BIGINT, locked_at TIMESTAMP(3), locked_by VARCHAR(255)",
            "CREATE TABLE d",
        ),
        ("e", "name VARCHAR(64) PRIMARY KEY", "no column `lock_until`"),
        (
            "f",
            "name VARCHAR(64), lock_until TIMESTAMP(3), locked_at TIMESTAMP(3), locked_by VARCHAR(255), PRIMARY KEY (name, \
             locked_by)",
            "ADD PRIMARY KEY",
        ),
    ];
    const PLACE: &str = "CREATE DATABASE jobs";
    const USER: &str = "GRANT SELECT ON jobs.locks TO 'locks'@'%'";

    /// In its own time zone, like servers that were not configured.
    async fn start() -> Option<Db> {
        let server = Server::start(&["--default-time-zone=+05:30"]).await?;
        let url = server.url_with(&["layout=shedlock"]);
        Some(Db(Mutex::new(server), url))
    }

    fn url(&self, options: &str) -> String {
        format!("{}{options}", self.1)
    }

    fn url_of_user(&self, options: &str) -> String {
        self.url(options)
    }

    fn jdbc(&self) -> String {
        let address = self.1.split(['@', '/']).nth(3).unwrap();
        format!("jdbc:mariadb://{address}/locks?user=locks&password=secret&allowPublicKeyRetrieval=true")
    }

    /// Executes statements.
    async fn sql(&self, text: &str) {
        let server = self.0.lock().await;
        for statement in text.split("; ") {
            // A collation that compares trailing spaces has another name there.
            let named = if server.is_mysql() { "utf8mb4_0900_bin" } else { "utf8mb4_nopad_bin" };
            server.sql(statement.replace("utf8mb4_nopad_bin", named)).await;
        }
    }

    /// Executes a statement, and returns how many rows it has changed.
    async fn changed(&self, text: &str) -> u64 {
        let mut conn = self.0.lock().await.other().await;
        conn.query_drop(text).await.unwrap();
        let changed = conn.affected_rows();
        conn.disconnect().await.unwrap();
        changed
    }

    /// A moment, by the clock of the server.
    fn later(time: Duration) -> String {
        format!("TIMESTAMPADD(MICROSECOND, {}, UTC_TIMESTAMP(3))", time.as_micros())
    }

    fn literal(text: &str) -> String {
        let hex = text.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        format!("_utf8mb4 x'{hex}'")
    }

    /// When the lock of this literal expires, if it is held.
    async fn left(&self, name: &str) -> Option<Expiry> {
        let text = format!(
            "SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lock_until) FROM locks.shedlock WHERE name = {name} AND \
             lock_until > UTC_TIMESTAMP(6)"
        );
        let rows = self.0.lock().await.sql(text).await;
        Some(Expiry::In(Duration::from_micros(rows.first()?.get(0)?)))
    }

    async fn start_again(&self) {
        self.0.lock().await.restart_with_data().await.unwrap();
    }

    async fn loses_a_connection(&self) {
        let (node, server) = (node(&self.url("")), self.0.lock().await);
        vote(&*node, acquire(&claim("job", 1))).await;
        server.sql("UPDATE locks.shedlock SET lock_until = locked_at").await;
        // The stopped server executes what it was sent when it continues: the node has given up by then.
        server.freeze().unwrap();
        let late = claim("job", 2);
        assert!(ask(&*node, acquire(&late)).await.unwrap_err().may_have_acted());
        server.thaw().unwrap();
        cancels(&*node, &late, async || ()).await;
        let named = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'locks'";
        let named: Option<u64> = server.sql(named).await.first().unwrap().get(0);
        assert_eq!(named, Some(1), "the previous connection has ended");
    }
}
