//! The server process behind a connection, and its end.
//!
//! It is named by what only its own user can cause: its number, its user and the microsecond of its start. Numbers are
//! used again, starts are not. An advisory lock would be no name: each user of the server reads its number in `pg_locks`,
//! and may take it, or queue for it, in another database too.

use std::time::Duration;

use quorlock::node::NodeError;
use tokio_postgres::{Client, Error, Row};

use super::before;
use crate::settings::Settings;

/// How long to wait for the backend of the previous connection to terminate.
const LIMIT: Duration = Duration::from_millis(500);

/// The server process behind a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Backend {
    pid: i32,
    /// The OID of the user that has logged in. Everyone can read it.
    user: u32,
    /// In microseconds since 1970; `None` if it was hidden from the session, whose role has changed.
    started: Option<i64>,
}

impl Backend {
    /// Reads number, user and start from this column on.
    pub(super) fn read(row: &Row, first: usize) -> Result<Backend, Error> {
        Ok(Backend {
            pid: row.try_get(first)?,
            user: row.try_get(first + 1)?,
            started: row.try_get(first + 2)?,
        })
    }

    #[cfg(test)]
    pub(super) fn of(pid: i32) -> Backend {
        Backend { pid, user: 10, started: Some(0) }
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Terminates it and waits until it is gone: nothing sent to it is executed after that. Returns `false` if it is not
    /// gone within the bound, as when the process is stopped.
    pub(super) async fn end(self, client: &Client, settings: &Settings) -> Result<bool, NodeError> {
        let clock = settings.seams.clock();
        let until = clock.now() + LIMIT;
        // A process of this user whose start is hidden may be the one: it is waited for, and not terminated.
        let statement = "
            SELECT CASE WHEN started = $3 THEN pg_terminate_backend(pid) END FROM (
                SELECT a.pid, (extract(epoch FROM a.backend_start) * 1000000)::int8 AS started
                FROM pg_stat_get_activity($1) a WHERE a.usesysid = $2
            ) b WHERE coalesce(started = $3, true)";
        loop {
            let found =
                client.query(statement, &[&self.pid, &self.user, &self.started]).await.map_err(before)?;
            if found.is_empty() {
                return Ok(true);
            }
            if clock.now() >= until {
                return Ok(false);
            }
            clock.sleep_until(clock.now() + LIMIT / 50).await;
        }
    }
}
