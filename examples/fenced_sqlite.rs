//! A lock cannot stop a process that is paused beyond the end of its lease; a fencing token can.
//!
//! ```sh
//! cargo run --example fenced_sqlite
//! ```
//!
//! Needs nothing else: lock servers are found or built in, and SQLite is bundled.

mod support;

use quorlock::FencingToken;
use quorlock::fence::Stale;
use rusqlite::{Connection, OptionalExtension as _, params};
use support::{Account, Check, Outcome};

fn main() -> Outcome<()> {
    quorlock_testkit::serve_if_asked();
    support::run::<Sqlite>(async || {
        let folder = tempfile::tempdir()?;
        let place = folder.path().join("account.sqlite");
        support::run_scenario::<Sqlite>(&place.to_string_lossy()).await
    })
}

struct Sqlite(Connection);

impl Account for Sqlite {
    async fn open(place: &str) -> Outcome<Sqlite> {
        Ok(Sqlite(Connection::open(place)?))
    }

    async fn create(&mut self, balance: i64) -> Outcome<()> {
        self.0.execute_batch(
            "DROP TABLE IF EXISTS account;
             CREATE TABLE account (
                 id INTEGER PRIMARY KEY,
                 balance BIGINT NOT NULL,
                 fencing_token BIGINT NOT NULL DEFAULT 0
             )",
        )?;
        self.0.execute("INSERT INTO account (id, balance) VALUES (7, ?1)", [balance])?;
        Ok(())
    }

    async fn read(&mut self, check: Check, token: FencingToken) -> Outcome<i64> {
        let balance = match check {
            Check::On => self.0.query_row(
                "UPDATE account SET fencing_token = ?1 WHERE id = 7 AND fencing_token <= ?1 RETURNING balance",
                [i64::from(token)],
                |row| row.get(0),
            ),
            Check::Off => self.0.query_row("SELECT balance FROM account WHERE id = 7", [], |row| row.get(0)),
        };
        Ok(balance.optional()?.ok_or(Stale::refused(token))?)
    }

    async fn write(&mut self, check: Check, token: FencingToken, balance: i64) -> Outcome<()> {
        match check {
            Check::On => {
                let rows = self.0.execute(
                    "UPDATE account SET balance = ?2, fencing_token = ?1 WHERE id = 7 AND fencing_token <= ?1",
                    params![i64::from(token), balance],
                )?;
                if rows == 0 {
                    return Err(Stale::refused(token).into());
                }
            }
            Check::Off => {
                self.0.execute("UPDATE account SET balance = ?1 WHERE id = 7", [balance])?;
            }
        }
        Ok(())
    }
}
