//! The checks in SQL, in SQLite: two connections, with every interleaving of their steps.

use proptest::prelude::*;
use rusqlite::{Connection, ErrorCode, params};
use tempfile::TempDir;

use super::page::{CREATE_GUARD_TABLE, GUARD, SHOW_AND_READ, UPDATE, UPSERT, written};
use super::{goes_down, token};

const TABLES: &str = "\
CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL, fencing_token BIGINT NOT NULL DEFAULT 0);
INSERT INTO account (id, balance) VALUES (7, 100);
CREATE TABLE journal (place INTEGER PRIMARY KEY AUTOINCREMENT, token BIGINT NOT NULL);";

struct Database {
    folder: TempDir,
}

impl Database {
    fn new() -> Database {
        let database = Database { folder: tempfile::tempdir().unwrap() };
        database.connect().execute_batch(&format!("{TABLES}{};", *CREATE_GUARD_TABLE)).unwrap();
        database
    }

    fn connect(&self) -> Connection {
        let connection = Connection::open(self.folder.path().join("data")).unwrap();
        // Nothing must survive the test, and a blocked statement must fail immediately.
        connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA busy_timeout = 0").unwrap();
        connection
    }

    fn balance(&self) -> i64 {
        self.connect().query_row("SELECT balance FROM account WHERE id = 7", [], |row| row.get(0)).unwrap()
    }

    fn journal(&self) -> Vec<u64> {
        let connection = self.connect();
        let mut query = connection.prepare("SELECT token FROM journal ORDER BY place").unwrap();
        let tokens = query.query_map([], |row| row.get::<_, i64>(0)).unwrap();
        tokens.map(|token| u64::try_from(token.unwrap()).unwrap()).collect()
    }
}

fn write(connection: &Connection, statement: &str, number: u64, balance: i64) -> bool {
    let rows = connection.execute(statement, params![i64::from(token(number)), balance]).unwrap();
    written(rows as u64, token(number)).is_ok()
}

#[test]
fn a_column_refuses_late_holders_and_admits_repeats() {
    let database = Database::new();
    let (anna, ben) = (database.connect(), database.connect());
    assert!(write(&anna, &UPDATE, 33, 90));
    assert!(write(&anna, &UPDATE, 33, 90), "again, and the same value");
    assert!(write(&ben, &UPDATE, 34, 150));
    assert!(!write(&anna, &UPDATE, 33, 70));
    assert_eq!(database.balance(), 150);
}

#[test]
fn without_the_condition_the_late_write_stays() {
    let database = Database::new();
    let (anna, ben) = (database.connect(), database.connect());
    let plain = "UPDATE account SET balance = ?2, fencing_token = ?1 WHERE id = 7";
    assert!(write(&ben, plain, 34, 150) && write(&anna, plain, 33, 70));
    assert_eq!(database.balance(), 70, "Ben's money is lost");
}

#[test]
fn a_check_in_a_separate_statement_is_no_check() {
    let database = Database::new();
    let (anna, ben) = (database.connect(), database.connect());
    let fencing_token: i64 =
        anna.query_row("SELECT fencing_token FROM account WHERE id = 7", [], |row| row.get(0)).unwrap();
    assert!(fencing_token <= 33, "Anna's check passes");
    assert!(write(&ben, &UPDATE, 34, 150));
    assert!(write(&anna, "UPDATE account SET balance = ?2, fencing_token = ?1 WHERE id = 7", 33, 70));
    assert_eq!(database.balance(), 70, "Ben's money is lost");
}

#[test]
fn the_first_write_of_a_row_is_guarded_too() {
    let database = Database::new();
    let (anna, ben) = (database.connect(), database.connect());
    assert!(write(&ben, &UPSERT, 34, 150));
    assert!(!write(&anna, &UPSERT, 33, 70));
    assert!(write(&ben, &UPSERT, 34, 160));
}

#[test]
fn a_deleted_row_loses_its_token_and_the_guard_table_does_not() {
    let database = Database::new();
    let connection = database.connect();
    assert!(write(&connection, &UPSERT, 34, 150));
    connection.execute("DELETE FROM account WHERE id = 8", []).unwrap();
    assert!(write(&connection, &UPSERT, 33, 70), "no token is left to compare with");

    let guard = |number| {
        let rows = connection.execute(&GUARD, params!["account/8", i64::from(token(number))]);
        written(rows.unwrap() as u64, token(number)).is_ok()
    };
    assert!(guard(34));
    connection.execute("DELETE FROM account WHERE id = 8", []).unwrap();
    assert!(!guard(33));
}

#[test]
fn the_guards_of_two_resources_are_independent() {
    let database = Database::new();
    let connection = database.connect();
    for (resource, number) in [("a", 34), ("b", 33), ("a", 34), ("b", 33)] {
        let rows = connection.execute(&GUARD, params![resource, i64::from(token(number))]).unwrap();
        written(rows as u64, token(number)).unwrap();
    }
}

