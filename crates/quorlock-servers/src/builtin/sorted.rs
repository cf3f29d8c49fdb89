//! Commands on sorted sets.

use super::keyspace::{Keyspace, Scores};
use super::words::{Reply, counted, is, not_an_integer, number};
use crate::resp::Resp;

/// Executes one of these commands; `None` if it is another one, or has the wrong number of arguments.
pub(super) fn execute(keys: &mut Keyspace, name: &str, arguments: &[Vec<u8>]) -> Option<Reply> {
    let [key, words @ ..] = arguments else { return None };
    Some(match (name, words) {
        ("ZADD", [_, _, ..]) => add(keys, key, words),
        ("ZINCRBY", [by, member]) => increment(keys, key, by, member),
        ("ZSCORE", [member]) => keys.edit(key, |scores: &mut Scores| {
            (scores.get(member).map_or(Resp::Null, |found| score(*found)), false)
        }),
        ("ZREM", [_, ..]) => remove(keys, key, |_, member, _, _| words.contains(member)),
        ("ZREMRANGEBYRANK", [first, last]) => match (number::<i64>(first), number::<i64>(last)) {
            (Some(first), Some(last)) => {
                remove(keys, key, |rank, _, _, count| is_between(rank, first, last, count))
            }
            _ => Err(not_an_integer()),
        },
        ("ZREMRANGEBYSCORE", [least, most]) => Range::parse(least, most)
            .and_then(|range| remove(keys, key, |_, _, score, _| range.contains(score))),
        ("ZRANGEBYSCORE", [least, most, options @ ..]) => {
            Range::parse(least, most).and_then(|range| list(keys, key, &range, options))
        }
        ("ZPOPMIN" | "ZPOPMAX", [] | [_]) => pop(keys, key, name == "ZPOPMAX", words.first()),
        _ => return None,
    })
}

/// `ZADD key [XX] [GT] [CH] [INCR] score member …`
fn add(keys: &mut Keyspace, key: &[u8], mut words: &[Vec<u8>]) -> Reply {
    let [mut present, mut only_up, mut counts_changes, mut adds] = [false; 4];
    while let [word, rest @ ..] = words {
        match () {
            () if is(word, "XX") => present = true,
            () if is(word, "GT") => only_up = true,
            () if is(word, "CH") => counts_changes = true,
            () if is(word, "INCR") => adds = true,
            () => break,
        }
        words = rest;
    }
    let (pairs, []) = words.as_chunks::<2>() else { return Err("ERR syntax error".to_owned()) };
    let wanted: Option<Vec<f64>> = pairs.iter().map(|[wanted, _]| float(wanted)).collect();
    let wanted = wanted.filter(|wanted| wanted.len() == 1 || !adds && !wanted.is_empty());
    let wanted = wanted.ok_or_else(not_a_float)?;
    keys.edit(key, |scores: &mut Scores| {
        let (mut new, mut changed, mut last) = (0, 0, Resp::Null);
        for (wanted, [_, member]) in wanted.into_iter().zip(pairs) {
            let old = scores.get(member).copied();
            let next = if adds { old.unwrap_or(0.0) + wanted } else { wanted };
            if old.is_none() && present || only_up && old.is_some_and(|old| old >= next) {
                continue;
            }
            scores.insert(member.clone(), next);
            new += usize::from(old.is_none());
            changed += usize::from(old.is_none_or(|old| old.total_cmp(&next).is_ne()));
            last = score(next);
        }
        let count = counted(if counts_changes { changed } else { new });
        (if adds { last } else { count }, changed > 0)
    })
}

fn increment(keys: &mut Keyspace, key: &[u8], by: &[u8], member: &[u8]) -> Reply {
    add(keys, key, &[b"INCR".to_vec(), by.to_vec(), member.to_vec()])
}

