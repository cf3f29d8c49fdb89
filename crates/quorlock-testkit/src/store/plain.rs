//! Plain commands on sorted sets, hashes and parts of strings, as far as `doctor` runs them.

use std::collections::BTreeMap;
use std::time::Duration;

use quorlock::protocol::{FENCE_MEMBER, Moment};

use super::{Counter, Entry, Failure, Store, Value, millis};

/// The maximum length of a string, as on a server with the default configuration.
const LONGEST: usize = 512 << 20;

/// The most lists of nodes that a server keeps.
const MOST_LISTS: usize = 16;

/// The members of a sorted set, with their scores.
pub type Scores = BTreeMap<Vec<u8>, u64>;
/// The fields of a hash, with their values.
pub type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

/// Commands that the scripts call and that `doctor` also runs alone.
impl Store {
    /// Returns the sorted set of a key; empty if there is none. A fencing counter is one.
    ///
    /// # Errors
    ///
    /// If the key has another type, or scripts keep waiters or readers in it.
    pub fn scores(&mut self, now: Moment, key: &[u8]) -> Result<Scores, Failure> {
        if self.is_kept_by_scripts(now, key) {
            return Err(Failure::OfScripts);
        }
        match self.live(now, key).map(|entry| &entry.value) {
            Some(Value::Scores(scores)) => Ok(scores.clone()),
            Some(Value::Number(Counter { current, notes })) => {
                let mut scores = notes.clone();
                scores.insert(FENCE_MEMBER.into(), *current);
                Ok(scores)
            }
            Some(Value::Text(_) | Value::List(_) | Value::Fields(_)) => Err(Failure::WrongType),
            None => Ok(Scores::new()),
        }
    }

    /// `node_lists.lua`: records the list of nodes of a client, unless it is empty, at `wall`, and returns all lists
    /// with the milliseconds since.
    ///
    /// # Errors
    ///
    /// As [`Store::scores`].
    pub fn node_lists(
        &mut self,
        (now, wall): (Moment, Duration),
        key: &[u8],
        list: &[u8],
        kept: Duration,
    ) -> Result<Vec<(Vec<u8>, i64)>, Failure> {
        let in_millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let at = in_millis(wall);
        let mut lists = self.scores(now, key)?;
        if !list.is_empty() {
            lists.insert(list.to_vec(), at);
            lists.retain(|_, recorded| *recorded > at.saturating_sub(in_millis(kept)));
            while lists.len() > MOST_LISTS {
                let oldest =
                    lists.iter().min_by_key(|(_, recorded)| **recorded).map(|(list, _)| list.clone());
                lists.remove(&oldest.unwrap_or_default());
            }
            self.put_scores(now, key, lists.clone());
            self.pexpire(now, key, kept);
        }
        let since = |recorded: u64| at.cast_signed().saturating_sub(recorded.cast_signed());
        Ok(lists.into_iter().map(|(list, recorded)| (list, since(recorded))).collect())
    }

    /// Stores a sorted set under a key, which keeps its expiry. An empty set deletes the key.
    pub fn put_scores(&mut self, now: Moment, key: &[u8], scores: Scores) {
        self.put_kept(now, key, (!scores.is_empty()).then(|| Value::of_scores(scores)));
    }

    /// Returns the hash of a key; empty if there is none.
    ///
    /// # Errors
    ///
    /// As [`Store::scores`].
    pub fn fields(&mut self, now: Moment, key: &[u8]) -> Result<Fields, Failure> {
        if self.is_kept_by_scripts(now, key) {
            return Err(Failure::OfScripts);
        }
        match self.live(now, key).map(|entry| &entry.value) {
            Some(Value::Fields(fields)) => Ok(fields.clone()),
            Some(Value::Text(_) | Value::List(_) | Value::Number(_) | Value::Scores(_)) => {
                Err(Failure::WrongType)
            }
            None => Ok(Fields::new()),
        }
    }

    /// Stores a hash under a key, which keeps its expiry. An empty hash deletes the key.
    pub fn put_fields(&mut self, now: Moment, key: &[u8], fields: Fields) {
        self.put_kept(now, key, (!fields.is_empty()).then_some(Value::Fields(fields)));
    }

    /// `SETRANGE`: overwrites a string from `offset` on, and returns its new length. Writing nothing changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// If the key is not a string, or it would be too long.
    pub fn set_range(
        &mut self,
        now: Moment,
        key: &[u8],
        offset: usize,
        part: &[u8],
    ) -> Result<usize, Failure> {
        let mut text = self.get(now, key)?.map(<[u8]>::to_vec).unwrap_or_default();
        if part.is_empty() {
            return Ok(text.len());
        }
        let end = offset.checked_add(part.len()).filter(|end| *end <= LONGEST).ok_or(Failure::TooLong)?;
        text.resize(text.len().max(end), 0);
        if let Some(place) = text.get_mut(offset..end) {
            place.copy_from_slice(part);
        }
        let length = text.len();
        self.put_kept(now, key, Some(Value::Text(text)));
        Ok(length)
    }

    /// `PEXPIREAT`, when the wall clock is `wall`. Returns whether the key existed.
    pub fn expire_at(&mut self, now: Moment, key: &[u8], wall: Duration, end: Duration) -> bool {
        if end <= wall {
            return self.del(now, key);
        }
        self.pexpire(now, key, end.saturating_sub(wall))
    }

    fn put_kept(&mut self, now: Moment, key: &[u8], value: Option<Value>) {
        let ends = self.live(now, key).and_then(|entry: &mut Entry| entry.ends);
        match value {
            Some(value) => self.put(key, value, ends),
            None => self.remove(key),
        }
    }

    /// Whether the key holds waiters or readers.
    fn is_kept_by_scripts(&self, now: Moment, key: &[u8]) -> bool {
        let at = millis(now);
        let in_queue = key
            .strip_suffix(b":order")
            .and_then(|mark| self.queues.get(mark))
            .is_some_and(|queue| queue.lives(at) && !queue.is_empty());
        in_queue || self.sets.get(key).is_some_and(|set| set.lives(at))
    }
}

impl Value {
    /// Converts to a fencing counter, if one of the members marks it as one.
    fn of_scores(mut scores: Scores) -> Value {
        match scores.remove(FENCE_MEMBER.as_bytes()) {
            Some(current) => Value::Number(Counter { current, notes: scores }),
            None => Value::Scores(scores),
        }
    }
}
