//! Plain commands on strings and on keys of any type.

use std::time::Duration;

use quorlock::node::Expiry;
use quorlock::protocol::Moment;

use super::{Entry, Failure, Store, Value, millis, span};

/// The options of `SET`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "complete: the options that a lock client may use")]
pub struct SetOptions {
    /// `NX`, `XX` or neither.
    pub when: SetWhen,
    /// `PX`, `EX`, `KEEPTTL` or none of them.
    pub life: SetLife,
}

/// The condition of `SET`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::exhaustive_enums, reason = "complete: as the command")]
pub enum SetWhen {
    /// None.
    #[default]
    Always,
    /// `NX`: the key does not exist.
    Missing,
    /// `XX`: the key exists.
    Present,
}

/// The expiry that `SET` gives to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::exhaustive_enums, reason = "complete: as the command")]
pub enum SetLife {
    /// The key never expires.
    #[default]
    Forever,
    /// `PX` or `EX`: after this long.
    For(Duration),
    /// `KEEPTTL`: unchanged.
    Kept,
}

/// Plain commands, and the script that only stores a string.
impl Store {
    /// `GET`.
    ///
    /// # Errors
    ///
    /// If the key is not a string.
    pub fn get(&mut self, now: Moment, key: &[u8]) -> Result<Option<&[u8]>, Failure> {
        match self.live(now, key) {
            Some(Entry { value: Value::Text(text), .. }) => Ok(Some(text)),
            Some(Entry {
                value: Value::List(_) | Value::Number(_) | Value::Scores(_) | Value::Fields(_),
                ..
            }) => Err(Failure::WrongType),
            None => Ok(None),
        }
    }

    /// `max_ttl.lua`: returns the largest value that a client has recorded, in milliseconds, and records
    /// `ours` if it is larger, or the same and half of the time for which it is `kept` has passed.
    ///
    /// # Errors
    ///
    /// As [`Store::get`].
    pub fn max_ttl(
        &mut self,
        now: Moment,
        note: &[u8],
        ours: Duration,
        kept: Duration,
    ) -> Result<i64, Failure> {
        let noted = self.get(now, note)?.and_then(|noted| std::str::from_utf8(noted).ok()?.parse().ok());
        let (theirs, ours) = (noted.unwrap_or(0), i64::try_from(ours.as_millis()).unwrap_or(i64::MAX));
        let is_old = matches!(self.pttl(now, note), Some(Expiry::In(left)) if left < kept / 2);
        if theirs < ours || theirs == ours && is_old {
            let ends = millis(now).saturating_add(span(kept));
            self.put(note, Value::Text(ours.to_string().into_bytes()), Some(ends));
        }
        Ok(theirs)
    }

    /// `SET`. Returns whether it was done.
    pub fn set(&mut self, now: Moment, key: &[u8], value: Value, options: SetOptions) -> bool {
        let before = self.live(now, key).map(|entry| entry.ends);
        let go = match options.when {
            SetWhen::Always => true,
            SetWhen::Missing => before.is_none(),
            SetWhen::Present => before.is_some(),
        };
        if go {
            let ends = match options.life {
                SetLife::Forever => None,
                SetLife::For(life) => Some(millis(now).saturating_add(span(life))),
                SetLife::Kept => before.flatten(),
            };
            self.put(key, value, ends);
        }
        go
    }

    /// `DEL` of one key. Returns whether it existed.
    pub fn del(&mut self, now: Moment, key: &[u8]) -> bool {
        let there = self.exists(now, key);
        self.remove(key);
        there
    }

    /// `EXISTS` of one key.
    pub fn exists(&mut self, now: Moment, key: &[u8]) -> bool {
        self.live(now, key).is_some()
    }

    /// `PTTL`: `None` if there is no such key.
    pub fn pttl(&mut self, now: Moment, key: &[u8]) -> Option<Expiry> {
        let now_millis = millis(now);
        self.live(now, key).map(|entry| match entry.ends {
            Some(ends) => Expiry::In(Duration::from_millis(ends.saturating_sub(now_millis))),
            None => Expiry::Never,
        })
    }

    /// `PEXPIRE`. Returns whether the key exists.
    pub fn pexpire(&mut self, now: Moment, key: &[u8], ttl: Duration) -> bool {
        let ends = millis(now).saturating_add(span(ttl));
        let there = self.live(now, key).map(|entry| entry.ends = Some(ends)).is_some();
        if there {
            self.changed(key);
        }
        there
    }

    /// `FLUSHALL`.
    pub fn flush(&mut self) {
        self.keys.clear();
        self.queues.clear();
        self.sets.clear();
        self.all_changed();
    }

    /// `KEYS *`, in order.
    pub fn keys(&mut self, now: Moment) -> Vec<Vec<u8>> {
        let at = millis(now);
        for key in self.keys.keys().cloned().collect::<Vec<_>>() {
            self.live(now, &key);
        }
        self.queues.retain(|_, queue| queue.lives(at) && !queue.is_empty());
        self.sets.retain(|_, set| set.lives(at));
        let sets = self.sets.keys().cloned();
        let queues = self.queues.keys().map(|mark| [mark, &b":order"[..]].concat());
        let mut keys: Vec<_> = self.keys.keys().cloned().chain(queues).chain(sets).collect();
        keys.sort_unstable();
        keys
    }
}
