//! Reads the tables of a MariaDB node.

use std::io;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, OptsBuilder};
use quorlock::node::record::Record;
use quorlock::protocol::SHARED_MARKER;
use quorlock_history::What;

/// Every row.
const ROWS: &str = "SELECT name, token, ends, counter, beside, waiters FROM quorlock_locks";

/// The clock of the server, in microseconds since 1970. It is read after the rows, so that no remaining
/// time is too long.
const CLOCK: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// `Table doesn't exist`
const NO_TABLE: u16 = 1146;

type Row = (Vec<u8>, Option<Vec<u8>>, Option<u64>, u64, Option<Vec<u8>>, Option<Vec<u8>>);

/// Reads the locks and their counters.
pub(super) async fn inspect(url: &str, node: &str) -> io::Result<Vec<What>> {
    let (rows, now) = rows(url).await?;
    Ok(rows.iter().flat_map(|row| facts(row, now, node)).collect())
}

fn facts((name, token, ends, counter, beside, _): &Row, now: u64, node: &str) -> Vec<What> {
    let key = String::from_utf8_lossy(name);
    let mut facts = Vec::new();
    if *counter > 0 {
        facts.push(What::Counter { node: node.into(), resource: (&*key).into(), value: *counter });
    }
    let Some(token) = token else { return facts };
    let marker = ends.unwrap_or(u64::MAX);
    let remaining =
        |ends: u64| ends.min(marker).checked_sub(now).filter(|left| *left > 0).map(Duration::from_micros);
    if token == SHARED_MARKER.as_bytes() {
        for (token, reader) in beside_of(beside.as_deref()).readers {
            if let Some(remaining) = remaining(reader.ends) {
                facts.push(super::held(node, &key, &token, remaining));
            }
        }
    } else if let Some(remaining) = remaining(u64::MAX) {
        facts.push(super::held(node, &key, token, remaining));
    }
    facts
}

/// Returns what has not expired. Expired entries are deleted when their row is used again, or by the
/// incremental clean-up of a client.
pub(super) async fn left_behind(url: &str) -> io::Result<Vec<String>> {
    let mut left = Vec::new();
    let (rows, now) = rows(url).await?;
    for (name, token, ends, _, beside, waiters) in rows {
        let key = String::from_utf8_lossy(&name);
        if token.is_some() && ends.is_none_or(|ends| ends > now) {
            left.push(format!("a lock of {key}"));
        }
        let waiting = waiting_until(waiters.as_deref()).filter(|ends| *ends > now);
        left.extend(waiting.map(|_| format!("a waiter of {key}")));
        let Record { readers, intents, tombstones, .. } = beside_of(beside.as_deref());
        let readers = readers.values().map(|entry| ("reader", entry));
        let intents = intents.values().map(|entry| ("writer", entry));
        let entries = readers.chain(intents).chain(tombstones.values().map(|entry| ("cancelled", entry)));
        left.extend(
            entries.filter(|(_, entry)| entry.ends > now).map(|(kind, _)| format!("{kind} of {key}")),
        );
    }
    Ok(left)
}

/// Parses the column `beside`.
fn beside_of(text: Option<&[u8]>) -> Record {
    Record::decode(text.unwrap_or_default()).unwrap_or_default()
}

/// Parses when waiters expire from the column `waiters`: `waiter ID SINCE ENDS CONTEXT`.
fn waiting_until(text: Option<&[u8]>) -> impl Iterator<Item = u64> {
    let text = text.and_then(|text| str::from_utf8(text).ok()).unwrap_or_default();
    let waiters = text.lines().filter_map(|line| line.strip_prefix("waiter "));
    waiters.filter_map(|waiter| waiter.split(' ').nth(2)?.parse().ok())
}

/// Reads all rows, then the time.
async fn rows(url: &str) -> io::Result<(Vec<Row>, u64)> {
    // The option that quorlock has for MySQL is none of this client.
    let url = url.split('?').next().unwrap_or(url);
    let options = OptsBuilder::from_opts(Opts::from_url(url).map_err(io::Error::other)?).prefer_socket(false);
    let asked = super::in_time(async {
        let mut conn = Conn::new(options).await.map_err(io::Error::other)?;
        let rows = conn.query(ROWS).await;
        let now: Option<u64> = conn.query_first(CLOCK).await.map_err(io::Error::other)?;
        conn.disconnect().await.map_err(io::Error::other)?;
        Ok((rows, now.unwrap_or_default()))
    });
    match asked.await? {
        (Ok(rows), now) => Ok((rows, now)),
        // No client has used it yet.
        (Err(mysql_async::Error::Server(error)), now) if error.code == NO_TABLE => Ok((Vec::new(), now)),
        (Err(error), _) => Err(io::Error::other(error)),
    }
}
