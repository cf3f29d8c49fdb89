//! Detects changes that clients wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::record::Record;
use quorlock::protocol::{Moment, Token, WaiterId, turn_key};

use crate::planting::Stored;

/// What clients wait for. Each is reported once.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Locks: a change of the holder, or of the writers that wait.
    keys: BTreeSet<Arc<str>>,
    /// Locks of which a holder hears: another holder, or none.
    held: BTreeSet<Arc<str>>,
    /// Waiters in queues: the turn.
    turns: BTreeSet<(Arc<str>, WaiterId)>,
    changes: Vec<Change>,
}

/// A change.
#[derive(Debug)]
pub(super) enum Change {
    /// This key was set, deleted or extended, or has expired.
    Key(String),
    /// All keys were deleted.
    All,
    /// No key: there is a message to an inbox.
    Message(Vec<u8>),
}

impl Watch {
    /// Reports the next change of the lock at `key`.
    pub(super) fn key(&mut self, key: &str) {
        self.keys.insert(key.into());
    }

    /// Reports the next change of the lock at `key` to its holder, if that is by another client.
    pub(super) fn held(&mut self, key: &str) {
        self.held.insert(key.into());
    }

    /// A request has changed the lock from one state to the other: if it has another holder now, or none, the holder itself
    /// has released it or passed it on.
    pub(super) fn released(&mut self, key: &str, old: &Stored, new: &Record) {
        if holder(old) != new.held.as_ref().map(|held| &held.token) {
            self.held.remove(key);
        }
    }

    /// Reports the turn of a waiter.
    pub(super) fn turn(&mut self, key: &Arc<str>, waiter: WaiterId) {
        self.turns.insert((Arc::clone(key), waiter));
    }

    /// Does not report the turn of a waiter that knows about it.
    pub(super) fn forget_turn(&mut self, key: &Arc<str>, waiter: WaiterId) {
        self.turns.remove(&(Arc::clone(key), waiter));
    }

    pub(super) fn message(&mut self, message: Vec<u8>) {
        self.changes.push(Change::Message(message));
    }

    pub(super) fn clear(&mut self) {
        *self = Watch::default();
    }

    pub(super) fn flush(&mut self) {
        self.keys.clear();
        self.held.clear();
        self.turns.clear();
        // It includes all recorded changes of keys.
        self.changes.retain(|change| matches!(change, Change::Message(..)));
        self.changes.push(Change::All);
    }

    /// Reports what differs between two states of a lock.
    pub(super) fn compare(&mut self, key: &Arc<str>, old: &Stored, new: &Stored) {
        let concerns_holder = holder(old) != holder(new) && self.held.remove(key);
        if (has_changed(old, new) && self.keys.remove(key)) || concerns_holder {
            self.changes.push(Change::Key(key.to_string()));
        }
        let waits = |stored: &Stored, waiter| {
            stored.as_ref().is_some_and(|record| record.queue.place(waiter).is_some())
        };
        let of_key = (Arc::clone(key), WaiterId::new(0))..=(Arc::clone(key), WaiterId::new(u64::MAX));
        let gone = self.turns.range(of_key).filter(|(_, waiter)| waits(old, *waiter) && !waits(new, *waiter));
        for turn in gone.cloned().collect::<Vec<_>>() {
            self.changes.push(Change::Key(turn_key(key, turn.1)));
            self.turns.remove(&turn);
        }
    }

    /// Reports the turn that has begun between two states of a lock which is given in order of arrival.
    pub(super) fn compare_turns(&mut self, key: &Arc<str>, old: &Stored, new: &Stored, now: u64) {
        let turn = |stored: &Stored| stored.as_ref().filter(|record| record.held.is_none())?.queue.first(now);
        let Some(begun) = turn(new).filter(|waiter| turn(old) != Some(*waiter)) else { return };
        if self.turns.remove(&(Arc::clone(key), begun)) {
            self.changes.push(Change::Key(turn_key(key, begun)));
        }
    }

    /// Reports the locks that have expired.
    pub(super) fn expire(&mut self, stored: &BTreeMap<Arc<str>, Stored>, now: u64) {
        let changes = &mut self.changes;
        self.keys.retain(|key| {
            let expired = ends(stored, key).is_some_and(|ends| ends <= now);
            changes.extend(expired.then(|| Change::Key(key.to_string())));
            !expired
        });
    }

    pub(super) fn take(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Returns when the next of the locks expires, if no request changes that.
    pub(super) fn next_change(&self, stored: &BTreeMap<Arc<str>, Stored>) -> Option<Moment> {
        if !self.changes.is_empty() {
            return Some(Moment::ORIGIN);
        }
        let end = self.keys.iter().filter_map(|key| ends(stored, key)).min()?;
        Some(Moment::since_origin(Duration::from_micros(end)))
    }
}

/// Whether a client that was refused should ask again.
fn has_changed(old: &Stored, new: &Stored) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => held(old) != held(new) || new.intents.len() < old.intents.len(),
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    }
}

fn held(record: &Record) -> Option<(&Token, Option<u64>)> {
    record.held.as_ref().map(|held| (&held.token, held.ends))
}

fn holder(stored: &Stored) -> Option<&Token> {
    stored.as_ref()?.held.as_ref().map(|held| &held.token)
}

fn ends(stored: &BTreeMap<Arc<str>, Stored>, key: &Arc<str>) -> Option<u64> {
    stored.get(key)?.as_ref()?.held.as_ref()?.ends
}
