//! Commands on strings, hashes, and keys of any type.

use std::time::Duration;

use quorlock::node::Expiry;

use super::keyspace::{Fields, Keyspace, Value};
use super::words::{Reply, counted, is, not_an_integer, number};
use crate::resp::Resp;

/// What a command does to the keys, which decides whether clients that track are notified, and whether a server
/// without free memory refuses it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    None,
    Reads,
    Writes,
    /// May need memory.
    Grows,
}

impl Access {
    /// Returns the access of a command.
    pub(super) fn of(name: &str) -> Access {
        match name {
            "GET" | "EXISTS" | "PTTL" | "ZSCORE" | "ZRANGEBYSCORE" => Access::Reads,
            "DEL" | "UNLINK" | "GETEX" | "PEXPIRE" | "PEXPIREAT" | "ZREM" | "ZREMRANGEBYRANK"
            | "ZREMRANGEBYSCORE" | "ZPOPMIN" | "ZPOPMAX" | "HDEL" => Access::Writes,
            "SET" | "SETRANGE" | "RPUSH" | "ZADD" | "ZINCRBY" | "HSET" | "HINCRBY" => Access::Grows,
            _ => Access::None,
        }
    }
}

/// The maximum length of a string, as on a server with the default configuration.
const LONGEST: usize = 512 << 20;

/// Executes one of these commands; `None` if it is another one, or has the wrong number of arguments.
pub(super) fn execute(keys: &mut Keyspace, name: &str, arguments: &[Vec<u8>]) -> Option<Reply> {
    let [key, words @ ..] = arguments else { return None };
    Some(match (name, words) {
        ("GET" | "GETEX", []) => keys.text(key).map(|text| text.map_or(Resp::Null, Resp::text)),
        ("SET", [value, options @ ..]) => set(keys, key, value, options),
        ("SETRANGE", [offset, part]) => set_range(keys, key, offset, part),
        ("RPUSH", [_, ..]) => push(keys, key, words.len()),
        ("DEL" | "UNLINK", _) => Ok(counted(arguments.iter().filter(|key| keys.delete(key)).count())),
        ("EXISTS", _) => Ok(counted(arguments.iter().filter(|key| keys.exists(key)).count())),
        ("PTTL", []) => Ok(Resp::Number(pttl(keys.expiry(key)))),
        ("PEXPIRE", [life]) => number::<i64>(life).ok_or_else(not_an_integer).map(|life| {
            let life = Duration::from_millis(u64::try_from(life).unwrap_or(0));
            Resp::Number(keys.expire(key, life).into())
        }),
        ("PEXPIREAT", [end, condition @ ..]) => expire_at(keys, key, end, condition),
        ("HSET", [_, _, ..]) if words.len().is_multiple_of(2) => keys.edit(key, |fields: &mut Fields| {
            let pairs = words.as_chunks::<2>().0.iter();
            let new = pairs.filter(|[field, value]| fields.insert(field.clone(), value.clone()).is_none());
            (counted(new.count()), true)
        }),
        ("HINCRBY", [field, by]) => add_to_field(keys, key, field, by),
        ("HDEL", [_, ..]) => keys.edit(key, |fields: &mut Fields| {
            let gone = words.iter().filter(|field| fields.remove(*field).is_some()).count();
            (counted(gone), gone > 0)
        }),
        _ => return None,
    })
}

