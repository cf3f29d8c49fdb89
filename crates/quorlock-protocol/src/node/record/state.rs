//! What a node keeps of one lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{FencingToken, SHARED_MARKER, Token, WaiterId};

use super::queue::Queue;

/// What a node keeps of one lock; or a fencing counter, and nothing else.
///
/// Moments are microseconds by the clock of [`Records`](super::Records).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "stores read and write each part of it")]
pub struct Record {
    /// The holder. While readers share the lock, its token is [`SHARED_MARKER`].
    pub held: Option<Held>,
    /// The largest number that was drawn, as it was read; 0 for none. It never expires.
    pub counter: u64,
    /// The tokens of the readers.
    pub readers: BTreeMap<Vec<u8>, Entry>,
    /// Writers that wait for the readers.
    pub intents: BTreeMap<WaiterId, Entry>,
    /// The random parts of tokens whose attempts were cancelled.
    pub tombstones: BTreeMap<Vec<u8>, Entry>,
    /// The waiters for the lock.
    pub queue: Queue,
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "stores read and write each part of it")]
pub struct Held {
    /// The token.
    pub token: Token,
    /// When it expires; `None` for never.
    pub ends: Option<u64>,
    /// The fencing token that was drawn for the holder.
    pub number: Option<FencingToken>,
    /// Whether a client was refused since.
    pub wanted: bool,
    /// The mark by which others detect that the holder's process has ended, for stores that can.
    pub mark: Option<Arc<str>>,
}

/// A reader, a waiting writer or a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "stores read and write each part of it")]
pub struct Entry {
    /// When it expires.
    pub ends: u64,
    /// As of a [holder](Held::mark).
    pub mark: Option<Arc<str>>,
}

impl Record {
    /// Returns the record without what has expired by `now`.
    #[must_use]
    pub fn at(mut self, now: u64) -> Record {
        if self.held.as_ref().is_some_and(|held| held.ends.is_some_and(|ends| ends <= now)) {
            self.held = None;
        }
        // Shares expire with the marker (rule S-3).
        if !self.is_shared() {
            self.readers.clear();
        }
        self.readers.retain(|_, entry| entry.ends > now);
        self.intents.retain(|_, entry| entry.ends > now);
        self.tombstones.retain(|_, entry| entry.ends > now);
        self.queue = self.queue.at(now);
        self
    }

    /// Returns the record without the holder, readers and waiting writers whose marks are `gone`.
    #[must_use]
    pub fn without(mut self, gone: impl Fn(&str) -> bool) -> Record {
        let lives = |mark: &Option<Arc<str>>| !mark.as_deref().is_some_and(&gone);
        self.held.take_if(|held| !lives(&held.mark));
        let were = self.readers.len();
        self.readers.retain(|_, entry| lives(&entry.mark));
        if self.readers.is_empty() && were > 0 {
            self.held.take_if(|held| held.token.is_marker());
        }
        self.intents.retain(|_, entry| lives(&entry.mark));
        self
    }

    /// Whether readers hold it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.token.is_marker())
    }

    /// Returns when everything has expired; 0 if there is nothing, and the largest number if something never expires.
    #[must_use]
    pub fn ends(&self) -> u64 {
        let held = self.held.as_ref().map_or(0, |held| held.ends.unwrap_or(u64::MAX));
        let held = if self.counter == 0 { held } else { u64::MAX };
        let entries = self.readers.values().chain(self.intents.values()).chain(self.tombstones.values());
        entries.map(|entry| entry.ends).fold(held.max(self.queue.ends()), u64::max)
    }
}

impl Held {
    /// Returns what holds the key while readers share the lock.
    pub(super) fn marker(ends: u64) -> Held {
        let token = Token::found(SHARED_MARKER.as_bytes());
        Held { token, ends: Some(ends), number: None, wanted: false, mark: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(ends: u64, mark: Option<&str>) -> Entry {
        Entry { ends, mark: mark.map(Arc::from) }
    }

    #[test]
    fn a_record_lives_as_long_as_the_last_thing_in_it_and_a_counter_for_ever() {
        let mut record = Record::default();
        assert_eq!(record.ends(), 0);
        record.tombstones.insert(b"a".to_vec(), entry(400, None));
        assert_eq!(record.ends(), 400);
        assert_eq!(record.clone().at(400), Record::default());
        record.counter = 1;
        assert_eq!((record.ends(), record.at(u64::MAX).counter), (u64::MAX, 1));
    }

    #[test]
    fn shares_expire_with_the_marker() {
        let mut record = Record { held: Some(Held::marker(10)), ..Record::default() };
        record.readers.insert(b"a".to_vec(), entry(20, None));
        assert_eq!(record.clone().at(9).readers.len(), 1);
        assert!(record.at(10).readers.is_empty());
    }

    #[test]
    fn a_lock_of_crashed_processes_is_free() {
        let held = Held { mark: Some("x".into()), token: Token::found(b"a"), ..Held::marker(10) };
        let exclusive = Record { held: Some(held), ..Record::default() };
        assert_eq!(exclusive.clone().without(|mark| mark == "x"), Record::default());
        assert_eq!(exclusive.clone().without(|mark| mark == "y"), exclusive);
        let mut shared = Record { held: Some(Held::marker(10)), ..Record::default() };
        assert!(shared.clone().without(|_| true).is_shared(), "it never had a reader");
        shared.readers.insert(b"a".to_vec(), entry(10, Some("x")));
        shared.readers.insert(b"b".to_vec(), entry(10, Some("y")));
        assert_eq!(shared.clone().without(|mark| mark == "x").readers.len(), 1);
        assert_eq!(shared.without(|_| true), Record::default());
    }
}
