//! The checks in SQL, in PostgreSQL: which transaction waits for which, and what it then reads.

use std::io::Write as _;

use quorlock::FencingToken;
use quorlock_testkit::{Engine, until};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, NoTls};

use self::story::STORY;
use super::page::{
    CREATE_GUARD_TABLE, CREATE_SHARED_TABLE, GUARD, READ_CHECK, READ_GUARD, UPDATE, WRITE_GUARD, written,
};

#[path = "../../memory/fence/story.rs"]
mod story;

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

/// Runs all checks in turn, on one database.
#[tokio::test]
async fn the_checks_hold_in_postgresql() {
    let engine = match Engine::postgres() {
        Ok(engine) => engine,
        // Not with `eprintln`, which the harness captures while a test passes.
        Err(why) => return drop(writeln!(std::io::stderr(), "skipped: {why}")),
    };
    let server = engine.start().await.unwrap();
    let database = Database { place: server.url() };
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        println!("{isolation}");
        database.a_late_update_waits_and_finds_the_newer_token(isolation).await;
        database.the_next_holder_waits_for_the_guarded_transaction_before_it(isolation).await;
        database.a_late_guard_waits_and_is_then_refused(isolation).await;
        database.a_first_guard_is_waited_for_too(isolation).await;
        database.a_guard_that_is_rolled_back_was_not_there(isolation).await;
    }
    database.a_guard_that_refuses_still_locks_its_row().await;
    database.a_check_in_a_separate_statement_is_no_check().await;
    database.two_marks_admit_readers_and_writers_in_lock_order().await;
    database.a_reader_without_the_lock_sees_all_of_a_later_write_or_nothing().await;
}

struct Database {
    place: String,
}

impl Database {
    async fn connect(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.place, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Empty tables, and two clients.
    async fn anna_and_ben(&self, isolation: &str) -> (Client, Client) {
        let tables = "\
            DROP TABLE IF EXISTS account, quorlock_fence;
            CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, fencing_token BIGINT NOT NULL DEFAULT 0);
            INSERT INTO account (id, balance) VALUES (7, 100);";
        let anna = self.connect().await;
        anna.batch_execute(&format!("{tables}{}", *CREATE_GUARD_TABLE)).await.unwrap();
        let ben = self.connect().await;
        for client in [&anna, &ben] {
            client
                .batch_execute(&format!("SET default_transaction_isolation = '{isolation}'"))
                .await
                .unwrap();
        }
        (anna, ben)
    }

    /// Sends a statement that has to wait for a lock, and returns once it waits.
    async fn send(&self, client: Client, statement: &'static str, number: u64, what: i64) -> Sent {
        let task = tokio::spawn(async move {
            let rows = if statement == *GUARD {
                guard(&client, number).await
            } else {
                client.execute(statement, &[&i64::from(token(number)), &what]).await
            };
            (client, rows)
        });
        let look = self.connect().await;
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let waits = async || look.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 1;
        until("a statement that waits for a lock", waits).await;
        Sent { task, number }
    }

    async fn balance(&self) -> i64 {
        self.connect().await.query_one("SELECT balance FROM account", &[]).await.unwrap().get(0)
    }

    async fn two_marks_admit_readers_and_writers_in_lock_order(&self) {
        let client = self.connect().await;
        client.batch_execute(&CREATE_SHARED_TABLE).await.unwrap();
        client.batch_execute(&CREATE_SHARED_TABLE).await.unwrap();
        for (writes, number, is_let_in) in STORY {
            let guard = if writes { *WRITE_GUARD } else { *READ_GUARD };
            let rows = client.execute(guard, &[&"account/7", &i64::from(token(number))]).await.unwrap();
            assert_eq!(written(rows, token(number)).is_ok(), is_let_in, "{number}");
        }
    }

    /// Its guard is in a transaction of its own, before the one that reads.
    async fn a_reader_without_the_lock_sees_all_of_a_later_write_or_nothing(&self) {
        let (mut reader, writer) = self.anna_and_ben("READ COMMITTED").await;
        reader.batch_execute("DELETE FROM quorlock_fence_shared").await.unwrap();
        let show = async |client: &Client, guard: &str, number: u64| {
            let rows = client.execute(guard, &[&"account/7", &i64::from(token(number))]).await.unwrap();
            written(rows, token(number)).unwrap();
        };
        show(&reader, *READ_GUARD, 34).await;
        let reading = async |reader: &mut Client| {
            reader.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
            let admitted = reader.query(*READ_CHECK, &[&"account/7", &34_i64]).await.unwrap();
            !admitted.is_empty()
        };
        assert!(reading(&mut reader).await);
        writer.batch_execute("BEGIN").await.unwrap();
        show(&writer, *WRITE_GUARD, 35).await;
        writer.batch_execute("UPDATE account SET balance = 70; COMMIT").await.unwrap();
        let balance: i64 = reader.query_one("SELECT balance FROM account", &[]).await.unwrap().get(0);
        assert_eq!(balance, 100, "as it was when the reader was admitted");
        reader.batch_execute("COMMIT").await.unwrap();
        assert!(!reading(&mut reader).await, "it is late now");
    }

