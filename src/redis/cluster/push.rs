//! The hints of all masters of a cluster, as those of one node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::node::{Hint, Listener};
use crate::redis::contained::{LISTENER, contained};

/// Who listens to the cluster, and which of its masters are heard.
///
/// The node says that it hears of changes while all of its masters do: which of them a key is at
/// concerns nobody.
#[derive(Debug, Default)]
pub(super) struct PushFanIn {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    listeners: Vec<Arc<dyn Listener>>,
    /// Whether each master, by the number of its line, tells of changes.
    voices: BTreeMap<u64, bool>,
    hearing: bool,
}

impl PushFanIn {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, listener: Arc<dyn Listener>) {
        let mut inside = self.inside();
        if inside.hearing {
            listener.hear(Hint::Hearing);
        }
        inside.listeners.push(listener);
    }

    /// Whether anybody listens.
    pub(super) fn any(&self) -> bool {
        !self.inside().listeners.is_empty()
    }

    /// Another master belongs to it, which tells nothing yet.
    pub(super) fn join(&self, line: u64) {
        self.inside().sings(line, Some(false));
    }

    /// A master does not any more.
    pub(super) fn leave(&self, line: u64) {
        self.inside().sings(line, None);
    }
}

impl Inside {
    fn sings(&mut self, line: u64, voice: Option<bool>) {
        match voice {
            Some(voice) => drop(self.voices.insert(line, voice)),
            None => drop(self.voices.remove(&line)),
        }
        let all = !self.voices.is_empty() && self.voices.values().all(|voice| *voice);
        if all != self.hearing {
            self.hearing = all;
            self.tell(if all { Hint::Hearing } else { Hint::Deaf });
        }
    }

    fn tell(&self, hint: Hint<'_>) {
        for listener in &self.listeners {
            contained(LISTENER, || listener.hear(hint));
        }
    }
}

/// Listens to one master.
#[derive(Debug)]
pub(super) struct PushSource {
    pub(super) chorus: Weak<PushFanIn>,
    pub(super) line: u64,
}

impl Listener for PushSource {
    fn hear(&self, hint: Hint<'_>) {
        let Some(chorus) = self.chorus.upgrade() else { return };
        let mut inside = chorus.inside();
        // A line that has left may still have something to say.
        if !inside.voices.contains_key(&self.line) {
            return;
        }
        match hint {
            Hint::Hearing => inside.sings(self.line, Some(true)),
            Hint::Deaf => inside.sings(self.line, Some(false)),
            Hint::Changed(_) | Hint::AllChanged => inside.tell(hint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::tests::Ear;

    #[test]
    fn it_hears_while_all_masters_do() {
        let (chorus, ear) = (Arc::new(PushFanIn::default()), Arc::new(Ear::default()));
        chorus.add(Arc::clone(&ear) as Arc<dyn Listener>);
        let voice = |line| PushSource { chorus: Arc::downgrade(&chorus), line };
        chorus.join(1);
        chorus.join(2);
        voice(1).hear(Hint::Hearing);
        assert!(ear.heard().is_empty(), "half of the keys would change without a word");
        voice(2).hear(Hint::Hearing);
        voice(1).hear(Hint::Changed(b"a"));
        voice(2).hear(Hint::Deaf);
        chorus.leave(2);
        voice(2).hear(Hint::Changed(b"b"));
        assert_eq!(ear.heard(), ["Hearing", "a", "Deaf", "Hearing"]);
    }
}
