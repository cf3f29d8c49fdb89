//! `CLIENT TRACKING` and `SUBSCRIBE`: notifies clients of changes and messages.
//!
//! Like a real server, it remembers which keys a client has read, also by commands of a script, as Redis 7.0 does,
//! and notifies it once, at the next change of each.

use std::collections::{BTreeMap, BTreeSet};

use quorlock::protocol::Moment;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::keyspace::Keyspace;
use crate::resp::Resp;

/// The clients that receive pushes, by number.
#[derive(Default)]
pub(super) struct Trackers {
    clients: BTreeMap<i64, Tracker>,
    /// The clients that have read a key since its last change.
    readers: BTreeMap<Vec<u8>, BTreeSet<i64>>,
    /// The subscribers of a channel.
    channels: BTreeMap<Vec<u8>, BTreeSet<i64>>,
}

struct Tracker {
    own: Own,
    pushes: UnboundedSender<Resp>,
}

/// Whether a client is notified of its own changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    Notified,
    /// `NOLOOP`
    Skipped,
}

/// The author of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    Client(i64),
    /// A key has expired.
    Time,
}

impl Trackers {
    /// `CLIENT TRACKING ON`: returns the receiver of pushes. `None` if the client already tracks.
    pub(super) fn start(&mut self, client: i64, own: Own) -> Option<UnboundedReceiver<Resp>> {
        if let Some(tracker) = self.clients.get_mut(&client) {
            tracker.own = own;
            return None;
        }
        let (pushes, receiver) = unbounded_channel();
        self.clients.insert(client, Tracker { own, pushes });
        Some(receiver)
    }

    /// `CLIENT TRACKING OFF`, or the end of the connection.
    pub(super) fn stop(&mut self, client: i64) {
        if self.clients.remove(&client).is_none() {
            return;
        }
        for table in [&mut self.readers, &mut self.channels] {
            table.retain(|_, clients| !clients.remove(&client) || !clients.is_empty());
        }
    }

    /// `SUBSCRIBE` of a tracking client. Returns whether it tracks.
    pub(super) fn subscribe(&mut self, client: i64, channel: &[u8]) -> bool {
        let tracks = self.clients.contains_key(&client);
        if tracks {
            self.channels.entry(channel.to_vec()).or_default().insert(client);
        }
        tracks
    }

    /// Returns the number of subscribers of a channel.
    pub(super) fn subscribers(&self, channel: &[u8]) -> usize {
        self.channels.get(channel).map_or(0, BTreeSet::len)
    }

    /// `PUBLISH`: returns the number of subscribers.
    pub(super) fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        for client in self.channels.get(channel).into_iter().flatten() {
            let message = vec![Resp::text("message"), Resp::text(channel), Resp::text(message)];
            self.push(*client, message);
        }
        self.subscribers(channel)
    }

    /// Remembers the keys that a client has read, if it tracks.
    pub(super) fn remember(&mut self, client: i64, keys: &[Vec<u8>]) {
        if self.clients.contains_key(&client) {
            for key in keys {
                self.readers.entry(key.clone()).or_default().insert(client);
            }
        }
    }

    /// Returns when the first key that a client has read expires, if no command changes that.
    pub(super) fn next_end(&self, keys: &Keyspace) -> Option<Moment> {
        keys.next_end(|key| self.readers.contains_key(key))
    }

    /// Notifies the clients of changes since the last call.
    pub(super) fn notify(&mut self, keys: &mut Keyspace, author: Author) {
        for key in keys.take_changed() {
            for client in self.readers.remove(&key).unwrap_or_default() {
                let own = self.clients.get(&client).map(|tracker| tracker.own);
                if author != Author::Client(client) || own != Some(Own::Skipped) {
                    self.push(client, vec![Resp::text("invalidate"), Resp::List(vec![Resp::text(&key)])]);
                }
            }
        }
    }

    /// Notifies the clients that all keys were deleted: all clients, whatever they have read and whichever caused it.
    pub(super) fn notify_of_flush(&mut self) {
        self.readers.clear();
        for client in self.clients.keys() {
            self.push(*client, vec![Resp::text("invalidate"), Resp::Null]);
        }
    }

    fn push(&self, client: i64, words: Vec<Resp>) {
        if let Some(tracker) = self.clients.get(&client) {
            // The connection may have just ended.
            drop(tracker.pushes.send(Resp::Push(words)));
        }
    }
}