    async fn a_late_update_waits_and_finds_the_newer_token(&self, isolation: &str) {
        let (anna, ben) = self.anna_and_ben(isolation).await;
        begin(&ben).await;
        ben.execute(*UPDATE, &[&34_i64, &150_i64]).await.unwrap();
        begin(&anna).await;
        let late = self.send(anna, *UPDATE, 33, 70).await;
        ben.batch_execute("COMMIT").await.unwrap();
        late.refused(isolation).await;
        assert_eq!(self.balance().await, 150);
    }

    async fn the_next_holder_waits_for_the_guarded_transaction_before_it(&self, isolation: &str) {
        let (anna, ben) = self.anna_and_ben(isolation).await;
        guard(&anna, 32).await.unwrap();
        begin(&anna).await;
        written(guard(&anna, 33).await.unwrap(), token(33)).unwrap();
        begin(&ben).await;
        let next = self.send(ben, *GUARD, 34, 0).await;
        anna.batch_execute("UPDATE account SET balance = balance - 30; COMMIT").await.unwrap();
        let (ben, rows) = next.task.await.unwrap();
        if isolation == "READ COMMITTED" {
            written(rows.unwrap(), token(34)).unwrap();
        } else {
            // The client must run the transaction again.
            assert_eq!(rows.unwrap_err().code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE));
            ben.batch_execute("ROLLBACK; BEGIN").await.unwrap();
            written(guard(&ben, 34).await.unwrap(), token(34)).unwrap();
        }
        let read: i64 = ben.query_one("SELECT balance FROM account", &[]).await.unwrap().get(0);
        assert_eq!(read, 70, "a read after the guard sees the previous transaction");
    }

    async fn a_late_guard_waits_and_is_then_refused(&self, isolation: &str) {
        let (anna, ben) = self.anna_and_ben(isolation).await;
        guard(&anna, 33).await.unwrap();
        begin(&ben).await;
        guard(&ben, 34).await.unwrap();
        begin(&anna).await;
        let late = self.send(anna, *GUARD, 33, 0).await;
        ben.batch_execute("COMMIT").await.unwrap();
        late.refused(isolation).await;
    }

    async fn a_first_guard_is_waited_for_too(&self, isolation: &str) {
        let (anna, ben) = self.anna_and_ben(isolation).await;
        begin(&ben).await;
        guard(&ben, 34).await.unwrap();
        begin(&anna).await;
        let late = self.send(anna, *GUARD, 33, 0).await;
        ben.batch_execute("COMMIT").await.unwrap();
        late.refused(isolation).await;
    }

    async fn a_guard_that_is_rolled_back_was_not_there(&self, isolation: &str) {
        let (anna, ben) = self.anna_and_ben(isolation).await;
        begin(&ben).await;
        guard(&ben, 34).await.unwrap();
        begin(&anna).await;
        let late = self.send(anna, *GUARD, 33, 0).await;
        ben.batch_execute("ROLLBACK").await.unwrap();
        let (_anna, rows) = late.task.await.unwrap();
        written(rows.unwrap(), token(33)).expect("34 has written nothing yet");
    }

    async fn a_guard_that_refuses_still_locks_its_row(&self) {
        let (anna, ben) = self.anna_and_ben("READ COMMITTED").await;
        guard(&ben, 34).await.unwrap();
        begin(&anna).await;
        written(guard(&anna, 33).await.unwrap(), token(33)).unwrap_err();
        let next = self.send(ben, *GUARD, 34, 0).await;
        anna.batch_execute("ROLLBACK").await.unwrap();
        written(next.task.await.unwrap().1.unwrap(), token(34)).unwrap();
    }

    async fn a_check_in_a_separate_statement_is_no_check(&self) {
        let (anna, ben) = self.anna_and_ben("READ COMMITTED").await;
        begin(&anna).await;
        let fencing_token: i64 =
            anna.query_one("SELECT fencing_token FROM account", &[]).await.unwrap().get(0);
        assert!(fencing_token <= 33, "Anna's check passes");
        ben.execute(*UPDATE, &[&34_i64, &150_i64]).await.unwrap();
        anna.batch_execute("UPDATE account SET balance = 70, fencing_token = 33; COMMIT").await.unwrap();
        assert_eq!(self.balance().await, 70, "Ben's money is lost");
    }
}

/// A statement that is waiting.
struct Sent {
    task: JoinHandle<(Client, Result<u64, Error>)>,
    number: u64,
}

impl Sent {
    /// It writes nothing: it finds the newer token, or a serialization failure.
    async fn refused(self, isolation: &str) {
        let (_client, rows) = self.task.await.unwrap();
        if isolation == "READ COMMITTED" {
            written(rows.unwrap(), token(self.number)).unwrap_err();
        } else {
            assert_eq!(rows.unwrap_err().code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE));
        }
    }
}

async fn begin(client: &Client) {
    client.batch_execute("BEGIN").await.unwrap();
}

async fn guard(client: &Client, number: u64) -> Result<u64, Error> {
    client.execute(*GUARD, &[&"account/7", &i64::from(token(number))]).await
}
