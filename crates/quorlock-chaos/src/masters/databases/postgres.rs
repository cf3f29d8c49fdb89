//! Reads the tables of a PostgreSQL node.

use std::io;
use std::time::Duration;

use quorlock::protocol::SHARED_MARKER;
use quorlock_history::What;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls, Row};

/// One row for each lock and each reader, in one snapshot: key, token, remaining microseconds (null for
/// no expiry), and counter.
const HELD: &str = "
    WITH clock AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS now)
    SELECT key, token, expires - now, 0::int8 FROM quorlock.locks, clock
    UNION ALL SELECT key, NULL, NULL, counter FROM quorlock.counters
    UNION ALL
    SELECT r.key, r.token, LEAST(r.expires, l.expires) - now, 0
    FROM quorlock.readers r JOIN quorlock.locks l USING (key), clock WHERE l.token = $1";

/// Every row in use. Expired rows are deleted first, except those of waiters, whose places are remembered for a minute.
const LEFT: &str = "
    WITH clock AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS now)
    SELECT 'a lock' AS what, key FROM quorlock.locks, clock
    WHERE token IS NOT NULL AND (expires IS NULL OR expires > now)
    UNION ALL SELECT 'a reader', key FROM quorlock.readers
    UNION ALL SELECT 'a waiter', key FROM quorlock.waiters, clock WHERE expires > now
    UNION ALL SELECT 'a writer that waits for readers', key FROM quorlock.intents
    UNION ALL SELECT 'a tombstone', key FROM quorlock.tombstones";

/// The clean-up that clients do incrementally: the first call continues where the last one stopped, the
/// second one starts from the beginning.
const SWEEP: &str = "
    DO $$ BEGIN EXECUTE (
        SELECT string_agg(format('SELECT %1$s(1000000); SELECT %1$s(1000000)', oid::regproc), '; ') FROM pg_proc
        WHERE pronamespace = 'quorlock'::regnamespace AND proname LIKE '%sweep'
    ); END $$";

/// Reads the locks and their counters.
pub(super) async fn inspect(url: &str, node: &str) -> io::Result<Vec<What>> {
    let client = connect(url).await?;
    let rows = match client.query(HELD, &[&SHARED_MARKER.as_bytes()]).await {
        Ok(rows) => rows,
        // No client has used it yet.
        Err(error) if is_new(&error) => return Ok(Vec::new()),
        Err(error) => return Err(io::Error::other(error)),
    };
    Ok(rows.iter().flat_map(|row| facts(row, node)).collect())
}

fn facts(row: &Row, node: &str) -> Vec<What> {
    let (key, token): (Vec<u8>, Option<Vec<u8>>) = (row.get(0), row.get(1));
    let (left, counter): (Option<i64>, i64) = (row.get(2), row.get(3));
    let key = String::from_utf8_lossy(&key).into_owned();
    let mut facts = Vec::new();
    if let Ok(value @ 1..) = u64::try_from(counter) {
        facts.push(What::Counter { node: node.into(), resource: key.as_str().into(), value });
    }
    let remaining =
        left.map_or(Some(Duration::MAX), |left| u64::try_from(left).ok().map(Duration::from_micros));
    if let (Some(token), Some(remaining)) = (token, remaining)
        && token != SHARED_MARKER.as_bytes()
        && !remaining.is_zero()
    {
        facts.push(super::held(node, &key, &token, remaining));
    }
    facts
}

/// Returns the rows in use.
pub(super) async fn left_behind(url: &str) -> io::Result<Vec<String>> {
    let client = connect(url).await?;
    client.batch_execute(SWEEP).await.map_err(io::Error::other)?;
    let rows = client.query(LEFT, &[]).await.map_err(io::Error::other)?;
    let says = |row: &Row| {
        let (what, key): (String, Vec<u8>) = (row.get(0), row.get(1));
        format!("{what} of {}", String::from_utf8_lossy(&key))
    };
    Ok(rows.iter().map(says).collect())
}

/// Writes to the log of a server whose disk is full until its reserve is used up and writes fail.
pub(super) async fn use_up_log(url: &str) -> io::Result<()> {
    const MEGABYTE: &str = "SELECT pg_logical_emit_message(false, '', repeat('x', 1000000))";
    const MOST: usize = 64;

    // A server that accepts no clients has failed already.
    let Ok(client) = connect(url).await else { return Ok(()) };
    for _ in 0..MOST {
        if super::in_time(async { client.execute(MEGABYTE, &[]).await.map_err(io::Error::other) })
            .await
            .is_err()
        {
            return Ok(());
        }
    }
    Err(io::Error::other(format!("the server wrote {MOST} MB to a full disk")))
}

async fn connect(url: &str) -> io::Result<Client> {
    let connecting =
        super::in_time(async { tokio_postgres::connect(url, NoTls).await.map_err(io::Error::other) });
    let (client, connection) = connecting.await?;
    // Ends with the client.
    drop(tokio::spawn(connection));
    Ok(client)
}

fn is_new(error: &tokio_postgres::Error) -> bool {
    error
        .code()
        .is_some_and(|code| [&SqlState::UNDEFINED_TABLE, &SqlState::INVALID_SCHEMA_NAME].contains(&code))
}
