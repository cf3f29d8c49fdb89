//! Detects changes of keys, as a server does for clients that track them.

use quorlock::protocol::Moment;

use super::{Store, millis};

/// A change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: some key, all of them, or none")]
pub enum Change {
    /// This key was set, deleted or extended, or has expired.
    Key(Vec<u8>),
    /// All keys were deleted.
    All,
    /// No key: there is a message to an inbox.
    Message {
        /// The number of the inbox, in digits.
        inbox: Vec<u8>,
        /// The message.
        payload: Vec<u8>,
        /// Whether a script has sent it, with the proof that the server adds.
        by_script: bool,
    },
}

/// Changes of watched keys.
impl Store {
    /// Records the next change of `key`, once. A missing key changes when it is set.
    pub fn watch(&mut self, key: &[u8]) {
        self.watched.insert(key.to_vec());
    }

    /// Stops watching all keys, and forgets the recorded changes.
    pub fn unwatch_all(&mut self) {
        self.watched.clear();
        self.changes.clear();
    }

    /// Returns the changes and expiries since the last call, in order.
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

    /// Returns when the next watched key expires, if no command changes that.
    #[must_use]
    pub fn next_change(&self) -> Option<Moment> {
        if !self.changes.is_empty() {
            return Some(Moment::ORIGIN);
        }
        let ends = self.watched.iter().filter_map(|key| self.keys.get(key)?.ends);
        // A key exists in its last millisecond.
        let gone = ends.min()?.saturating_add(1);
        Some(Moment::since_origin(std::time::Duration::from_millis(gone)))
    }

    /// Sets whether a client listens at this inbox.
    pub fn listen(&mut self, inbox: &[u8], listens: bool) {
        let clients = self.inboxes.entry(inbox.to_vec()).or_default();
        *clients = if listens { *clients + 1 } else { clients.saturating_sub(1) };
        self.inboxes.retain(|_, clients| *clients > 0);
    }

    /// Replaces the set of inboxes that have a listener.
    pub fn listen_only(&mut self, inboxes: impl Iterator<Item = Vec<u8>>) {
        self.inboxes = inboxes.map(|inbox| (inbox, 1)).collect();
    }

    /// Whether a client listens at the inbox.
    pub(super) fn has_listener(&self, inbox: &[u8]) -> bool {
        self.inboxes.contains_key(inbox)
    }

    /// Sends a message of a script to an inbox. Returns whether a client listens there.
    pub(crate) fn send_to(&mut self, inbox: &[u8], payload: Vec<u8>) -> bool {
        self.send(inbox, payload, true)
    }

    fn send(&mut self, inbox: &[u8], payload: Vec<u8>, by_script: bool) -> bool {
        let heard = self.has_listener(inbox);
        if heard {
            self.changes.push(Change::Message { inbox: inbox.to_vec(), payload, by_script });
        }
        heard
    }

    pub(super) fn changed(&mut self, key: &[u8]) {
        if self.watched.remove(key) {
            self.changes.push(Change::Key(key.to_vec()));
        }
    }

    pub(super) fn all_changed(&mut self) {
        self.watched.clear();
        // It includes all recorded changes of keys.
        self.changes.retain(|change| matches!(change, Change::Message { .. }));
        self.changes.push(Change::All);
    }
}
