//! The records of the locks of a memory node.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::record::{Outcome, Record, Records};
use quorlock::node::{Expiry, Grants, ListedKeys, NodeError, Request};
use quorlock::protocol::{
    Claim, FencingToken, Moment, Token, WaiterId, companion, fence_counter, intents_key, micros, readers_key,
    turn_key,
};
use quorlock::runtime::Clock;

use super::watch::{Change, Watch};
use crate::planting::{self, Stored};
use crate::value::Value;

/// Keeps the records of locks, and applies requests to them.
pub(super) struct Locks {
    clock: Arc<dyn Clock>,
    /// By the key of the lock.
    stored: BTreeMap<Arc<str>, Stored>,
    pub(super) watch: Watch,
    grants: Grants,
}

impl Locks {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Locks {
        Locks { clock, stored: BTreeMap::new(), watch: Watch::default(), grants: Grants::default() }
    }

    /// Serves waiters in this way from now on.
    pub(super) fn grant(&mut self, grants: Grants) {
        self.grants = grants;
    }

    /// Applies a request to the records of its keys.
    pub(super) fn apply(&mut self, request: &Request) -> Result<Outcome, NodeError> {
        let mut records = Records::at(self.now()).with_wall(self.clock.wall());
        if self.grants == Grants::FirstCome {
            records = records.first_come();
        }
        for key in Records::needed_for(request) {
            let stored = self.stored.get(&key).cloned().unwrap_or_else(|| Some(Record::default()));
            let record = stored.ok_or_else(|| "another program has stored something else there".into());
            records.add(key, None, record);
        }
        let outcome = records.apply(request)?;
        for change in records.changes() {
            let key: Arc<str> = change.key.into();
            self.watch.released(&key, &self.record(&key), change.record);
            self.put(key, Some(change.record.clone()));
        }
        Ok(outcome)
    }

    /// Returns the current record of a lock, unless something else is stored there.
    pub(super) fn record(&self, key: &str) -> Stored {
        let now = self.now();
        self.stored.get(key).map_or_else(|| Some(Record::default()), |stored| Some(stored.clone()?.at(now)))
    }

    fn put(&mut self, key: Arc<str>, new: Stored) {
        self.watch.compare(&key, &self.record(&key), &new);
        if self.grants == Grants::FirstCome {
            let now = self.now();
            self.watch.compare_turns(&key, &self.record(&key), &new, now);
        }
        if new.as_ref().is_some_and(|new| *new == Record::default()) {
            self.stored.remove(&key);
        } else {
            self.stored.insert(key, new);
        }
    }

    /// Returns the present in microseconds, by the clock by which records expire.
    pub(super) fn now(&self) -> u64 {
        micros(self.clock.now().since(Moment::ORIGIN))
    }

    /// Returns the keys of locks that begin with `prefix`.
    pub(super) fn keys_of_locks(&self, prefix: &str, which: ListedKeys) -> Vec<Arc<str>> {
        let keys = self.stored.keys().filter(|key| key.starts_with(prefix));
        let is_listed = |key: &&Arc<str>| match (which, self.record(key)) {
            (ListedKeys::Locks, record) => record.is_none_or(|record| record.held.is_some()),
            (ListedKeys::Queues, record) => {
                record.is_some_and(|record| record.queue.living(self.now()).next().is_some())
            }
        };
        keys.filter(is_listed).cloned().collect()
    }

    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        self.watch.expire(&self.stored, self.now());
        self.watch.take()
    }

    /// Returns when the next expiry is due, on the server's own clock.
    pub(super) fn next_change(&self) -> Option<Moment> {
        self.watch.next_change(&self.stored)
    }

    /// Returns the waiters for a lock, in the order of their turns.
    pub(super) fn waiters(&self, key: &Arc<str>) -> Vec<WaiterId> {
        let record = self.record(key).unwrap_or_default();
        record.queue.living(self.now()).map(|(waiter, ..)| waiter).collect()
    }

    pub(super) fn flush(&mut self) {
        self.stored.clear();
        self.watch.flush();
    }
}

/// What another program would see and do.
impl Locks {
    pub(super) fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for key in self.stored.keys() {
            let Some(record) = self.record(key) else {
                keys.push(key.to_string());
                continue;
            };
            let tombstone = |random: &Vec<u8>| Claim::new(Arc::clone(key), Token::found(random)).tombstone();
            keys.extend(record.held.is_some().then(|| key.to_string()));
            keys.extend((record.counter > 0).then(|| key.to_string()));
            keys.extend((!record.readers.is_empty()).then(|| readers_key(key)));
            keys.extend((!record.intents.is_empty()).then(|| intents_key(key)));
            keys.extend(record.tombstones.keys().map(tombstone));
            keys.extend(record.queue.living(self.now()).map(|(waiter, ..)| turn_key(key, waiter)));
        }
        keys.sort_unstable();
        keys
    }

    pub(super) fn holder(&self, key: &str) -> Option<Token> {
        self.record(key)?.held.map(|held| held.token)
    }

    pub(super) fn readers(&self, key: &str) -> Vec<(Token, Duration)> {
        let left = |ends: u64| Duration::from_micros(ends.saturating_sub(self.now()));
        let readers = self.record(key).unwrap_or_default().readers;
        readers.into_iter().map(|(token, entry)| (Token::found(&token), left(entry.ends))).collect()
    }

    pub(super) fn fencing_token(&self, key: &str) -> Option<FencingToken> {
        FencingToken::new(self.record(&fence_counter("", key))?.counter)
            .filter(|number| *number > FencingToken::ZERO)
    }

    pub(super) fn expiry(&self, key: &str) -> Option<Expiry> {
        planting::expiry(&self.record(key), self.clock.now().since(Moment::ORIGIN))
    }

    pub(super) fn set_data(&mut self, key: &str, value: Value, expiry: Expiry) -> io::Result<()> {
        let now = self.clock.now().since(Moment::ORIGIN);
        let new = planting::plant(self.record(key), key, value, expiry, now)?;
        self.put(key.into(), new);
        Ok(())
    }

    pub(super) fn remove(&mut self, key: &str) {
        if let Some((lock, rest)) = companion(key)
            && let Some(waiter) =
                rest.strip_prefix("want:mark:").and_then(|id| WaiterId::parse(id.as_bytes()))
        {
            // The key of a waiter's turn.
            drop(self.apply(&Request::LeaveQueue { key: lock.into(), waiter }));
            return;
        }
        self.put(key.into(), Some(planting::remove(self.record(key), key)));
    }
}