/// Removes the members for which `goes` returns `true`, given rank, name, score, and number of members.
fn remove(keys: &mut Keyspace, key: &[u8], goes: impl Fn(usize, &Vec<u8>, f64, usize) -> bool) -> Reply {
    keys.edit(key, |scores: &mut Scores| {
        let ranked = by_rank(scores);
        let gone = ranked.iter().enumerate();
        let gone: Vec<_> =
            gone.filter(|(rank, (score, member))| goes(*rank, member, *score, ranked.len())).collect();
        for (_, (_, member)) in &gone {
            scores.remove(member);
        }
        (counted(gone.len()), !gone.is_empty())
    })
}

/// `ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT 0 count]`
fn list(keys: &mut Keyspace, key: &[u8], range: &Range, mut options: &[Vec<u8>]) -> Reply {
    let (mut with_scores, mut most) = (false, usize::MAX);
    loop {
        options = match options {
            [] => break,
            [word, rest @ ..] if is(word, "WITHSCORES") => {
                with_scores = true;
                rest
            }
            [word, first, count, rest @ ..] if is(word, "LIMIT") && first == b"0" => {
                most = number(count).ok_or_else(not_an_integer)?;
                rest
            }
            [..] => return Err("ERR syntax error".to_owned()),
        };
    }
    keys.edit(key, |scores: &mut Scores| {
        let found = by_rank(scores).into_iter().filter(|(score, _)| range.contains(*score)).take(most);
        let listed = found.flat_map(|(number, member)| {
            [Some(Resp::Text(member)), with_scores.then(|| score(number))].into_iter().flatten()
        });
        (Resp::List(listed.collect()), false)
    })
}

fn pop(keys: &mut Keyspace, key: &[u8], largest: bool, count: Option<&Vec<u8>>) -> Reply {
    let count = count.map_or(Some(1), |count| number(count)).ok_or_else(not_an_integer)?;
    keys.edit(key, |scores: &mut Scores| {
        let mut ranked = by_rank(scores);
        if largest {
            ranked.reverse();
        }
        ranked.truncate(count);
        for (_, member) in &ranked {
            scores.remove(member);
        }
        let changed = !ranked.is_empty();
        let listed = ranked.into_iter().flat_map(|(number, member)| [Resp::Text(member), score(number)]);
        (Resp::List(listed.collect()), changed)
    })
}

/// Returns the members ordered by score, then by name.
fn by_rank(scores: &Scores) -> Vec<(f64, Vec<u8>)> {
    // They are ordered by name, and the sort is stable.
    let mut ranked: Vec<_> = scores.iter().map(|(member, score)| (*score, member.clone())).collect();
    ranked.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    ranked
}

/// Whether `rank` is between `first` and `last`, which count from the end if negative.
fn is_between(rank: usize, first: i64, last: i64, count: usize) -> bool {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let from_start = |place: i64| if place < 0 { count.saturating_add(place) } else { place };
    i64::try_from(rank).is_ok_and(|rank| from_start(first) <= rank && rank <= from_start(last))
}

/// A range of scores; each end may be excluded.
struct Range([(f64, bool); 2]);

impl Range {
    fn parse(least: &[u8], most: &[u8]) -> Result<Range, String> {
        let end = |word: &[u8]| {
            let excluded = word.strip_prefix(b"(");
            float(excluded.unwrap_or(word)).map(|end| (end, excluded.is_some()))
        };
        let (least, most) = end(least).zip(end(most)).ok_or("ERR min or max is not a float")?;
        Ok(Range([least, most]))
    }

    fn contains(&self, score: f64) -> bool {
        let Range([(least, above), (most, below)]) = *self;
        (least < score || least <= score && !above) && (score < most || score <= most && !below)
    }
}

fn float(word: &[u8]) -> Option<f64> {
    number(word).filter(|number: &f64| !number.is_nan())
}

fn score(score: f64) -> Resp {
    Resp::text(score.to_string())
}

fn not_a_float() -> String {
    "ERR value is not a valid float".to_owned()
}
