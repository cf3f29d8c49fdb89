//! Who listens to the node while it is checked.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quorlock::{Hint, HintListener};

/// Counts the hints about the keys that a clause asks about, and keeps no others: it goes on
/// listening when the check is over.
#[derive(Debug, Default)]
pub(super) struct Ear {
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    hearing: bool,
    /// How often each key was said to have changed.
    told: BTreeMap<Vec<u8>, usize>,
}

impl Ear {
    /// Whether the node tells changes.
    pub(super) fn hears(&self) -> bool {
        self.heard().hearing
    }

    /// From now on counts hints about `key`.
    pub(super) fn expect(&self, key: &str) {
        self.heard().told.insert(key.into(), 0);
    }

    /// How often `key` was said to have changed since it was expected.
    pub(super) fn told(&self, key: &str) -> usize {
        self.heard().told.get(key.as_bytes()).copied().unwrap_or(0)
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HintListener for Ear {
    fn hear(&self, hint: Hint<'_>) {
        let mut heard = self.heard();
        match hint {
            Hint::Hearing => heard.hearing = true,
            Hint::Deaf => heard.hearing = false,
            Hint::Changed(key) => {
                if let Some(count) = heard.told.get_mut(key) {
                    *count += 1;
                }
            }
            Hint::AllChanged => heard.told.values_mut().for_each(|count| *count += 1),
        }
    }
}
