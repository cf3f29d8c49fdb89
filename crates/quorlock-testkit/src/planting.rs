//! What another program stores where a node keeps [`Record`]s.

use std::io;
use std::time::Duration;

use quorlock::node::Expiry;
use quorlock::node::record::{Held, Record};
use quorlock::protocol::{Token, companion, micros};

use crate::value::Value;

/// The record of a lock; `None` if something else is stored there.
pub(crate) type Stored = Option<Record>;

/// Returns the key of the lock, given that or the key of its fencing counter.
pub(crate) fn lock_of(key: &str) -> &str {
    counter_of(key).unwrap_or(key)
}

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
    if counter_of(key).is_some() {
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
    match counter_of(key) {
        Some(_) => Record { counter: 0, ..before },
        None => Record { held: None, ..before },
    }
}

/// Returns when `key` expires.
pub(crate) fn expiry(stored: &Stored, key: &str, [now, wall]: [Duration; 2]) -> Option<Expiry> {
    let Some(record) = stored else { return Some(Expiry::Never) };
    let left = |ends, now| Expiry::In(Duration::from_micros(ends).saturating_sub(now));
    if counter_of(key).is_some() {
        return (record.counter > 0).then(|| left(record.counter_ends(), wall));
    }
    record.held.as_ref().map(|held| held.ends.map_or(Expiry::Never, |ends| left(ends, now)))
}

fn counter_of(key: &str) -> Option<&str> {
    companion(key).and_then(|(lock, rest)| (rest == "fence:counter").then_some(lock))
}
