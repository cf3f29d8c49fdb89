//! `CLIENT TRACKING`: who is told what changes.
//!
//! As a real server does, this remembers which keys a client has read, and tells it of the next
//! change of each, once. Of the scripts it remembers the locks at which they were refused; of several
//! at once, as Redis 7.0 does, all.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Shared;
use crate::resp::Resp;
use crate::store::Change;

/// What the names of the channels begin with that are inboxes.
pub(super) const INBOX: &[u8] = b"quorlock:inbox:";

/// The connections that are told, by their number.
#[derive(Default)]
pub(super) struct Trackers {
    clients: BTreeMap<i64, Tracker>,
}

struct Tracker {
    own: Own,
    keys: BTreeSet<Vec<u8>>,
    inboxes: Vec<Vec<u8>>,
    pushes: UnboundedSender<Resp>,
}

/// Whether a client is told of what it changes itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    Told,
    /// `NOLOOP`
    Skipped,
}

/// Who has changed something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    Client(i64),
    /// A key's time was over.
    Time,
}

impl Trackers {
    /// `CLIENT TRACKING ON`, with where the pushes come. A client that is told already gets no
    /// second way.
    pub(super) fn start(&mut self, client: i64, own: Own) -> Option<UnboundedReceiver<Resp>> {
        if let Some(tracker) = self.clients.get_mut(&client) {
            tracker.own = own;
            return None;
        }
        let (pushes, receiver) = unbounded_channel();
        self.clients.insert(client, Tracker { own, keys: BTreeSet::new(), inboxes: Vec::new(), pushes });
        Some(receiver)
    }

    /// `CLIENT TRACKING OFF`, or the end of the connection.
    pub(super) fn stop(&mut self, shared: &Shared, client: i64) {
        let inboxes = self.clients.remove(&client).map(|tracker| tracker.inboxes).unwrap_or_default();
        for inbox in &inboxes {
            shared.store().listen(inbox, false);
        }
        if self.clients.is_empty() {
            shared.store().unwatch_all();
        }
    }

    /// `SUBSCRIBE` to an inbox, for a client that tracks. Says whether it does.
    pub(super) fn subscribe(&mut self, shared: &Shared, client: i64, inbox: &[u8]) -> bool {
        let Some(tracker) = self.clients.get_mut(&client) else { return false };
        tracker.inboxes.push(inbox.to_vec());
        shared.store().listen(inbox, true);
        true
    }

    /// Remembers what a client has read.
    pub(super) fn remember(&mut self, shared: &Shared, client: i64, keys: &[Vec<u8>]) {
        let Some(tracker) = self.clients.get_mut(&client) else { return };
        for key in keys {
            tracker.keys.insert(key.clone());
            shared.store().watch(key);
        }
    }

    /// Tells what has changed since the last call.
    pub(super) fn tell(&mut self, shared: &Shared, author: Author) {
        let changes = shared.store().take_changes(shared.now());
        for change in changes {
            for (client, tracker) in &mut self.clients {
                tracker.tell(&change, author == Author::Client(*client));
            }
        }
    }
}

impl Tracker {
    fn tell(&mut self, change: &Change, is_own: bool) {
        let keys = match change {
            Change::Message { inbox, payload } => {
                if self.inboxes.contains(inbox) {
                    let channel = [INBOX, inbox].concat();
                    let message = vec![Resp::text("message"), Resp::text(channel), Resp::text(payload)];
                    drop(self.pushes.send(Resp::Push(message)));
                }
                return;
            }
            Change::Key(key) if !self.keys.remove(key) => return,
            Change::Key(_) if is_own && self.own == Own::Skipped => return,
            Change::Key(key) => Resp::List(vec![Resp::text(key)]),
            // Told to everybody, whatever they have read and whoever did it.
            Change::All => {
                self.keys.clear();
                Resp::Null
            }
        };
        // The connection may have ended just now.
        drop(self.pushes.send(Resp::Push(vec![Resp::text("invalidate"), keys])));
    }
}

/// The keys that a command has read, if it was answered so.
pub(super) fn read_keys<'a>(name: &str, arguments: &'a [Vec<u8>], answer: &Resp) -> &'a [Vec<u8>] {
    let first = |arguments: &'a [Vec<u8>]| arguments.get(..1).unwrap_or_default();
    match name {
        "GET" | "PTTL" => first(arguments),
        "EXISTS" => arguments,
        // The script and the number of keys come before the lock.
        "EVAL" | "EVALSHA" if refuses(answer) => {
            let count = arguments.get(1).and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
            let keys = arguments.get(2..).and_then(|rest| rest.get(..count.unwrap_or_default()));
            // Who is far from the front of a queue has only read the key that tells its turn.
            keys.and_then(|keys| keys.get(usize::from(is_far(answer))..)).unwrap_or_default()
        }
        _ => &[],
    }
}

/// Whether a script of quorlock has answered that somebody else comes first.
fn refuses(answer: &Resp) -> bool {
    let Resp::List(parts) = answer else { return false };
    matches!(parts.first(), Some(Resp::Text(word)) if word == b"held" || word == b"behind" || word == b"queued")
}

/// Whether a script has answered that two or more come before in the queue.
fn is_far(answer: &Resp) -> bool {
    let Resp::List(parts) = answer else { return false };
    matches!(parts.as_slice(), [Resp::Text(word), Resp::Number(ahead), ..] if word == b"queued" && *ahead > 1)
}