/// `SET key value [NX|XX] [GET] [PX ms|EX s|KEEPTTL]`
fn set(keys: &mut Keyspace, key: &[u8], value: &[u8], mut words: &[Vec<u8>]) -> Reply {
    let (mut wanted_there, mut life, mut keeps, mut wants_old) = (None, None, false, false);
    loop {
        words = match words {
            [] => break,
            [word, rest @ ..] if (is(word, "NX") || is(word, "XX")) && wanted_there.is_none() => {
                wanted_there = Some(is(word, "XX"));
                rest
            }
            [word, rest @ ..] if is(word, "GET") => {
                wants_old = true;
                rest
            }
            [word, rest @ ..] if is(word, "KEEPTTL") && life.is_none() => {
                keeps = true;
                rest
            }
            [word, time, rest @ ..] if (is(word, "PX") || is(word, "EX")) && life.is_none() && !keeps => {
                let unit = if is(word, "PX") { Duration::from_millis } else { Duration::from_secs };
                match number::<i64>(time).map(u64::try_from) {
                    None => return Err(not_an_integer()),
                    Some(Err(_) | Ok(0)) => return Err("ERR invalid expire time in 'set' command".to_owned()),
                    Some(Ok(time)) => life = Some(unit(time)),
                }
                rest
            }
            [..] => return Err("ERR syntax error".to_owned()),
        };
    }
    let old = if wants_old { Some(keys.text(key)?.map_or(Resp::Null, Resp::text)) } else { None };
    let done = wanted_there.is_none_or(|there| keys.exists(key) == there);
    let value = Value::Text(value.to_vec());
    match done {
        true if keeps => keys.set_kept(key, value),
        true => keys.set(key, value, life),
        false => {}
    }
    Ok(old.unwrap_or(if done { Resp::ok() } else { Resp::Null }))
}

/// Writing nothing changes nothing.
fn set_range(keys: &mut Keyspace, key: &[u8], offset: &[u8], part: &[u8]) -> Reply {
    let offset: i64 = number(offset).ok_or_else(not_an_integer)?;
    let offset = usize::try_from(offset).map_err(|_| "ERR offset is out of range")?;
    let mut text = keys.text(key)?.map(<[u8]>::to_vec).unwrap_or_default();
    if part.is_empty() {
        return Ok(counted(text.len()));
    }
    let end = offset.checked_add(part.len()).filter(|end| *end <= LONGEST);
    let end = end.ok_or("ERR string exceeds maximum allowed size (proto-max-bulk-len)")?;
    text.resize(text.len().max(end), 0);
    if let Some(place) = text.get_mut(offset..end) {
        place.copy_from_slice(part);
    }
    let length = counted(text.len());
    keys.set_kept(key, Value::Text(text));
    Ok(length)
}

/// `RPUSH` to a free key only: enough to plant a key of the wrong type.
fn push(keys: &mut Keyspace, key: &[u8], items: usize) -> Reply {
    if keys.exists(key) {
        return Err("ERR the built-in server makes lists but does not add to them".to_owned());
    }
    keys.set(key, Value::List, None);
    Ok(counted(items))
}

/// `PEXPIREAT key ms [NX|GT]`
fn expire_at(keys: &mut Keyspace, key: &[u8], end: &[u8], condition: &[Vec<u8>]) -> Reply {
    let end = number::<i64>(end).ok_or_else(not_an_integer)?;
    let left = Duration::from_millis(u64::try_from(end).unwrap_or(0)).saturating_sub(keys.wall());
    let moves = match (condition, keys.expiry(key)) {
        ([], _) => true,
        ([_], None) => false,
        ([word], Some(Expiry::Never)) => is(word, "NX"),
        ([word], Some(Expiry::In(old))) => is(word, "GT") && old < left,
        ([_, _, ..], _) => return Err("ERR syntax error".to_owned()),
    };
    Ok(Resp::Number((moves && keys.expire(key, left)).into()))
}

fn add_to_field(keys: &mut Keyspace, key: &[u8], field: &[u8], by: &[u8]) -> Reply {
    let by = number::<i64>(by).ok_or_else(not_an_integer)?;
    keys.edit(key, |fields: &mut Fields| {
        let old = fields.get(field).map_or(Some(0), |value| number::<i64>(value));
        let sum = old.and_then(|old| old.checked_add(by));
        if let Some(sum) = sum {
            fields.insert(field.to_vec(), sum.to_string().into_bytes());
        }
        (sum.map(Resp::Number).ok_or_else(not_an_integer), sum.is_some())
    })?
}

/// Encodes the result as Redis does: -2 for a missing key, -1 for a key without expiry.
fn pttl(expiry: Option<Expiry>) -> i64 {
    match expiry {
        None => -2,
        Some(Expiry::Never) => -1,
        Some(Expiry::In(left)) => i64::try_from(left.as_millis()).unwrap_or(i64::MAX),
    }
}
