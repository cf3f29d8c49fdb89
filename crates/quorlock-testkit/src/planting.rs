//! What another program stores where a node keeps [`Record`]s.

use std::io;
use std::time::Duration;

use quorlock::node::Expiry;
use quorlock::node::record::{Held, Record};
use quorlock::protocol::{Token, companion, micros};

use crate::value::Value;

/// The record of a lock; `None` if something else is stored there.
pub(crate) type Stored = Option<Record>;

/// Returns what is stored after a value was stored under `key`.
pub(crate) fn plant(
    before: Stored,
    key: &str,
    value: Value,
    expiry: Expiry,
    now: Duration,
) -> io::Result<Stored> {
    let Some(mut record) = before else {
        let error = "the store has something else under this key";
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    };
    if is_counter(key) {
        record.counter = if let Value::Number(number) = value { number } else { u64::MAX };
        return Ok(Some(record));
    }
    let Value::Text(token) = value else { return Ok(None) };
    let ends = if let Expiry::In(left) = expiry { Some(micros(now + left)) } else { None };
    record.held = Some(Held { token: Token::found(&token), ends, number: None, wanted: false, mark: None });
    Ok(Some(record))
}

/// Returns what is stored after `key` was deleted.
pub(crate) fn remove(before: Stored, key: &str) -> Record {
    let before = before.unwrap_or_default();
    if is_counter(key) { Record::default() } else { Record { held: None, ..before } }
}

/// Returns when `key` expires.
pub(crate) fn expiry(stored: &Stored, now: Duration) -> Option<Expiry> {
    let Some(record) = stored else { return Some(Expiry::Never) };
    let left = |ends, now| Expiry::In(Duration::from_micros(ends).saturating_sub(now));
    if record.counter > 0 {
        return Some(Expiry::Never);
    }
    record.held.as_ref().map(|held| held.ends.map_or(Expiry::Never, |ends| left(ends, now)))
}

fn is_counter(key: &str) -> bool {
    companion(key).is_some_and(|(_, rest)| rest.starts_with("fence:"))
}
