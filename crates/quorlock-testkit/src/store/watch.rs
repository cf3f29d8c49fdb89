//! Noticing that a key has changed, as a server does for clients that track it.

use quorlock::protocol::Moment;

use super::{Store, millis};

/// What has changed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: some key, all of them, or none")]
pub enum Change {
    /// This key was set, deleted, prolonged, or has ended.
    Key(Vec<u8>),
    /// All keys were deleted at once.
    All,
    /// None: a script has sent something to an inbox.
    Message {
        /// The number of the inbox, in digits.
        inbox: Vec<u8>,
        /// What was sent.
        payload: Vec<u8>,
    },
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

    /// From now on, or no longer, a client listens at this inbox.
    pub fn listen(&mut self, inbox: &[u8], listens: bool) {
        let clients = self.inboxes.entry(inbox.to_vec()).or_default();
        *clients = if listens { *clients + 1 } else { clients.saturating_sub(1) };
        self.inboxes.retain(|_, clients| *clients > 0);
    }

    /// From now on a client listens at each of these inboxes, and nowhere else.
    pub fn listen_only(&mut self, inboxes: impl Iterator<Item = Vec<u8>>) {
        self.inboxes = inboxes.map(|inbox| (inbox, 1)).collect();
    }

    /// Whether a client listens at the inbox.
    pub(super) fn has_listener(&self, inbox: &[u8]) -> bool {
        self.inboxes.contains_key(inbox)
    }

    /// `PUBLISH` to an inbox. Tells whether a client listens there.
    pub(crate) fn send_to(&mut self, inbox: &[u8], payload: Vec<u8>) -> bool {
        let heard = self.has_listener(inbox);
        if heard {
            self.changes.push(Change::Message { inbox: inbox.to_vec(), payload });
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
        // Whatever else was noted of keys is a part of it.
        self.changes.retain(|change| matches!(change, Change::Message { .. }));
        self.changes.push(Change::All);
    }
}
