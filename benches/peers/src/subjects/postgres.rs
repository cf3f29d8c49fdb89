//! The two usual ways to lock with PostgreSQL. One connection per task: a session that waits for an
//! advisory lock can do nothing else.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio_postgres::{Client, NoTls, Statement};

use super::{MOST_TASKS, TTL};
use crate::work::Peer;

/// How often to retry while the table says that the lock is held.
const RETRY_WITHIN: Duration = Duration::from_millis(20);

const TABLE: &str = "CREATE TABLE IF NOT EXISTS locks
    (name text PRIMARY KEY, holder bigint NOT NULL, until timestamptz NOT NULL)";
/// A row whose time is over may be taken over.
const TAKE: &str = "INSERT INTO locks VALUES ($1, $2, now() + $3 * interval '1 millisecond')
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until WHERE locks.until < now()";
const GIVE: &str = "DELETE FROM locks WHERE name = $1 AND holder = $2";

pub(super) struct Session {
    client: Client,
    take: Statement,
    give: Statement,
}

async fn sessions(address: &str, set_up: &str, take: &str, give: &str) -> Result<Vec<Session>> {
    let mut sessions: Vec<Session> = Vec::new();
    for number in 0..MOST_TASKS {
        let (client, connection) = tokio_postgres::connect(address, NoTls).await?;
        tokio::spawn(connection);
        if number == 0 {
            client.batch_execute(set_up).await?;
        }
        let (take, give) = (client.prepare(take).await?, client.prepare(give).await?);
        sessions.push(Session { client, take, give });
    }
    Ok(sessions)
}

pub(crate) async fn version(address: &str) -> Result<String> {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await?;
    tokio::spawn(connection);
    let version: String = client.query_one("SHOW server_version", &[]).await?.get(0);
    Ok(version.split(' ').next().unwrap_or_default().to_owned())
}

/// `pg_advisory_lock`: waits in the server, and is released with the session.
pub(super) struct Advisory(Vec<Session>);

impl Advisory {
    pub(super) async fn connect(address: &str) -> Result<Advisory> {
        let (take, give) = (
            "SELECT pg_advisory_lock(hashtextextended($1, 0))",
            "SELECT pg_advisory_unlock(hashtextextended($1, 0))",
        );
        Ok(Advisory(sessions(address, "", take, give).await?))
    }
}

impl Peer for Advisory {
    type Held = (&'static Session, String);

    async fn acquire(&'static self, task: usize, name: &str) -> Result<Self::Held> {
        let session = self.0.get(task).context("more tasks than sessions")?;
        session.client.query_one(&session.take, &[&name]).await?;
        Ok((session, name.to_owned()))
    }

    async fn release(&'static self, (session, name): Self::Held) -> Result<()> {
        let held: bool = session.client.query_one(&session.give, &[&name]).await?.get(0);
        ensure!(held, "the session did not hold {name}");
        Ok(())
    }
}

/// One row per held lock.
pub(super) struct Table(Vec<Session>);

pub(super) struct Row {
    session: &'static Session,
    name: String,
    holder: i64,
}

impl Table {
    pub(super) async fn connect(address: &str) -> Result<Table> {
        Ok(Table(sessions(address, TABLE, TAKE, GIVE).await?))
    }
}

impl Peer for Table {
    type Held = Row;

    async fn acquire(&'static self, task: usize, name: &str) -> Result<Row> {
        let session = self.0.get(task).context("more tasks than sessions")?;
        let (holder, ttl): (i64, f64) = (rand::random(), TTL.as_secs_f64() * 1000.0);
        while session.client.execute(&session.take, &[&name, &holder, &ttl]).await? == 0 {
            tokio::time::sleep(RETRY_WITHIN.mul_f64(rand::random())).await;
        }
        Ok(Row { session, name: name.to_owned(), holder })
    }

    async fn release(&'static self, Row { session, name, holder }: Row) -> Result<()> {
        let rows = session.client.execute(&session.give, &[&name, &holder]).await?;
        ensure!(rows == 1, "{name} was held by another client");
        Ok(())
    }
}
