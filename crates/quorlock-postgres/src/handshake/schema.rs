//! Creates the schema, and checks an existing one.

use quorlock::node::{Access, NodeError, NodeErrorKind};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::before;
use super::server::Server;
use crate::error::{failed, reason};

/// The version of the schema that this program creates and supports.
const VERSION: i32 = 1;

/// Creates the schema.
pub(super) async fn create(client: &Client, server: &Server) -> Result<(), NodeError> {
    // One client at a time; the others then find the schema.
    let script = format!(
        "BEGIN; SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '5s'; SELECT pg_advisory_xact_lock(8102099357864587376);
         {}; COMMIT",
        crate::SCHEMA
    );
    let Err(error) = client.batch_execute(&script).await else { return Ok(()) };
    drop(client.batch_execute("ROLLBACK").await);
    let code = error.code().cloned();
    if code == Some(SqlState::DUPLICATE_SCHEMA) {
        return Ok(());
    }
    if code == Some(SqlState::INSUFFICIENT_PRIVILEGE) {
        let (user, database) = (quoted(&server.user), quoted(&server.database));
        let words = format!(
            "there is no schema `quorlock` in the database yet, and the user may not create it: `GRANT CREATE ON DATABASE \
             {database} TO {user}` for the first use, or run the script of docs/postgres.md as another user and `GRANT \
             USAGE ON SCHEMA quorlock TO {user}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA quorlock TO \
             {user}`"
        );
        let reason = reason(words, &error);
        return Err(NodeError::Failed { kind: NodeErrorKind::PermissionDenied(Access::Operation), reason });
    }
    Err(before(error))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The columns of all tables that the script creates.
const COLUMNS: &str = "histories.name:text histories.since:bigint intents.expires:bigint intents.key:bytea \
                       intents.waiter:bytea locks.buried:bigint locks.counter:bigint locks.expires:bigint locks.key:bytea \
                       locks.number:bigint locks.queued:boolean locks.released:bigint locks.token:bytea \
                       locks.told:bigint locks.wanted:smallint max_ttls.expires:bigint \
                       max_ttls.millis:bigint max_ttls.prefix:bytea meta.swept:bytea meta.version:integer \
                       readers.attempt:bytea readers.expires:bigint readers.key:bytea readers.token:bytea \
                       tombstones.attempt:bytea tombstones.expires:bigint tombstones.key:bytea \
                       waiters.channel:text waiters.context:bytea waiters.expires:bigint waiters.key:bytea waiters.since:bigint \
                       waiters.turn_key:bytea waiters.waiter:bytea";

/// Checks that the schema is the one that this program creates.
pub(super) async fn check_schema(client: &Client) -> Result<(), NodeError> {
    let columns = client.query_one(
        "SELECT string_agg(c.relname || '.' || a.attname || ':' || format_type(a.atttypid, NULL), ' '
                ORDER BY c.relname COLLATE \"C\", a.attname COLLATE \"C\"),
            coalesce(bool_and(c.relpersistence = 'p'), false)
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         WHERE c.relnamespace = to_regnamespace('quorlock') AND c.relkind IN ('r', 'p')",
        &[],
    );
    let version = client.query_opt("SELECT version FROM quorlock.meta", &[]);
    let (columns, version) = futures::join!(columns, version);
    let columns = columns.map_err(before)?;
    let (found, logged): (Option<String>, bool) =
        (columns.try_get(0).map_err(before)?, columns.try_get(1).map_err(before)?);
    let version: Option<i32> = match version {
        Ok(row) => row.map(|row| row.try_get(0)).transpose().map_err(before)?,
        Err(error)
            if [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN]
                .iter()
                .any(|code| error.code() == Some(code)) =>
        {
            None
        }
        Err(error) => return Err(before(error)),
    };
    if let Some(newer) = version.filter(|version| *version > VERSION) {
        let words = format!(
            "the schema `quorlock` has version {newer}, created by a newer program, and this one supports version \
             {VERSION}: update this program"
        );
        return Err(failed(NodeErrorKind::Unsupported, words));
    }
    if version != Some(VERSION) || found.as_deref() != Some(COLUMNS) {
        let words = "the schema `quorlock` is not the one that this program creates: rename it, or drop it while no \
                     lock is held, and it is created again on the next use";
        return Err(failed(NodeErrorKind::Misconfigured, words));
    }
    if !logged {
        let words = "a table of the schema `quorlock` is unlogged, so that a crash empties it: `ALTER TABLE … SET LOGGED`";
        return Err(failed(NodeErrorKind::Misconfigured, words));
    }
    Ok(())
}
