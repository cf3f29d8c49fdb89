//! Noticing that a key has changed, as a server does for clients that track it.

use quorlock::protocol::Moment;

use super::{Store, millis};

/// What has changed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: some key, or all of them")]
pub enum Change {
    /// This key was set, deleted, prolonged, or has ended.
    Key(Vec<u8>),
    /// All keys were deleted at once.
    All,
}

/// Changes of watched keys.
impl Store {
    /// Notes the next change of `key`, once. A key that is not there changes when it is set.
    pub fn watch(&mut self, key: &[u8]) {
        self.watched.insert(key.to_vec());
    }

    /// Watches nothing any more, and forgets what has changed.
    pub fn unwatch_all(&mut self) {
        self.watched.clear();
        self.changes.clear();
    }

    /// What has changed or ended since the last call, in that order.
    pub fn take_changes(&mut self, now: Moment) -> Vec<Change> {
        let at = millis(now);
        let ended = |key: &&Vec<u8>| self.keys.get(*key).is_some_and(|entry| !entry.lives(at));
        for key in self.watched.iter().filter(ended).cloned().collect::<Vec<_>>() {
            self.live(now, &key);
        }
        std::mem::take(&mut self.changes)
    }

    /// Whether any key is watched.
    #[must_use]
    pub fn watches(&self) -> bool {
        !self.watched.is_empty()
    }

    /// When there will be something to take, if nobody does anything before.
    #[must_use]
    pub fn next_change(&self) -> Option<Moment> {
        if !self.changes.is_empty() {
            return Some(Moment::ORIGIN);
        }
        let ends = self.watched.iter().filter_map(|key| self.keys.get(key)?.ends);
        // A key is there in its last millisecond.
        let gone = ends.min()?.saturating_add(1);
        Some(Moment::since_origin(std::time::Duration::from_millis(gone)))
    }

    pub(super) fn changed(&mut self, key: &[u8]) {
        if self.watched.remove(key) {
            self.changes.push(Change::Key(key.to_vec()));
        }
    }

    pub(super) fn all_changed(&mut self) {
        self.watched.clear();
        // Whatever else was noted is a part of it.
        self.changes = vec![Change::All];
    }
}
