//! `CLIENT TRACKING`: notifies clients of changes.
//!
//! Like a real server, it remembers which keys a client has read and notifies it once, at the next change of
//! each. Of the scripts it remembers the locks that refused them, of several locks all, as Redis 7.0 does; and the
//! note of the largest `max_ttl`.

use std::collections::{BTreeMap, BTreeSet};

use quorlock::protocol::{InboxId, prove};
use quorlock::redis::scripts;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Shared;
use super::eval::is;
use super::words::INBOX;
use crate::resp::Resp;
use crate::store::Change;

/// The tracking connections, by number.
#[derive(Default)]
pub(super) struct Trackers {
    clients: BTreeMap<i64, Tracker>,
}

struct Tracker {
    own: Own,
    keys: BTreeSet<Vec<u8>>,
    /// Each with the name of its channel.
    inboxes: BTreeMap<Vec<u8>, Vec<u8>>,
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
        self.clients.insert(client, Tracker { own, keys: BTreeSet::new(), inboxes: BTreeMap::new(), pushes });
        Some(receiver)
    }

    /// `CLIENT TRACKING OFF`, or the end of the connection.
    pub(super) fn stop(&mut self, shared: &Shared, client: i64) {
        let inboxes = self.clients.remove(&client).map(|tracker| tracker.inboxes).unwrap_or_default();
        for inbox in inboxes.keys() {
            shared.store().listen(inbox, false);
        }
        if self.clients.is_empty() {
            shared.store().unwatch_all();
        }
    }

    /// `SUBSCRIBE` to the channel of an inbox, for a tracking client. Returns whether it tracks.
    pub(super) fn subscribe(&mut self, shared: &Shared, client: i64, inbox: &[u8], channel: &[u8]) -> bool {
        let Some(tracker) = self.clients.get_mut(&client) else { return false };
        tracker.inboxes.insert(inbox.to_vec(), channel.to_vec());
        shared.store().listen(inbox, true);
        true
    }

    /// Remembers the keys that a client has read.
    pub(super) fn remember(&mut self, shared: &Shared, client: i64, keys: &[Vec<u8>]) {
        let Some(tracker) = self.clients.get_mut(&client) else { return };
        for key in keys {
            tracker.keys.insert(key.clone());
            shared.store().watch(key);
        }
    }

    /// Notifies the clients of changes since the last call.
    pub(super) fn tell(&mut self, shared: &Shared, author: Author) {
        let changes = shared.store().take_changes(shared.now());
        for change in changes {
            for (client, tracker) in &mut self.clients {
                tracker.tell(shared, &change, author == Author::Client(*client));
            }
        }
    }
}

impl Tracker {
    fn tell(&mut self, shared: &Shared, change: &Change, is_own: bool) {
        let keys = match change {
            Change::Message { inbox, payload, by_script } => {
                let Some(channel) = self.inboxes.get(inbox) else { return };
                let payload = if *by_script {
                    let prefix = channel.get(..channel.len().saturating_sub(INBOX.len() + inbox.len()));
                    let key = InboxId::secret_key(&String::from_utf8_lossy(prefix.unwrap_or_default()));
                    let mut store = shared.store();
                    let Ok(Some(secret)) = store.get(shared.now(), key.as_bytes()) else { return };
                    prove(secret, payload)
                } else {
                    payload.clone()
                };
                let message = vec![Resp::text("message"), Resp::text(channel), Resp::text(payload)];
                drop(self.pushes.send(Resp::Push(message)));
                return;
            }
            Change::Key(key) if !self.keys.remove(key) => return,
            Change::Key(_) if is_own && self.own == Own::Skipped => return,
            Change::Key(key) => Resp::List(vec![Resp::text(key)]),
            // Sent to all clients, whatever they have read and whichever client caused it.
            Change::All => {
                self.keys.clear();
                Resp::Null
            }
        };
        // The connection may have just ended.
        drop(self.pushes.send(Resp::Push(vec![Resp::text("invalidate"), keys])));
    }
}

/// Returns the keys that a command has read, given its answer.
pub(super) fn read_keys<'a>(name: &str, arguments: &'a [Vec<u8>], answer: &Resp) -> &'a [Vec<u8>] {
    let first = |arguments: &'a [Vec<u8>]| arguments.get(..1).unwrap_or_default();
    match name {
        "GET" | "PTTL" => first(arguments),
        "EXISTS" => arguments,
        // The script and the number of keys precede the lock.
        "EVAL" | "EVALSHA" if refuses(answer) || is_note(arguments) => {
            let count = arguments.get(1).and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
            let keys = arguments.get(2..).and_then(|rest| rest.get(..count.unwrap_or_default()));
            // A waiter far from the front has read only the key that signals its turn.
            keys.and_then(|keys| keys.get(usize::from(is_far(answer))..)).unwrap_or_default()
        }
        _ => &[],
    }
}

/// Whether it is the script that reads the note of the largest `max_ttl`.
fn is_note(arguments: &[Vec<u8>]) -> bool {
    arguments.first().is_some_and(|script| is(script, &scripts::MAX_TTL))
}

/// Whether a script of quorlock has answered that another client comes first.
fn refuses(answer: &Resp) -> bool {
    let Resp::List(parts) = answer else { return false };
    matches!(parts.first(), Some(Resp::Text(word)) if word == b"held" || word == b"behind" || word == b"queued")
}

/// Whether a script has answered that two or more waiters are ahead in the queue.
fn is_far(answer: &Resp) -> bool {
    let Resp::List(parts) = answer else { return false };
    matches!(parts.as_slice(), [Resp::Text(word), Resp::Number(ahead), ..] if word == b"queued" && *ahead > 1)
}
