//! The check of fencing tokens in `MariaDB` and `MySQL`, as `docs/fencing-checks.md` has it: what a transaction reads after
//! its guard.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Row};
use quorlock::FencingToken;
use quorlock_testkit::until;
use tokio::task::JoinHandle;

use crate::server::Server;

#[path = "../../../../tests/memory/fence/page.rs"]
mod page;

use page::{CREATE_GUARD_TABLE, MYSQL_GUARD, UPDATE, written};

const READ: &str = "SELECT balance FROM account WHERE id = 7";
const READ_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// Runs all checks in turn, on one server.
#[tokio::test]
async fn the_checks_hold_in_mariadb() {
    let Some(server) = Server::start(&[]).await else { return };
    let database = Database { server };
    database.a_column_refuses_late_holders_and_admits_repeats().await;
    database.a_late_guard_waits_and_is_then_refused().await;
    database.a_guard_that_comes_first_sees_the_previous_holder().await;
    database.what_was_read_before_the_guard_hides_the_previous_holder().await;
    database.a_cure_of_the_page_shows_the_previous_holder().await;
    database.snapshot_isolation_fails_the_guard().await;
}

struct Database {
    server: Server,
}

impl Database {
    async fn connect(&self) -> Conn {
        let mut conn = Conn::new(self.server.opts().client_found_rows(true)).await.unwrap();
        conn.query_drop("USE locks").await.unwrap();
        if self.has_snapshot_isolation().await {
            conn.query_drop("SET innodb_snapshot_isolation = OFF").await.unwrap();
        }
        conn
    }

    async fn has_snapshot_isolation(&self) -> bool {
        !self.server.sql("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'").await.is_empty()
    }

    /// New tables, and two clients.
    async fn anna_and_ben(&self) -> (Conn, Conn) {
        let (mut anna, ben) = (self.connect().await, self.connect().await);
        anna.query_drop("DROP TABLE IF EXISTS account, quorlock_fence").await.unwrap();
        let table = "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, fencing_token BIGINT NOT NULL DEFAULT 0)";
        anna.query_drop(table).await.unwrap();
        anna.query_drop("INSERT INTO account (id, balance) VALUES (7, 100)").await.unwrap();
        anna.query_drop(CREATE_GUARD_TABLE.replace("TEXT", "VARBINARY(255)")).await.unwrap();
        anna.query_drop("INSERT INTO quorlock_fence VALUES ('account/7', 0)").await.unwrap();
        (anna, ben)
    }

    /// Sends a guard that has to wait for a lock, and returns once it waits.
    async fn send_guard(&self, mut conn: Conn, number: i64) -> JoinHandle<(Conn, Result<u64, Error>)> {
        let task = tokio::spawn(async move {
            let rows = guard(&mut conn, number).await;
            (conn, rows)
        });
        // `INNODB_TRX` stays as it was for as long as it is read more often than every 0.1 s.
        let waits = |status: Row| status.get::<String, _>("Status").unwrap().contains("LOCK WAIT");
        let status = async || self.server.sql("SHOW ENGINE INNODB STATUS").await;
        until("a guard that waits", async || status().await.into_iter().any(waits)).await;
        task
    }

    /// Ben begins by these statements; Anna, with 33, takes 30 from the balance, and Ben's guard with 34 waits for her.
    /// Returns what it got.
    async fn meet(&self, beginning: &[&str]) -> (Conn, Result<u64, Error>) {
        let (mut anna, mut ben) = self.anna_and_ben().await;
        for statement in beginning {
            ben.query_drop(*statement).await.unwrap();
        }
        anna.query_drop("BEGIN").await.unwrap();
        accepted(guard(&mut anna, 33).await, 33);
        anna.query_drop("UPDATE account SET balance = balance - 30").await.unwrap();
        let waits = self.send_guard(ben, 34).await;
        anna.query_drop("COMMIT").await.unwrap();
        waits.await.unwrap()
    }

    async fn a_column_refuses_late_holders_and_admits_repeats(&self) {
        let (mut anna, _ben) = self.anna_and_ben().await;
        for (number, balance, is_let_in) in [(33, 90, true), (33, 90, true), (34, 150, true), (33, 70, false)]
        {
            let statement = UPDATE.replace("$1", &number.to_string()).replace("$2", &balance.to_string());
            anna.query_drop(statement).await.unwrap();
            let rows = written(anna.affected_rows(), token(number));
            assert_eq!(rows.is_ok(), is_let_in, "{number} {balance}");
        }
        assert_eq!(read(&mut anna, READ).await, 150);
    }

    async fn a_late_guard_waits_and_is_then_refused(&self) {
        let (anna, mut ben) = self.anna_and_ben().await;
        ben.query_drop("BEGIN").await.unwrap();
        accepted(guard(&mut ben, 34).await, 34);
        let late = self.send_guard(anna, 33).await;
        ben.query_drop("COMMIT").await.unwrap();
        let (_anna, rows) = late.await.unwrap();
        written(rows.unwrap(), token(33)).unwrap_err();
        accepted(guard(&mut ben, 34).await, 34);
    }

    async fn a_guard_that_comes_first_sees_the_previous_holder(&self) {
        let (mut ben, rows) = self.meet(&["BEGIN"]).await;
        accepted(rows, 34);
        assert_eq!(read(&mut ben, READ).await, 70);
    }

    async fn what_was_read_before_the_guard_hides_the_previous_holder(&self) {
        for beginning in
            [&["BEGIN", "SELECT COUNT(*) FROM account"][..], &["START TRANSACTION WITH CONSISTENT SNAPSHOT"]]
        {
            let (mut ben, rows) = self.meet(beginning).await;
            accepted(rows, 34);
            assert_eq!(read(&mut ben, READ).await, 100, "the page warns of what no longer happens");
        }
    }

    async fn a_cure_of_the_page_shows_the_previous_holder(&self) {
        let for_update = &*format!("{READ} FOR UPDATE");
        for (beginning, reading) in
            [(&[READ_COMMITTED, "BEGIN", READ][..], READ), (&["BEGIN", READ], for_update)]
        {
            let (mut ben, rows) = self.meet(beginning).await;
            accepted(rows, 34);
            assert_eq!(read(&mut ben, reading).await, 70, "{beginning:?} {reading}");
        }
    }

    async fn snapshot_isolation_fails_the_guard(&self) {
        if !self.has_snapshot_isolation().await {
            return;
        }
        let (mut ben, rows) = self.meet(&["SET innodb_snapshot_isolation = ON", "BEGIN", READ]).await;
        assert!(matches!(&rows, Err(Error::Server(refused)) if refused.code == 1020), "{rows:?}");
        ben.query_drop("ROLLBACK").await.unwrap();
        ben.query_drop("BEGIN").await.unwrap();
        accepted(guard(&mut ben, 34).await, 34);
        assert_eq!(read(&mut ben, READ).await, 70);
    }
}

fn token(number: i64) -> FencingToken {
    FencingToken::new(number.try_into().unwrap()).unwrap()
}

fn accepted(rows: Result<u64, Error>, number: i64) {
    written(rows.unwrap(), token(number)).unwrap();
}

async fn guard(conn: &mut Conn, number: i64) -> Result<u64, Error> {
    conn.exec_drop(*MYSQL_GUARD, (number, "account/7", number)).await?;
    Ok(conn.affected_rows())
}

async fn read(conn: &mut Conn, statement: &str) -> i64 {
    conn.query_first(statement).await.unwrap().unwrap()
}
