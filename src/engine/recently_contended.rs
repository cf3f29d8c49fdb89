//! Which locks others wanted a moment ago.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::Moment;

/// Remembers locks that others wanted, for those who ask anew: the first request of a contest is to be
/// put in the way that costs least where others want the lock (see
/// [`FenceHint::contended`](crate::protocol::FenceHint::contended)).
pub(crate) struct Contended {
    memory: Duration,
    until: HashMap<Arc<str>, Moment>,
}

impl Default for Contended {
    fn default() -> Contended {
        Contended::remembering(MEMORY)
    }
}

/// Whoever waits asks again within three seconds. Who was not heard of for so long has probably gone.
const MEMORY: Duration = Duration::from_secs(3);
/// So many locks at most, which is some hundred kilobytes. What is not remembered costs a detour.
const MOST: usize = 1024;

impl Contended {
    /// Remembers each lock for this long.
    pub(crate) fn remembering(memory: Duration) -> Contended {
        Contended { memory, until: HashMap::new() }
    }

    /// Others want the lock at `key`, or did at `now`.
    pub(crate) fn remember(&mut self, key: &Arc<str>, now: Moment) {
        if self.until.len() >= MOST && !self.until.contains_key(key) {
            self.until.retain(|_, until| now < *until);
        }
        if self.until.len() < MOST || self.until.contains_key(key) {
            self.until.insert(key.clone(), now + self.memory);
        }
    }

    /// Whether others wanted it a moment before `now`.
    pub(crate) fn is_about(&self, key: &str, now: Moment) -> bool {
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
    fn a_lock_that_others_wanted_is_remembered_for_a_moment() {
        let (now, mut contended) = (Moment::ORIGIN, Contended::default());
        contended.remember(&key(0), now);
        let still = |at| contended.is_about(&key(0), at);
        assert!(still(now + MEMORY / 2) && !still(now + MEMORY));
        assert!(!contended.is_about(&key(1), now), "nobody has wanted that");
    }

    #[test]
    fn only_so_many_locks_are_remembered_and_the_old_ones_make_room() {
        let (now, mut contended) = (Moment::ORIGIN, Contended::default());
        (0..2 * MOST).for_each(|number| contended.remember(&key(number), now));
        assert_eq!(contended.until.len(), MOST);
        assert!(!contended.is_about(&key(MOST), now), "there was no room for it");
        let later = now + MEMORY;
        contended.remember(&key(MOST), later);
        assert!(contended.is_about(&key(MOST), later));
        assert_eq!(contended.until.len(), 1, "the others have been forgotten");
    }
}
