//! The tables, and the statements that read and change them.
//!
//! Only rows are locked, found by their primary key under READ COMMITTED, so that there are no gap locks; and
//! no row lock outlives the packet of statements that took it. A row is read without any lock, its change is
//! decided in [`Records`], and it is written only if its `nonce` is still the one that was read:
//! a compare-and-swap. Each write has a new random nonce, so a late write of a dead connection changes
//! nothing once a cancellation has written to the row.

use std::fmt::Write as _;
use std::sync::Arc;

use quorlock::node::record::{Change, Held, Record, Records};
use quorlock::node::{NodeError, NodeErrorKind, Reason};
use quorlock::protocol::{FencingToken, Token};

use crate::connection::{Connection, Row};
use crate::error::Failure;

/// The server's clock in microseconds since 1970, in sessions whose time zone is UTC. `UNIX_TIMESTAMP` ends
/// in 2038.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))";

/// The maximum length of a key, in bytes.
pub(crate) const LONGEST_KEY: usize = 2048;

/// One row per lock.
pub(crate) const LOCKS: &str = "quorlock_locks";
/// One row: the history of the data.
pub(crate) const HISTORY: &str = "quorlock_history";

/// The statements that create the tables.
pub(crate) const CREATE: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS quorlock_locks (name VARBINARY(2048) NOT NULL PRIMARY KEY, nonce BIGINT UNSIGNED NOT NULL, \
     token BLOB NULL, ends BIGINT UNSIGNED NULL, number BIGINT UNSIGNED NULL, wanted TINYINT UNSIGNED NOT NULL DEFAULT 0, \
     counter BIGINT UNSIGNED NOT NULL DEFAULT 0, beside MEDIUMBLOB NULL, waiters MEDIUMBLOB NULL, dead_at BIGINT UNSIGNED NOT NULL DEFAULT 0) \
     ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
    "CREATE TABLE IF NOT EXISTS quorlock_history (id TINYINT UNSIGNED NOT NULL PRIMARY KEY, history VARBINARY(64) NOT NULL, \
     server VARBINARY(512) NOT NULL, started BIGINT UNSIGNED NOT NULL, durable TINYINT UNSIGNED NOT NULL, \
     noted_at BIGINT UNSIGNED NOT NULL) ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
];

/// The columns as `information_schema` reports them, without the widths of numbers: table, column, type, key.
pub(crate) const COLUMNS: [[&str; 4]; 16] = [
    [LOCKS, "name", "varbinary(2048)", "PRI"],
    [LOCKS, "nonce", "bigint unsigned", ""],
    [LOCKS, "token", "blob", ""],
    [LOCKS, "ends", "bigint unsigned", ""],
    [LOCKS, "number", "bigint unsigned", ""],
    [LOCKS, "wanted", "tinyint unsigned", ""],
    [LOCKS, "counter", "bigint unsigned", ""],
    [LOCKS, "beside", "mediumblob", ""],
    [LOCKS, "waiters", "mediumblob", ""],
    [LOCKS, "dead_at", "bigint unsigned", ""],
    [HISTORY, "id", "tinyint unsigned", "PRI"],
    [HISTORY, "history", "varbinary(64)", ""],
    [HISTORY, "server", "varbinary(512)", ""],
    [HISTORY, "started", "bigint unsigned", ""],
    [HISTORY, "durable", "tinyint unsigned", ""],
    [HISTORY, "noted_at", "bigint unsigned", ""],
];

/// The expression for the mark in the table of locks: the nonce of a row that no lock has, and that goes with the others
/// (`TRUNCATE`). The creation time of the table stays.
pub(crate) const MARK: &str = "(SELECT nonce FROM quorlock_locks WHERE name = x'')";

/// What a connection knows of the data: which history they are, where they are, and what other servers have written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The expression for it, and its value when the connection was made.
    pub(crate) expression: String,
    pub(crate) value: String,
    /// The value of [`MARK`]. A write need not compare it: it replaces a row of the same data.
    pub(crate) mark: u64,
}

/// Reads the rows of these keys and then the clock, in one statement. Fails if the data are not those that are known:
/// the connection is as good as lost.
pub(crate) async fn read(
    connection: &mut Connection,
    keys: &[Arc<str>],
    known: &Known,
) -> Result<Records, Failure> {
    let names: Vec<String> = keys.iter().map(|key| literal(key.as_bytes())).collect();
    let statement = format!(
        "SELECT name, nonce, token, ends, number, wanted, counter, beside, waiters, NULL FROM {LOCKS} WHERE name IN ({}) \
         UNION ALL SELECT NULL, {MARK}, {}, NULL, NULL, NULL, NULL, NULL, NULL, {NOW}",
        names.join(", "),
        known.expression
    );
    let mut found = connection.run(statement).await?.into_iter().next().unwrap_or_default();
    let of_clock = found.iter().position(|row| bytes(row, 0).is_none());
    let about = of_clock.map(|place| found.swap_remove(place));
    let are_known =
        |about: &Row| number(about, 1) == Some(known.mark) && bytes(about, 2) == Some(known.value.as_bytes());
    if about.as_ref().is_some_and(|about| !are_known(about)) {
        let words = "its lock tables were emptied, restored or moved, or their files got another owner, mode or \
                     link, or it follows another server, since the connection was made";
        return Err(Failure::Lost(Reason::new(words)));
    }
    let now = about.and_then(|about| number(&about, 9));
    let now = now.ok_or_else(|| unread("rows of locks, and the time"))?;
    let mut rows = Records::at(now);
    for key in keys {
        rows.add(Arc::clone(key), None, Ok(Record::default()));
    }
    for row in &found {
        let name = bytes(row, 0).and_then(|name| str::from_utf8(name).ok());
        let key = name.and_then(|name| keys.iter().find(|key| &***key == name));
        let key = key.ok_or_else(|| unread("the rows that were asked for"))?;
        let nonce = number(row, 1).ok_or_else(|| unread("a nonce"))?;
        rows.add(Arc::clone(key), Some(nonce), record_of(row));
    }
    Ok(rows)
}

