//! The locks that clients of this process wait for or have renewed: who is to hear of what, and which places have gone lately.
//!
//! A watch is asked for before the lock is read, over the same connection, so that whatever changes after what was read is
//! reported.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::Moment;

use crate::runtime::Mutex;

/// How long a lock is watched after it was last asked about.
const KEPT: Duration = Duration::from_secs(30);
/// How many deletions are remembered for readers of an earlier state.
const REMEMBERED: usize = 256;

/// The locks that are watched over one connection. `K` is where a place is stored.
#[derive(Debug)]
pub struct Watched<K>(Mutex<HashMap<Arc<str>, Watch<K>>>);

#[derive(Debug)]
struct Watch<K> {
    used: Moment,
    /// Whether a client was refused, which is to hear of the next place that goes.
    refused: bool,
    /// Whether a client has found the lock free, which is to hear of any change.
    inspected: bool,
    gone: VecDeque<K>,
}

impl<K> Default for Watched<K> {
    fn default() -> Watched<K> {
        Watched(Mutex::default())
    }
}

impl<K: PartialEq + Clone + fmt::Debug> Watched<K> {
    /// Records that a lock is watched from now on. Returns whether it was not yet, and then those that are watched no more.
    pub fn begin(&self, lock: &Arc<str>, now: Moment) -> (bool, Vec<Arc<str>>) {
        let mut all = self.0.lock();
        if let Some(watch) = all.get_mut(lock) {
            watch.used = watch.used.max(now);
            return (false, Vec::new());
        }
        let old = all.extract_if(|_, watch| now.since(watch.used) > KEPT).map(|(lock, _)| lock).collect();
        let (refused, inspected, gone) = (false, false, VecDeque::new());
        all.insert(Arc::clone(lock), Watch { used: now, refused, inspected, gone });
        (true, old)
    }

    /// A lock that is renewed stays watched until then at least. Returns whether it is watched.
    pub fn keep(&self, lock: &str, until: Moment) -> bool {
        let mut all = self.0.lock();
        let Some(watch) = all.get_mut(lock) else { return false };
        watch.used = watch.used.max(until);
        true
    }

    /// Returns whether it is watched already.
    #[must_use]
    pub fn has(&self, lock: &str) -> bool {
        self.0.lock().contains_key(lock)
    }

    /// The next removal of a place of the lock is to be reported.
    pub fn notify_of_refusal(&self, lock: &str) {
        if let Some(watch) = self.0.lock().get_mut(lock) {
            watch.refused = true;
        }
    }

    /// The next change of the lock is to be reported.
    pub fn notify_of_inspection(&self, lock: &str) {
        if let Some(watch) = self.0.lock().get_mut(lock) {
            (watch.refused, watch.inspected) = (true, true);
        }
    }

    /// Removes from these places, read a moment ago, those that have gone since.
    #[must_use]
    pub fn without_gone(&self, lock: &str, mut read: Vec<K>) -> Vec<K> {
        if let Some(watch) = self.0.lock().get(lock) {
            read.retain(|key| !watch.gone.contains(key));
        }
        read
    }

    /// Records a change of the lock, by which these places have gone. Returns whether clients wait for it, if the lock is
    /// watched.
    pub(super) fn changed(&self, lock: &str, gone: &[K]) -> Option<bool> {
        let mut all = self.0.lock();
        let watch = all.get_mut(lock)?;
        watch.gone.extend(gone.iter().cloned());
        let excess = watch.gone.len().saturating_sub(REMEMBERED);
        watch.gone.drain(..excess);
        let notifies = (watch.refused && !gone.is_empty()) || watch.inspected;
        if notifies {
            (watch.refused, watch.inspected) = (false, false);
        }
        Some(notifies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn clients_that_wait_hear_of_one_change_of_a_lock_that_is_watched() {
        let (watched, lock) = (Watched::default(), Arc::from("a"));
        assert!(watched.begin(&lock, at(0)).0 && !watched.begin(&lock, at(1)).0);
        assert_eq!(watched.changed("a", &[1]), Some(false), "no client waits");
        watched.notify_of_refusal("a");
        assert_eq!(watched.changed("a", &[]), Some(false));
        assert_eq!(watched.changed("a", &[2]), Some(true));
        watched.notify_of_inspection("a");
        assert_eq!(watched.changed("a", &[]), Some(true));
        assert_eq!(watched.changed("b", &[3]), None);
        assert_eq!(watched.without_gone("a", vec![1, 2, 3]), [3]);
    }

    #[test]
    fn a_lock_that_is_not_asked_about_is_watched_no_more() {
        let watched = Watched::<u8>::default();
        let [a, b, c] = ["a", "b", "c"].map(Arc::from);
        watched.begin(&a, at(0));
        watched.begin(&b, at(20));
        assert_eq!(watched.begin(&c, at(31)), (true, vec![a]));
        assert!(!watched.has("a") && watched.has("b"));
        assert!(watched.keep("b", at(60)) && !watched.keep("a", at(60)));
        watched.begin(&b, at(21));
        assert_eq!(watched.begin(&Arc::from("d"), at(89)), (true, vec![c]), "one that was renewed stays");
    }
}