#[test]
fn every_fencing_token_is_exact_in_the_database() {
    let database = Database::new();
    let connection = database.connect();
    let most = quorlock::FencingToken::MAX;
    connection.execute(&GUARD, params!["r", i64::from(most)]).unwrap();
    let stored: i64 =
        connection.query_row("SELECT fencing_token FROM quorlock_fence", [], |row| row.get(0)).unwrap();
    assert_eq!(stored, i64::from(most));
    let one_less = connection.execute(&GUARD, params!["r", i64::from(most) - 1]).unwrap();
    let refused = written(one_less as u64, token(most.get() - 1)).unwrap_err();
    assert!(refused.to_string().contains("has a larger one, or no such row"), "{refused}");
}

/// A holder that runs a transaction, step by step.
struct Holder {
    connection: Connection,
    token: i64,
    step: usize,
}

impl Holder {
    fn step(&mut self, steps: &[&str]) {
        let Some(statement) = steps.get(self.step) else { return };
        let wants_token = statement.contains("$2") || statement.contains("?2");
        let done = if wants_token {
            self.connection.execute(statement, params!["r", self.token])
        } else {
            self.connection.execute(statement, [])
        };
        match done {
            Ok(0) if *statement == *GUARD => {
                self.connection.execute("ROLLBACK", []).unwrap();
                self.step = steps.len();
            }
            Ok(_) => self.step += 1,
            // Another transaction is open; this step is repeated.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
            Err(error) => panic!("{statement}: {error}"),
        }
    }
}

const ENTRY: &str = "INSERT INTO journal (token) SELECT ?2 WHERE ?1 = 'r'";

const UNGUARDED: &[&str] = &["BEGIN", ENTRY, ENTRY, "COMMIT"];

/// Runs the steps of the holders of these tokens in the order of `schedule`, and then to the end.
/// Returns the stored data.
fn run(steps: &[&str], tokens: &[i64], schedule: &[usize]) -> Vec<u64> {
    let database = Database::new();
    let holder = |token: &i64| Holder { connection: database.connect(), token: *token, step: 0 };
    let mut holders: Vec<Holder> = tokens.iter().map(holder).collect();
    for index in schedule {
        holders[index % tokens.len()].step(steps);
    }
    while holders.iter().any(|holder| holder.step < steps.len()) {
        for holder in &mut holders {
            holder.step(steps);
        }
    }
    database.journal()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_guard_table_orders_transactions_in_any_interleaving(
        tokens in prop::collection::vec(1..6_i64, 2..5),
        schedule in prop::collection::vec(0..4_usize, 0..40),
    ) {
        let journal = run(&["BEGIN", *GUARD, ENTRY, ENTRY, "COMMIT"], &tokens, &schedule);
        prop_assert!(!goes_down(&journal), "{:?}", journal);
        let largest = tokens.iter().max().copied().unwrap();
        prop_assert_eq!(journal.last().copied(), u64::try_from(largest).ok(), "the newest holder must be accepted");
    }
}

#[test]
fn without_the_guard_table_transactions_end_in_any_order() {
    assert_eq!(run(UNGUARDED, &[34, 33], &[0, 0, 0, 0]), [34, 34, 33, 33]);
}

/// A holder that pays in 1, by reading and then writing.
struct Payer {
    number: u64,
    read: Option<i64>,
    paid: u64,
}

impl Payer {
    /// Reads, or writes the balance computed from what was read.
    fn step(&mut self, connection: &Connection, reading: &str) {
        let token = i64::from(token(self.number));
        match self.read.take() {
            None => self.read = connection.query_row(reading, [token], |row| row.get(0)).ok(),
            Some(balance) => self.paid += u64::from(write(connection, &UPDATE, self.number, balance + 1)),
        }
    }
}

const ONLY_READ: &str = "SELECT balance FROM account WHERE id = 7 AND ?1 > 0";

/// Returns the total paid in, according to the payers and according to the account.
fn pay(reading: &str, tokens: &[u64], schedule: &[usize]) -> (i64, i64) {
    let database = Database::new();
    let connection = database.connect();
    let mut payers: Vec<Payer> = tokens.iter().map(|&number| Payer { number, read: None, paid: 0 }).collect();
    for index in schedule {
        payers[index % tokens.len()].step(&connection, reading);
    }
    let paid: u64 = payers.iter().map(|payer| payer.paid).sum();
    (100 + i64::try_from(paid).unwrap(), database.balance())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_token_checked_before_the_read_loses_no_update(
        schedule in prop::collection::vec(0..3_usize, 0..40),
    ) {
        let (reported, stored) = pay(&SHOW_AND_READ, &[33, 34, 35], &schedule);
        prop_assert_eq!(reported, stored);
    }
}

#[test]
fn a_token_checked_only_at_the_write_loses_updates() {
    // 34 reads; the late write of 33 arrives, and the store does not know of 34 yet; 34 writes.
    let (reported, stored) = pay(ONLY_READ, &[33, 34], &[0, 1, 0, 1]);
    assert_eq!((reported, stored), (102, 101), "33 believes that it has paid");
}