/// Decodes a row. Fails if another program has changed it.
fn record_of(row: &Row) -> Result<Record, Reason> {
    let wrong = |column| {
        Reason::new(format!(
            "the row of the key does not hold a lock: its column `{column}` was not written by quorlock"
        ))
    };
    let mut record = Record { counter: number(row, 6).ok_or_else(|| wrong("counter"))?, ..Record::default() };
    for (name, column) in [("beside", 7), ("waiters", 8)] {
        record.read(bytes(row, column).unwrap_or_default()).ok_or_else(|| wrong(name))?;
    }
    record.held = bytes(row, 2).map(|token| Held {
        token: Token::found(token),
        ends: number(row, 3),
        number: number(row, 4).and_then(FencingToken::new),
        wanted: number(row, 5).is_some_and(|wanted| wanted > 0),
        mark: None,
    });
    Ok(record)
}

/// Writes all changes or none. Returns `false` if another client has changed one of the rows since.
///
/// `nonce` must be new. A single row is one statement, which is its own transaction. Several rows are one
/// packet with a transaction that first locks all rows in the order of their keys and counts the unchanged
/// ones. With `known` nothing is written either if the data are others by now: rows that were not read for this
/// write may be of the data before.
pub(crate) async fn swap(
    connection: &mut Connection,
    changes: &[Change<'_>],
    nonce: u64,
    known: Option<&Known>,
) -> Result<bool, Failure> {
    let only = |Known { expression, value, .. }: &Known| {
        format!(" AND {expression} = {}", literal(value.as_bytes()))
    };
    let only = known.map(only).unwrap_or_default();
    let done = match changes {
        [change] => swap_one(connection, change, nonce, &only).await,
        [one, other] if one.version.is_some() && other.version.is_some() => {
            swap_both(connection, [one, other], nonce, &only).await
        }
        changes => swap_all(connection, changes, nonce, &only).await,
    };
    match done {
        Err(Failure::Refused(refusal)) if refusal.is_deadlock() || refusal.is_duplicate() => Ok(false),
        done => done,
    }
}

async fn swap_one(
    connection: &mut Connection,
    change: &Change<'_>,
    nonce: u64,
    only: &str,
) -> Result<bool, Failure> {
    let name = literal(change.key.as_bytes());
    let statement = match change.version {
        Some(before) => {
            format!(
                "UPDATE {LOCKS} SET {} WHERE name = {name} AND nonce = {before}{only}",
                set(change, nonce, LOCKS)
            )
        }
        None => format!("INSERT INTO {LOCKS} SET name = {name}, {}", set(change, nonce, LOCKS)),
    };
    Ok(connection.change(statement).await? == 1)
}

/// The usual grant, of a lock and its fencing counter. In the order of their keys, as all other writes.
async fn swap_both(
    connection: &mut Connection,
    changes: [&Change<'_>; 2],
    nonce: u64,
    only: &str,
) -> Result<bool, Failure> {
    let both = changes.iter().zip(["a", "b"]);
    let sets: Vec<String> = both.clone().map(|(change, alias)| set(change, nonce, alias)).collect();
    let are = |(change, alias): (&&Change<'_>, &str)| {
        let before = change.version.unwrap_or_default();
        format!("{alias}.name = {} AND {alias}.nonce = {before}", literal(change.key.as_bytes()))
    };
    let (sets, are) = (sets.join(", "), both.map(are).collect::<Vec<_>>().join(" AND "));
    let statement = format!("UPDATE {LOCKS} a STRAIGHT_JOIN {LOCKS} b SET {sets} WHERE {are}{only}");
    Ok(connection.change(statement).await? == 2)
}

async fn swap_all(
    connection: &mut Connection,
    changes: &[Change<'_>],
    nonce: u64,
    only: &str,
) -> Result<bool, Failure> {
    let mut packet = "SET @same = 0; START TRANSACTION".to_owned();
    for Change { key, version: before, .. } in changes {
        let name = literal(key.as_bytes());
        // An empty row is equivalent to none, and may remain.
        if before.is_none() {
            let _ = write!(packet, "; INSERT IGNORE INTO {LOCKS} SET name = {name}, nonce = 0");
        }
        let before = before.unwrap_or_default();
        let _ = write!(
            packet,
            "; SELECT COUNT(*) + @same INTO @same FROM {LOCKS} WHERE name = {name} AND nonce = {before}{only} FOR UPDATE"
        );
    }
    let all = changes.len();
    for change in changes {
        let (name, set) = (literal(change.key.as_bytes()), set(change, nonce, LOCKS));
        let _ = write!(packet, "; UPDATE {LOCKS} SET {set} WHERE name = {name} AND @same = {all}");
    }
    // After the commit, so that the result confirms it.
    packet.push_str("; COMMIT; SELECT @same");
    let sets = match connection.run(packet).await {
        Ok(sets) => sets,
        Err(Failure::Refused(refusal)) => {
            // A refused statement leaves its transaction open, unless it was a deadlock.
            connection.run("ROLLBACK".to_owned()).await?;
            return Err(Failure::Refused(refusal));
        }
        Err(lost) => return Err(lost),
    };
    let same =
        sets.last().and_then(|set| number(set.first()?, 0)).ok_or_else(|| unread("a count of rows"))?;
    Ok(same == u64::try_from(all).unwrap_or(u64::MAX))
}

/// Returns the assignments of a row's columns, in the table of this name.
fn set(Change { record, queue, .. }: &Change<'_>, nonce: u64, of: &str) -> String {
    let held = record.held.as_ref();
    let token = held.map_or_else(null, |held| literal(held.token.as_bytes()));
    let ends = held.and_then(|held| held.ends).map_or_else(null, |ends| ends.to_string());
    let number = held.and_then(|held| held.number).map_or_else(null, |number| number.to_string());
    let wanted = u8::from(held.is_some_and(|held| held.wanted));
    let beside = record.encode_entries();
    let beside = if beside.is_empty() { null() } else { literal(beside.as_bytes()) };
    let mut set = format!(
        "{of}.nonce = {nonce}, {of}.token = {token}, {of}.ends = {ends}, {of}.number = {number}, {of}.wanted = {wanted}, \
         {of}.counter = {}, {of}.beside = {beside}, {of}.dead_at = {}",
        record.counter,
        record.ends()
    );
    if *queue {
        let waiters = record.queue.encode();
        let waiters = if waiters.is_empty() { null() } else { literal(waiters.as_bytes()) };
        let _ = write!(set, ", {of}.waiters = {waiters}");
    }
    set
}

fn null() -> String {
    "NULL".to_owned()
}

/// The number of rows that a sweep examines.
const SWEPT: usize = 256;

/// Deletes dead rows among those after `key`, which is empty for the first rows.
pub(crate) async fn sweep(connection: &mut Connection, key: &str) -> Result<(), Failure> {
    let statements = format!(
        "SELECT {NOW}; SELECT name, nonce, dead_at FROM {LOCKS} WHERE name > {} ORDER BY name LIMIT {SWEPT}",
        literal(key.as_bytes())
    );
    let mut sets = connection.run(statements).await?.into_iter();
    let now = sets.next().and_then(|set| number(set.first()?, 0)).ok_or_else(|| unread("the time"))?;
    let mut packet = Vec::new();
    for row in sets.next().unwrap_or_default() {
        if let (Some(name), Some(nonce), Some(dead_at)) = (bytes(&row, 0), number(&row, 1), number(&row, 2))
            && dead_at < now
        {
            packet.push(format!("DELETE FROM {LOCKS} WHERE name = {} AND nonce = {nonce}", literal(name)));
        }
    }
    if packet.is_empty() { Ok(()) } else { connection.run(packet.join("; ")).await.map(drop) }
}

/// Returns the SQL literal of any bytes.
pub(crate) fn literal(bytes: &[u8]) -> String {
    let mut literal = "x'".to_owned();
    for byte in bytes {
        let _ = write!(literal, "{byte:02x}");
    }
    literal + "'"
}

/// Returns the number in this column; `None` if there is none.
pub(crate) fn number(row: &Row, column: usize) -> Option<u64> {
    str::from_utf8(bytes(row, column)?).ok()?.parse().ok()
}

/// Returns the bytes in this column; `None` if there are none.
pub(crate) fn bytes(row: &Row, column: usize) -> Option<&[u8]> {
    row.get(column)
}

/// Returns the text in this column; `None` if there is none.
pub(crate) fn text(row: &Row, column: usize) -> Option<String> {
    bytes(row, column).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// The error of an unreadable response. Later ones over this connection might be unreadable, too.
pub(crate) fn unread(wanted: &str) -> Failure {
    Failure::Lost(Reason::new(format!("it did not answer with {wanted}")))
}

/// Returns the error of a key that is longer than the column.
pub(crate) fn too_long(key: &str) -> Option<NodeError> {
    let reason = || Reason::new(format!("the key has {} bytes, and the maximum is {LONGEST_KEY}", key.len()));
    (key.len() > LONGEST_KEY)
        .then(|| NodeError::Failed { kind: NodeErrorKind::Unsupported, reason: reason() })
}
