//! The scenario of `fenced_sqlite`, with the account in PostgreSQL.
//!
//! ```sh
//! cargo run --example fenced_postgres
//! ```
//!
//! Starts a server of its own, if PostgreSQL is installed.

mod support;

use quorlock::FencingToken;
use quorlock::fence::Stale;
use quorlock_testkit::Engine;
use support::{Account, Check, Outcome};
use tokio_postgres::{Client, NoTls};

fn main() -> Outcome<()> {
    quorlock_testkit::serve_if_asked();
    support::run::<Postgres>(async || {
        let database = Engine::postgres()?.start().await?;
        support::run_scenario::<Postgres>(&database.url()).await
    })
}

struct Postgres(Client);

impl Account for Postgres {
    async fn open(place: &str) -> Outcome<Postgres> {
        let (client, connection) = tokio_postgres::connect(place, NoTls).await?;
        // Ends with the client. Its errors are returned to the query that is waiting.
        tokio::spawn(connection);
        Ok(Postgres(client))
    }

    async fn create(&mut self, balance: i64) -> Outcome<()> {
        self.0
            .batch_execute(
                "DROP TABLE IF EXISTS account;
                 CREATE TABLE account (
                     id BIGINT PRIMARY KEY,
                     balance BIGINT NOT NULL,
                     fencing_token BIGINT NOT NULL DEFAULT 0
                 )",
            )
            .await?;
        self.0.execute("INSERT INTO account (id, balance) VALUES (7, $1)", &[&balance]).await?;
        Ok(())
    }

    async fn read(&mut self, check: Check, token: FencingToken) -> Outcome<i64> {
        let row = match check {
            Check::On => {
                let statement = "UPDATE account SET fencing_token = $1 WHERE id = 7 AND fencing_token <= $1 RETURNING balance";
                self.0.query_opt(statement, &[&i64::from(token)]).await?.ok_or(Stale::refused(token))?
            }
            Check::Off => self.0.query_one("SELECT balance FROM account WHERE id = 7", &[]).await?,
        };
        Ok(row.try_get(0)?)
    }

    async fn write(&mut self, check: Check, token: FencingToken, balance: i64) -> Outcome<()> {
        match check {
            Check::On => {
                let statement = "UPDATE account SET balance = $2, fencing_token = $1 WHERE id = 7 AND fencing_token <= $1";
                let rows = self.0.execute(statement, &[&i64::from(token), &balance]).await?;
                if rows == 0 {
                    return Err(Stale::refused(token).into());
                }
            }
            Check::Off => {
                self.0.execute("UPDATE account SET balance = $1 WHERE id = 7", &[&balance]).await?;
            }
        }
        Ok(())
    }
}
