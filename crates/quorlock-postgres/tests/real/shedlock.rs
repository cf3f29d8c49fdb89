//! `ShedLock`'s table in PostgreSQL.

use std::time::Duration;

use quorlock::node::{Expiry, ask};
use quorlock_postgres::PostgresKind as Kind;
use quorlock_testkit::until;

use crate::support::{Server, server, waits};

#[path = "../../../../tests/stores/shedlock.rs"]
mod table;

use table::{acquire, cancels, claim, node, vote};

struct Db(Server);

impl Db {
    const TABLE: &str = "shedlock";
    /// As in `ShedLock`'s documentation, but with room for the long names of the contract suite.
    const COLUMNS: &str = "name varchar(1024) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, \
                           locked_by varchar(255) NOT NULL";
    const THEY_LOCK: &[&str] = &[
        "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES('job', {later}, \
         timezone('utc', CURRENT_TIMESTAMP), 'web-1') ON CONFLICT (name) DO UPDATE SET lock_until = {later}, locked_at = \
         timezone('utc', CURRENT_TIMESTAMP), locked_by = 'web-1' WHERE shedlock.name = 'job' AND shedlock.lock_until <= \
         timezone('utc', CURRENT_TIMESTAMP)",
    ];
    const THEY_UNLOCK: &[&str] =
        &["UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE name = 'job' \
         AND locked_by = 'web-1'"];
    const FOREVER: Option<&str> = Some("'infinity'");
    /// Why it cannot keep some names.
    const NO_NAME: &str = "\\0";
    const WRONG: [(&str, &str, &str); 5] = [
        (
            "a",
            "name varchar(64), lock_until timestamp, locked_at timestamp, locked_by text",
            "ADD PRIMARY KEY",
        ),
        ("b", "name text PRIMARY KEY, lock_until timestamptz, locked_at timestamp, locked_by text", "zone"),
        (
            "c",
            "name text PRIMARY KEY, lock_until timestamp(0), locked_at timestamp, locked_by text",
            "ALTER lock_until TYPE timestamp(3)",
        ),
        (
            "d",
            "name text PRIMARY KEY, lock_until timestamp, locked_at timestamp, locked_by varchar(20)",
            "ALTER locked_by TYPE varchar(255)",
        ),
        ("e", "name text PRIMARY KEY", "CREATE TABLE e"),
    ];
    const PLACE: &str = "CREATE SCHEMA jobs";
    const USER: &str = "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA jobs TO app";

    fn start() -> impl Future<Output = Option<Db>> {
        std::future::ready(server().map(Db))
    }

    fn url(&self, options: &str) -> String {
        self.0.url(&format!("&layout=shedlock{options}"))
    }

    fn url_of_user(&self, options: &str) -> String {
        self.url(options).replace("postgres@", "app@")
    }

    fn jdbc(&self) -> String {
        let (address, password) = (self.0.address(), self.0.engine().password());
        format!("jdbc:postgresql://{address}/postgres?user=postgres&password={password}&sslmode=disable")
    }

    /// Executes statements.
    async fn sql(&self, text: &str) {
        self.0.client().await.batch_execute(text).await.unwrap();
    }

    /// Executes a statement, and returns how many rows it has changed.
    async fn changed(&self, text: &str) -> u64 {
        self.0.client().await.execute(text, &[]).await.unwrap()
    }

    /// A moment, by the clock of the server.
    fn later(time: Duration) -> String {
        format!("(timezone('utc', clock_timestamp()) + interval '{} us')", time.as_micros())
    }

    fn literal(text: &str) -> String {
        let hex = text.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        format!("convert_from('\\x{hex}', 'UTF8')")
    }

    /// When the lock of this literal expires, if it is held.
    async fn left(&self, name: &str) -> Option<Expiry> {
        let text = format!(
            "SELECT CASE WHEN isfinite(lock_until) THEN
                (extract(epoch FROM lock_until - timezone('utc', clock_timestamp())) * 1000)::int8 END
            FROM shedlock WHERE name = {name} AND lock_until > timezone('utc', clock_timestamp())"
        );
        let row = self.0.client().await.query_opt(&text, &[]).await.unwrap()?;
        let left = |millis| Duration::from_millis(u64::try_from(millis).unwrap_or_default());
        Some(row.get::<_, Option<i64>>(0).map_or(Expiry::Never, |millis| Expiry::In(left(millis))))
    }

    async fn start_again(&self) {
        self.0.restart_with_data().await.unwrap();
    }

    async fn loses_a_connection(&self) {
        let (proxy, url) = self.0.behind_proxy().await;
        let node = node(&format!("{url}&layout=shedlock"));
        vote(&*node, acquire(&claim("job", 1))).await;
        self.sql("UPDATE shedlock SET lock_until = locked_at").await;
        // Another transaction locks the row, so that our statement has been sent and waits.
        let other = self.0.client().await;
        other.batch_execute("BEGIN; UPDATE shedlock SET name = name").await.unwrap();
        let late = claim("job", 2);
        let (asked, ()) = futures::join!(ask(&*node, acquire(&late)), async {
            let observer = self.0.client().await;
            until("the statement waits", async || waits(&observer).await).await;
            proxy.cut();
        });
        assert!(asked.unwrap_err().may_have_acted(), "the connection ended before the answer");
        // The new statement also waits for the row, until that transaction ends.
        cancels(&*node, &late, async || other.batch_execute("ROLLBACK").await.unwrap()).await;
    }
}
