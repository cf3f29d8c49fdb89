//! Commands on sorted sets, hashes and parts of strings, with integer scores.

use std::str::FromStr;

use quorlock::node::Expiry;
use quorlock::protocol::Moment;

use super::Shared;
use super::words::{is, millis, not_an_integer};
use crate::resp::Resp;
use crate::store::{Scores, SetLife, SetOptions, Store, Value};

/// Executes one of these commands; `None` for any other.
pub(super) fn sorted(shared: &Shared, name: &str, arguments: &[Vec<u8>]) -> Option<Resp> {
    let ([key, words @ ..], now, wall) = (arguments, shared.now(), shared.clock.wall()) else { return None };
    let mut store = shared.store();
    let store = &mut *store;
    let answer = match (name, words) {
        ("SETRANGE", [offset, part]) => set_range(store, now, key, offset, part),
        ("PEXPIREAT", [end, condition @ ..]) => match (millis(end), condition) {
            (None, _) => Ok(not_an_integer()),
            (Some(end), []) => Ok(Resp::Number(store.expire_at(now, key, wall, end).into())),
            (Some(end), [condition]) => {
                let moves = match store.pttl(now, key) {
                    None => false,
                    Some(Expiry::Never) => is(condition, "NX"),
                    Some(Expiry::In(left)) => is(condition, "GT") && wall + left < end,
                };
                Ok(Resp::Number((moves && store.expire_at(now, key, wall, end)).into()))
            }
            (Some(_), _) => return None,
        },
        ("ZADD", _) => add(store, now, key, words),
        ("ZSCORE", [member]) => store.scores(now, key).map(|scores| score(scores.get(member))),
        ("ZINCRBY", [by, member]) => add_to(store, now, key, by, member),
        ("ZREM", [_, ..]) => remove(store, now, key, |_, member, _| words.contains(member)),
        ("ZREMRANGEBYRANK", [first, last]) => match (number::<i64>(first), number::<i64>(last)) {
            (Some(first), Some(last)) => {
                remove(store, now, key, |rank, _, count| is_between(rank, first, last, count))
            }
            _ => Ok(not_an_integer()),
        },
        ("ZRANGEBYSCORE" | "ZREMRANGEBYSCORE", [least, most]) => match (bound(least), bound(most)) {
            (Some(least), Some(most)) => by_score(store, now, key, least..=most, name),
            _ => Ok(Resp::Error("ERR min or max is not a float".to_owned())),
        },
        ("ZPOPMIN" | "ZPOPMAX", []) => pop(store, now, key, name),
        ("HSET", [_, _, ..]) if words.len().is_multiple_of(2) => set_fields(store, now, key, words),
        ("INCRBY", [by]) => increment(store, now, key, by),
        ("HINCRBY", [field, by]) => add_to_field(store, now, key, field, by),
        ("HDEL", [_, ..]) => store.fields(now, key).map(|mut fields| {
            let gone = words.iter().filter(|field| fields.remove(*field).is_some()).count();
            store.put_fields(now, key, fields);
            counted(gone)
        }),
        _ => return None,
    };
    Some(answer.unwrap_or_else(|failure| Resp::Error(failure.to_string())))
}

type Answer = Result<Resp, crate::store::Failure>;

fn set_range(store: &mut Store, now: Moment, key: &[u8], offset: &[u8], part: &[u8]) -> Answer {
    let Some(offset) = number(offset) else { return Ok(not_an_integer()) };
    store.set_range(now, key, offset, part).map(counted)
}

fn increment(store: &mut Store, now: Moment, key: &[u8], by: &[u8]) -> Answer {
    let old = store.get(now, key)?.map_or(Some(0), number::<i64>);
    let Some(sum) = old.zip(number::<i64>(by)).and_then(|(old, by)| old.checked_add(by)) else {
        return Ok(not_an_integer());
    };
    let kept = SetOptions { life: SetLife::Kept, ..SetOptions::default() };
    store.set(now, key, Value::Text(sum.to_string().into_bytes()), kept);
    Ok(Resp::Number(sum))
}

/// `ZADD key [GT CH] score member`
fn add(store: &mut Store, now: Moment, key: &[u8], words: &[Vec<u8>]) -> Answer {
    let (only_up, wanted, member) = match words {
        [gt, ch, number, member] if is(gt, "GT") && is(ch, "CH") => (true, number, member),
        [number, member] => (false, number, member),
        [..] => {
            let knows = "ERR the built-in server knows ZADD key [GT CH] score member";
            return Ok(Resp::Error(knows.to_owned()));
        }
    };
    let Some(wanted) = number(wanted) else { return Ok(not_a_float()) };
    let mut scores = store.scores(now, key)?;
    let old = scores.get(member).copied();
    let higher = old.is_none_or(|old| old < wanted);
    if higher || !only_up && old != Some(wanted) {
        scores.insert(member.clone(), wanted);
        store.put_scores(now, key, scores);
    }
    Ok(Resp::Number(if only_up { higher.into() } else { old.is_none().into() }))
}

