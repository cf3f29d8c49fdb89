//! Combines the hints of a cluster's masters into those of one node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::node::{Hint, HintListener};
use crate::redis::push::Audience;

/// The listeners of the cluster, and which of its masters send hints.
///
/// The listeners are subscribed while all masters send hints, because a listener does not know which master
/// serves a key.
#[derive(Debug, Default)]
pub(super) struct PushFanIn {
    inside: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    audience: Audience,
    /// Whether each master, by the number of its shard, sends hints.
    sources: BTreeMap<u64, bool>,
}

impl PushFanIn {
    fn inside(&self) -> MutexGuard<'_, Inner> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, listener: Arc<dyn HintListener>) {
        self.inside().audience.add(listener);
    }

    /// Returns whether there is a listener.
    pub(super) fn any(&self) -> bool {
        !self.inside().audience.is_empty()
    }

    /// Adds a master, which does not send hints yet.
    pub(super) fn join(&self, line: u64) {
        self.inside().set_source(line, Some(false));
    }

    /// Removes a master.
    pub(super) fn leave(&self, line: u64) {
        self.inside().set_source(line, None);
    }
}

impl Inner {
    fn set_source(&mut self, line: u64, tells: Option<bool>) {
        match tells {
            Some(tells) => drop(self.sources.insert(line, tells)),
            None => drop(self.sources.remove(&line)),
        }
        let all = !self.sources.is_empty() && self.sources.values().all(|tells| *tells);
        if all != self.audience.is_hearing() {
            self.audience.set_hearing(all);
        }
    }
}

/// Listens to one master.
#[derive(Debug)]
pub(super) struct PushSource {
    pub(super) fan_in: Weak<PushFanIn>,
    pub(super) line: u64,
}

impl HintListener for PushSource {
    fn hear(&self, hint: Hint<'_>) {
        let Some(fan_in) = self.fan_in.upgrade() else { return };
        let mut inside = fan_in.inside();
        // A removed master may still send something.
        if !inside.sources.contains_key(&self.line) {
            return;
        }
        match hint {
            Hint::Hearing => inside.set_source(self.line, Some(true)),
            Hint::Deaf => inside.set_source(self.line, Some(false)),
            Hint::Changed(_) | Hint::AllChanged => inside.audience.tell(hint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::tests::Ear;

    #[test]
    fn it_hears_while_all_masters_do() {
        let (fan_in, ear) = (Arc::new(PushFanIn::default()), Arc::new(Ear::default()));
        fan_in.add(Arc::clone(&ear) as Arc<dyn HintListener>);
        let source = |line| PushSource { fan_in: Arc::downgrade(&fan_in), line };
        fan_in.join(1);
        fan_in.join(2);
        source(1).hear(Hint::Hearing);
        assert!(ear.heard().is_empty(), "half of the keys would change without a hint");
        source(2).hear(Hint::Hearing);
        source(1).hear(Hint::Changed(b"a"));
        source(2).hear(Hint::Deaf);
        fan_in.leave(2);
        source(2).hear(Hint::Changed(b"b"));
        assert_eq!(ear.heard(), ["Hearing", "a", "Deaf", "Hearing"]);
    }
}
