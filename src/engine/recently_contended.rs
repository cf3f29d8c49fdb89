//! Locks that other clients wanted a moment ago.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::Moment;

/// Remembers contended locks, so that the first request for one takes the form that is cheapest
/// under contention (see [`FenceHint::contended`](crate::protocol::FenceHint::contended)).
pub(crate) struct Contended {
    memory: Duration,
    until: HashMap<Arc<str>, Moment>,
}

impl Default for Contended {
    fn default() -> Contended {
        Contended::remembering(MEMORY)
    }
}

/// A waiter asks again within three seconds; after that it is probably gone.
const MEMORY: Duration = Duration::from_secs(3);
/// The most locks to remember: some hundred kilobytes. Forgetting one costs a detour.
const MOST: usize = 1024;

impl Contended {
    /// Creates a memory of this length.
    pub(crate) fn remembering(memory: Duration) -> Contended {
        Contended { memory, until: HashMap::new() }
    }

    /// Records that others want the lock at `key` at `now`.
    pub(crate) fn remember(&mut self, key: &Arc<str>, now: Moment) {
        if self.until.len() >= MOST && !self.until.contains_key(key) {
            self.until.retain(|_, until| now < *until);
        }
        if self.until.len() < MOST || self.until.contains_key(key) {
            self.until.insert(key.clone(), now + self.memory);
        }
    }

    /// Whether others wanted it shortly before `now`.
    pub(crate) fn contains(&self, key: &str, now: Moment) -> bool {
        self.until.get(key).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Arc<str> {
        format!("orders/{number}").into()
    }

    #[test]
    fn a_contended_lock_is_remembered_for_a_moment() {
        let (now, mut contended) = (Moment::ORIGIN, Contended::default());
        contended.remember(&key(0), now);
        let still = |at| contended.contains(&key(0), at);
        assert!(still(now + MEMORY / 2) && !still(now + MEMORY));
        assert!(!contended.contains(&key(1), now), "never contended");
    }

    #[test]
    fn a_limited_number_of_locks_is_remembered() {
        let (now, mut contended) = (Moment::ORIGIN, Contended::default());
        (0..2 * MOST).for_each(|number| contended.remember(&key(number), now));
        assert_eq!(contended.until.len(), MOST);
        assert!(!contended.contains(&key(MOST), now), "there was no room for it");
        let later = now + MEMORY;
        contended.remember(&key(MOST), later);
        assert!(contended.contains(&key(MOST), later));
        assert_eq!(contended.until.len(), 1, "the others were purged");
    }
}
