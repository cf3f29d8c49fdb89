//! The two usual ways to lock with PostgreSQL. One connection per task: a session that waits for an advisory lock can do
//! nothing else.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls};

use crate::TTL;
use crate::scenarios::MOST_TASKS;
use crate::work::Peer;

/// How often to retry while the table says that the lock is held.
const RETRY_WITHIN: Duration = Duration::from_millis(20);

const TABLE: &str = "CREATE TABLE IF NOT EXISTS locks
    (name text PRIMARY KEY, holder bigint NOT NULL, until timestamptz NOT NULL)";
/// A row whose time is over may be taken over.
const TAKE: &str = "INSERT INTO locks VALUES ($1, $2, now() + $3 * interval '1 millisecond')
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until WHERE locks.until < now()";
const GIVE: &str = "DELETE FROM locks WHERE name = $1 AND holder = $2";
/// Waits in the server, and is released with the session. These give a row each.
const ADVISORY: [&str; 2] = [
    "SELECT 1 FROM (SELECT pg_advisory_lock(hashtextextended($1, 0))) locked",
    "SELECT 1 WHERE pg_advisory_unlock(hashtextextended($1, 0))",
];

/// Sessions with their statements.
pub(super) struct Postgres {
    sessions: Vec<(Client, [tokio_postgres::Statement; 2])>,
    /// Whether the locks are rows, one for each held lock.
    rows: bool,
}

async fn connect(address: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

pub(crate) async fn version(address: &str) -> Result<String> {
    let version: String = connect(address).await?.query_one("SHOW server_version", &[]).await?.get(0);
    Ok(version.split(' ').next().unwrap_or_default().to_owned())
}

impl Postgres {
    pub(super) async fn connect(address: &str, rows: bool) -> Result<Postgres> {
        let [take, give] = if rows { [TAKE, GIVE] } else { ADVISORY };
        let mut sessions = Vec::new();
        for _ in 0..MOST_TASKS {
            let client = connect(address).await?;
            if rows && sessions.is_empty() {
                client.batch_execute(TABLE).await?;
            }
            let statements = [client.prepare(take).await?, client.prepare(give).await?];
            sessions.push((client, statements));
        }
        Ok(Postgres { sessions, rows })
    }
}

impl Peer for Postgres {
    type Held = (usize, String, i64);

    async fn acquire(&'static self, task: usize, name: &str) -> Result<Self::Held> {
        let (client, [take, _]) = self.sessions.get(task).context("more tasks than sessions")?;
        let (holder, ttl): (i64, f64) = (rand::random(), TTL.as_secs_f64() * 1000.0);
        let all: [&(dyn ToSql + Sync); 3] = [&name, &holder, &ttl];
        while client.execute(take, if self.rows { &all } else { &all[..1] }).await? == 0 {
            tokio::time::sleep(RETRY_WITHIN.mul_f64(rand::random())).await;
        }
        Ok((task, name.to_owned(), holder))
    }

    async fn release(&'static self, (task, name, holder): Self::Held) -> Result<()> {
        let (client, [_, give]) = self.sessions.get(task).context("more tasks than sessions")?;
        let all: [&(dyn ToSql + Sync); 2] = [&name, &holder];
        let rows = client.execute(give, if self.rows { &all } else { &all[..1] }).await?;
        ensure!(rows == 1, "{name} was not held by this session");
        Ok(())
    }
}