fn add_to(store: &mut Store, now: Moment, key: &[u8], by: &[u8], member: &[u8]) -> Answer {
    let mut scores = store.scores(now, key)?;
    let old = scores.get(member).copied().unwrap_or_default();
    let Some(new) = number(by).and_then(|by: i64| old.checked_add_signed(by)) else {
        return Ok(not_a_float());
    };
    scores.insert(member.to_vec(), new);
    store.put_scores(now, key, scores);
    Ok(score(Some(&new)))
}

/// Removes the members for which `goes` returns `true`, given rank, name and number of members.
fn remove(
    store: &mut Store,
    now: Moment,
    key: &[u8],
    goes: impl Fn(usize, &Vec<u8>, usize) -> bool,
) -> Answer {
    let mut scores = store.scores(now, key)?;
    let ranked = by_rank(&scores);
    let gone = ranked.iter().enumerate().filter(|(rank, (_, member))| goes(*rank, member, ranked.len()));
    let gone: Vec<_> = gone.map(|(_, (_, member))| member).collect();
    for member in &gone {
        scores.remove(*member);
    }
    if !gone.is_empty() {
        store.put_scores(now, key, scores);
    }
    Ok(counted(gone.len()))
}

fn by_score(
    store: &mut Store,
    now: Moment,
    key: &[u8],
    range: std::ops::RangeInclusive<u64>,
    name: &str,
) -> Answer {
    let scores = store.scores(now, key)?;
    if name == "ZREMRANGEBYSCORE" {
        return remove(store, now, key, |_, member, _| {
            scores.get(member).is_some_and(|score| range.contains(score))
        });
    }
    let found = by_rank(&scores).into_iter().filter(|(score, _)| range.contains(score));
    Ok(Resp::List(found.map(|(_, member)| Resp::Text(member)).collect()))
}

fn pop(store: &mut Store, now: Moment, key: &[u8], name: &str) -> Answer {
    let mut scores = store.scores(now, key)?;
    let ranked = by_rank(&scores);
    let popped = if name == "ZPOPMIN" { ranked.first() } else { ranked.last() };
    let Some((number, member)) = popped else { return Ok(Resp::List(Vec::new())) };
    scores.remove(member);
    store.put_scores(now, key, scores);
    Ok(Resp::List(vec![Resp::text(member), score(Some(number))]))
}

fn set_fields(store: &mut Store, now: Moment, key: &[u8], words: &[Vec<u8>]) -> Answer {
    let mut fields = store.fields(now, key)?;
    let mut new = 0;
    for [field, value] in words.as_chunks::<2>().0 {
        new += usize::from(fields.insert(field.clone(), value.clone()).is_none());
    }
    store.put_fields(now, key, fields);
    Ok(counted(new))
}

fn add_to_field(store: &mut Store, now: Moment, key: &[u8], field: &[u8], by: &[u8]) -> Answer {
    let mut fields = store.fields(now, key)?;
    let old = fields.get(field).map_or(Some(0), |value| number::<i64>(value));
    let (Some(old), Some(by)) = (old, number::<i64>(by)) else { return Ok(not_an_integer()) };
    let Some(new) = old.checked_add(by) else {
        return Ok(Resp::Error("ERR increment or decrement would overflow".to_owned()));
    };
    fields.insert(field.to_vec(), new.to_string().into_bytes());
    store.put_fields(now, key, fields);
    Ok(Resp::Number(new))
}

/// Returns the members ordered by score, then by name.
fn by_rank(scores: &Scores) -> Vec<(u64, Vec<u8>)> {
    let mut ranked: Vec<_> = scores.iter().map(|(member, score)| (*score, member.clone())).collect();
    ranked.sort_unstable();
    ranked
}

/// Whether `rank` is between `first` and `last`, which count from the end if negative.
fn is_between(rank: usize, first: i64, last: i64, count: usize) -> bool {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let from_start = |place: i64| if place < 0 { count.saturating_add(place) } else { place };
    i64::try_from(rank).is_ok_and(|rank| from_start(first) <= rank && rank <= from_start(last))
}

fn bound(word: &[u8]) -> Option<u64> {
    match word {
        b"-inf" => Some(0),
        b"+inf" | b"inf" => Some(u64::MAX),
        digits => number(digits),
    }
}

fn number<N: FromStr>(digits: &[u8]) -> Option<N> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn score(score: Option<&u64>) -> Resp {
    score.map_or(Resp::Null, |score| Resp::text(score.to_string()))
}

fn counted(count: usize) -> Resp {
    Resp::Number(i64::try_from(count).unwrap_or(i64::MAX))
}

fn not_a_float() -> Resp {
    Resp::Error("ERR value is not a valid float".to_owned())
}
