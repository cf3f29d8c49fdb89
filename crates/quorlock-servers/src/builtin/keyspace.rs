//! The keys of a server, without a network and without a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorlock::node::Expiry;
use quorlock::protocol::Moment;

/// The keys of a server, and their values.
///
/// Times are in whole milliseconds, and a key is gone when its last millisecond has passed, as in Redis.
#[derive(Clone, Debug, Default)]
pub(super) struct Keyspace {
    // Ordered, so that a simulation sees the keys in the same order in every run.
    keys: BTreeMap<Vec<u8>, Entry>,
    /// The keys that expire, by when.
    ends: BTreeSet<(Millis, Vec<u8>)>,
    /// The present, by the clock by which keys expire.
    now: Millis,
    /// The present since 1970.
    wall: Duration,
    /// The keys that were set, deleted or extended, or have expired, since they were last asked for.
    changed: Vec<Vec<u8>>,
    /// Replaced and deleted strings, for a simulation that looks at the keys only between its events.
    replaced: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    ends: Option<Millis>,
}

/// The value of a key.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(Vec<u8>),
    /// Representing every type that no script uses.
    List,
    Scores(Scores),
    Fields(Fields),
}

/// The members of a sorted set, with their scores.
pub(super) type Scores = BTreeMap<Vec<u8>, f64>;
/// The fields of a hash, with their values.
pub(super) type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

/// A type of values that consist of parts. A key without any part does not exist.
pub(super) trait Parts: Default {
    fn into_value(self) -> Value;
    fn of(value: &mut Value) -> Option<&mut Self>;
    fn is_empty(&self) -> bool;
}

/// An error of a command.
pub(super) type Refusal = String;

pub(super) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

type Millis = u64;

impl Keyspace {
    /// Sets the time, and deletes the keys that have expired.
    pub(super) fn set_time(&mut self, now: Moment, wall: Duration) {
        self.now = span(now.since(Moment::ORIGIN));
        self.wall = wall;
        while let Some((_, key)) = self.ends.first().filter(|(ends, _)| *ends < self.now) {
            let key = key.clone();
            self.delete(&key);
        }
    }

    pub(super) fn wall(&self) -> Duration {
        self.wall
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Value> {
        self.keys.get(key).map(|entry| &entry.value)
    }

    /// Returns the string of a key.
    pub(super) fn text(&self, key: &[u8]) -> Result<Option<&[u8]>, Refusal> {
        match self.get(key) {
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::List | Value::Scores(_) | Value::Fields(_)) => Err(WRONG_TYPE.to_owned()),
            None => Ok(None),
        }
    }

    /// Edits the parts of a key. The edit returns whether it has changed something.
    pub(super) fn edit<P: Parts, R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut P) -> (R, bool),
    ) -> Result<R, Refusal> {
        let mut new = P::default();
        let (result, changed, empty) = match self.keys.get_mut(key).map(|entry| P::of(&mut entry.value)) {
            Some(None) => return Err(WRONG_TYPE.to_owned()),
            Some(Some(parts)) => {
                let (result, changed) = edit(parts);
                (result, changed, parts.is_empty())
            }
            None => {
                let (result, _) = edit(&mut new);
                if !new.is_empty() {
                    self.put(key, new.into_value(), None);
                }
                return Ok(result);
            }
        };
        if empty {
            self.delete(key);
        } else if changed {
            self.changed.push(key.to_vec());
        }
        Ok(result)
    }

    /// Stores a value, with an expiry from now, or without one.
    pub(super) fn set(&mut self, key: &[u8], value: Value, life: Option<Duration>) {
        self.put(key, value, life.map(|life| self.now.saturating_add(span(life))));
    }

    /// Stores a value without changing the expiry.
    pub(super) fn set_kept(&mut self, key: &[u8], value: Value) {
        let ends = self.keys.get(key).and_then(|entry| entry.ends);
        self.put(key, value, ends);
    }

    /// Returns whether there was the key.
    pub(super) fn delete(&mut self, key: &[u8]) -> bool {
        let before = self.keys.remove(key);
        let there = before.is_some();
        if there {
            self.note(key, before);
        }
        there
    }

    pub(super) fn exists(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    /// Returns the expiry of a key, if there is one.
    pub(super) fn expiry(&self, key: &[u8]) -> Option<Expiry> {
        let left = |ends: Millis| Expiry::In(Duration::from_millis(ends.saturating_sub(self.now)));
        self.keys.get(key).map(|entry| entry.ends.map_or(Expiry::Never, left))
    }

    /// Sets the expiry of a key, which is deleted if that is not in the future. Returns whether there is such
    /// a key.
    pub(super) fn expire(&mut self, key: &[u8], life: Duration) -> bool {
        if life.is_zero() {
            return self.delete(key);
        }
        let ends = self.now.saturating_add(span(life));
        let Some(entry) = self.keys.get_mut(key) else { return false };
        if let Some(before) = entry.ends.replace(ends) {
            self.ends.remove(&(before, key.to_vec()));
        }
        self.ends.insert((ends, key.to_vec()));
        self.changed.push(key.to_vec());
        true
    }

    /// Deletes all keys.
    pub(super) fn flush(&mut self) {
        self.keys.clear();
        self.ends.clear();
    }

    /// Returns all keys, in order.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = &Vec<u8>> {
        self.keys.keys()
    }

    /// Returns when the first of the keys for which `counts` returns `true` expires.
    pub(super) fn next_end(&self, counts: impl Fn(&[u8]) -> bool) -> Option<Moment> {
        let (ends, _) = self.ends.iter().find(|(_, key)| counts(key))?;
        // A key exists in its last millisecond.
        Some(Moment::since_origin(Duration::from_millis(ends.saturating_add(1))))
    }

    /// Returns the keys that have changed since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.changed)
    }

    /// Returns the strings that were replaced or deleted since the last call, each with its key; the first call
    /// starts recording.
    pub(super) fn take_replaced(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.replaced.replace(Vec::new()).unwrap_or_default()
    }

    fn put(&mut self, key: &[u8], value: Value, ends: Option<Millis>) {
        let before = self.keys.insert(key.to_vec(), Entry { value, ends });
        self.note(key, before);
        self.ends.extend(ends.map(|ends| (ends, key.to_vec())));
    }

    fn note(&mut self, key: &[u8], before: Option<Entry>) {
        self.changed.push(key.to_vec());
        let Some(Entry { value, ends }) = before else { return };
        if let Some(ends) = ends {
            self.ends.remove(&(ends, key.to_vec()));
        }
        if let (Some(replaced), Value::Text(text)) = (&mut self.replaced, value) {
            replaced.push((key.to_vec(), text));
        }
    }
}

fn span(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Parts for Scores {
    fn into_value(self) -> Value {
        Value::Scores(self)
    }

    fn of(value: &mut Value) -> Option<&mut Scores> {
        if let Value::Scores(scores) = value { Some(scores) } else { None }
    }

    fn is_empty(&self) -> bool {
        BTreeMap::is_empty(self)
    }
}

impl Parts for Fields {
    fn into_value(self) -> Value {
        Value::Fields(self)
    }

    fn of(value: &mut Value) -> Option<&mut Fields> {
        if let Value::Fields(fields) = value { Some(fields) } else { None }
    }

    fn is_empty(&self) -> bool {
        BTreeMap::is_empty(self)
    }
}
