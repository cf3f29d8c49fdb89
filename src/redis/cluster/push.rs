//! Combines the hints of a cluster's masters into those of one node.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::node::{Hint, HintListener};
use crate::redis::push::Audience;
use crate::runtime::Mutex;

/// The listeners of the cluster, and which of its masters send hints.
///
/// The listeners are subscribed while all masters send hints, because a listener does not know which master
/// serves a key.
#[derive(Debug, Default)]
pub(super) struct PushFanIn {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    audience: Audience,
    /// Whether each master, by the number of its shard, sends hints.
    sources: BTreeMap<u64, bool>,
}

impl PushFanIn {
    pub(super) fn add(&self, listener: Arc<dyn HintListener>) {
        self.inner.lock().audience.add(listener);
    }

    /// Returns whether there is a listener.
    pub(super) fn any(&self) -> bool {
        !self.inner.lock().audience.is_empty()
    }

    /// Adds a master, which does not send hints yet.
    pub(super) fn join(&self, number: u64) {
        self.inner.lock().set_source(number, Some(false));
    }

    /// Removes a master.
    pub(super) fn leave(&self, number: u64) {
        self.inner.lock().set_source(number, None);
    }
}

impl Inner {
    fn set_source(&mut self, number: u64, notifies: Option<bool>) {
        match notifies {
            Some(notifies) => drop(self.sources.insert(number, notifies)),
            None => drop(self.sources.remove(&number)),
        }
        let all = !self.sources.is_empty() && self.sources.values().all(|notifies| *notifies);
        if all != self.audience.is_hearing() {
            self.audience.set_hearing(all);
        }
    }
}

/// Listens to one master.
#[derive(Debug)]
pub(super) struct PushSource {
    pub(super) fan_in: Weak<PushFanIn>,
    pub(super) number: u64,
}

impl HintListener for PushSource {
    fn on_hint(&self, hint: Hint<'_>) {
        let Some(fan_in) = self.fan_in.upgrade() else { return };
        let mut inner = fan_in.inner.lock();
        // A removed master may still send something.
        if !inner.sources.contains_key(&self.number) {
            return;
        }
        match hint {
            Hint::Subscribed => inner.set_source(self.number, Some(true)),
            Hint::Unsubscribed => inner.set_source(self.number, Some(false)),
            Hint::Invalidated(_) | Hint::Flushed => inner.audience.notify(hint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::tests::HintLog;

    #[test]
    fn it_is_subscribed_while_all_masters_are() {
        let (fan_in, hints) = (Arc::new(PushFanIn::default()), Arc::new(HintLog::default()));
        fan_in.add(Arc::clone(&hints) as Arc<dyn HintListener>);
        let source = |number| PushSource { fan_in: Arc::downgrade(&fan_in), number };
        fan_in.join(1);
        fan_in.join(2);
        source(1).on_hint(Hint::Subscribed);
        assert!(hints.heard().is_empty(), "half of the keys would change without a hint");
        source(2).on_hint(Hint::Subscribed);
        source(1).on_hint(Hint::Invalidated(b"a"));
        source(2).on_hint(Hint::Unsubscribed);
        fan_in.leave(2);
        source(2).on_hint(Hint::Invalidated(b"b"));
        assert_eq!(hints.heard(), ["Subscribed", "a", "Unsubscribed", "Subscribed"]);
    }
}
