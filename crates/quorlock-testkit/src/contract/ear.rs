//! The listener of the node while it is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quorlock::protocol::{FencingToken, InboxId, InboxMessage};
use quorlock::runtime::Mutex;
use quorlock::{
    node::{Hint, HintListener, Identity},
    runtime::{Entropy, SystemEntropy},
};

/// Counts the hints about the keys that a clause expects, and stores no others: it keeps listening after the
/// check.
#[derive(Debug)]
pub(super) struct HintRecorder {
    heard: Mutex<Heard>,
    inbox: InboxId,
}

impl Default for HintRecorder {
    fn default() -> HintRecorder {
        HintRecorder { heard: Mutex::default(), inbox: InboxId::new(SystemEntropy::default().next_u64()) }
    }
}

#[derive(Debug, Default)]
struct Heard {
    hearing: bool,
    /// The number of hints about each key.
    hints: BTreeMap<Vec<u8>, usize>,
    /// Whether messages to the inbox arrive.
    open: bool,
    /// The messages that have arrived, as text.
    messages: BTreeSet<String>,
}

impl HintRecorder {
    /// Whether hints are active.
    pub(super) fn hears(&self) -> bool {
        self.heard.lock().hearing
    }

    /// Starts counting hints about `key`.
    pub(super) fn expect(&self, key: &str) {
        self.heard.lock().hints.insert(key.into(), 0);
    }

    /// Returns the number of hints about `key` since it was expected.
    pub(super) fn hints(&self, key: &str) -> usize {
        self.heard.lock().hints.get(key.as_bytes()).copied().unwrap_or(0)
    }

    /// Returns the inbox at which messages arrive, if any.
    pub(super) fn inbox_once_open(&self) -> Option<InboxId> {
        self.heard.lock().open.then_some(self.inbox)
    }

    /// Whether this message has arrived.
    pub(super) fn received(&self, message: &str) -> bool {
        self.heard.lock().messages.contains(message)
    }
}

impl HintListener for HintRecorder {
    fn on_hint(&self, hint: Hint<'_>) {
        let mut heard = self.heard.lock();
        match hint {
            Hint::Subscribed => heard.hearing = true,
            Hint::Unsubscribed => (heard.hearing, heard.open) = (false, false),
            Hint::Invalidated(key) => {
                if let Some(count) = heard.hints.get_mut(key) {
                    *count += 1;
                }
            }
            Hint::Flushed => heard.hints.values_mut().for_each(|count| *count += 1),
        }
    }

    fn inbox(&self) -> Option<InboxId> {
        Some(self.inbox)
    }

    fn inbox_open(&self) {
        self.heard.lock().open = true;
    }

    fn receive(&self, message: InboxMessage<'_>, _: &Arc<Identity>) {
        let words = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let message = match message {
            InboxMessage::Offered { token, number, life } => {
                let number = number.map_or(0, FencingToken::get);
                format!("offered {} {number} {}", words(token), life.as_millis())
            }
            InboxMessage::Next { key, to, next, others_seen } => {
                let seen = if others_seen { ", others seen" } else { "" };
                format!("next {key} to {}: {}{seen}", words(to), next.waiter)
            }
            InboxMessage::Soon { token } => format!("soon {}", words(token)),
        };
        self.heard.lock().messages.insert(message);
    }
}
