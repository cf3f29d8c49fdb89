//! Changes of the locks that clients of this process wait for: which place has gone. Whose turn that is, `OwnPlaces::gone`
//! decides.
//!
//! A watch is asked for before the lock is read, over the same connection, so that whatever changes after what was read is
//! reported. What is reported later is later: a member reports a change before it answers anything that shows it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::runtime::Mutex;

use crate::client::{Change, Event};
use crate::layout::{parent, sequence};

/// How long a lock is watched after it was last asked about.
const KEPT: Duration = Duration::from_secs(30);
/// How many deletions are remembered for readers of an earlier state.
const REMEMBERED: usize = 256;

/// The watches of one connection, by the node of the lock.
#[derive(Default)]
pub(crate) struct Watches(Mutex<HashMap<String, Watch>>);

struct Watch {
    lock: Arc<str>,
    used: Moment,
    /// Whether a client was refused, which is to hear of the next place that goes.
    refused: bool,
    /// Whether a client has found the lock free, which is to hear of any change.
    inspected: bool,
    gone: VecDeque<String>,
}

/// What to tell about a lock.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) lock: Arc<str>,
    /// The place that has gone.
    pub(crate) gone: Option<String>,
    /// Whether clients wait for this change.
    pub(crate) notifies: bool,
}

/// Watches to ask the server for, and to end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) begin: bool,
    pub(crate) end: Vec<String>,
}

impl Watches {
    /// Records that the lock with this node is watched from now on.
    pub(crate) fn begin(&self, dir: &str, lock: &Arc<str>, now: Moment) -> Changed {
        let mut all = self.0.lock();
        if let Some(watch) = all.get_mut(dir) {
            watch.used = now;
            return Changed::default();
        }
        let is_old = |watch: &Watch| now.since(watch.used) > KEPT;
        let end = all.iter().filter(|(_, watch)| is_old(watch)).map(|(dir, _)| dir.clone()).collect();
        all.retain(|_, watch| !is_old(watch));
        let (refused, inspected, gone) = (false, false, VecDeque::new());
        all.insert(dir.to_owned(), Watch { lock: Arc::clone(lock), used: now, refused, inspected, gone });
        Changed { begin: true, end }
    }

    /// Whether it is watched already.
    pub(crate) fn has(&self, dir: &str) -> bool {
        self.0.lock().contains_key(dir)
    }

    /// The next removal of a place of the lock is to be reported.
    pub(crate) fn notify_of_refusal(&self, dir: &str) {
        if let Some(watch) = self.0.lock().get_mut(dir) {
            watch.refused = true;
        }
    }

    /// The next change of the lock is to be reported.
    pub(crate) fn notify_of_inspection(&self, dir: &str) {
        if let Some(watch) = self.0.lock().get_mut(dir) {
            (watch.refused, watch.inspected) = (true, true);
        }
    }

    /// Removes from these places, read a moment ago, those that have gone since.
    pub(crate) fn without_gone(&self, dir: &str, mut read: Vec<Arc<str>>) -> Vec<Arc<str>> {
        if let Some(watch) = self.0.lock().get(dir) {
            read.retain(|path| !watch.gone.iter().any(|gone| **gone == **path));
        }
        read
    }

    /// Takes a report of the server. Returns what to tell, if it is of a place of a lock that is watched.
    pub(crate) fn receive(&self, event: Event) -> Option<News> {
        let Event { change, path } = event;
        sequence(&path)?;
        let mut all = self.0.lock();
        let watch = all.get_mut(parent(&path))?;
        let is_gone = change == Change::Deleted;
        let notifies = (watch.refused && is_gone) || watch.inspected;
        if notifies {
            (watch.refused, watch.inspected) = (false, false);
        }
        if is_gone {
            watch.gone.push_back(path.clone());
            let excess = watch.gone.len().saturating_sub(REMEMBERED);
            watch.gone.drain(..excess);
        }
        Some(News { lock: Arc::clone(&watch.lock), gone: is_gone.then_some(path), notifies })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(seconds))
    }

    fn event(change: Change, path: &str) -> Event {
        Event { change, path: path.to_owned() }
    }

    #[test]
    fn only_places_of_watched_locks_are_told_of() {
        let (watches, lock) = (Watches::default(), Arc::from("a"));
        assert!(watches.begin("/a", &lock, at(0)).begin && !watches.begin("/a", &lock, at(1)).begin);
        let gone = || event(Change::Deleted, "/a/x-0000000001");
        assert!(!watches.receive(gone()).unwrap().notifies, "no client waits");
        watches.notify_of_refusal("/a");
        assert!(!watches.receive(event(Change::Created, "/a/x-0000000002")).unwrap().notifies);
        let news = watches.receive(gone()).unwrap();
        assert!(news.notifies && news.gone.as_deref() == Some("/a/x-0000000001") && *news.lock == *"a");
        watches.notify_of_inspection("/a");
        assert!(watches.receive(event(Change::Created, "/a/x-0000000002")).unwrap().notifies);
        for other in ["/a", "/a/b", "/a/b/x-0000000001", "/b/x-0000000001"] {
            assert_eq!(watches.receive(event(Change::Deleted, other)), None, "{other}");
        }
        let read = ["/a/x-0000000001", "/a/x-0000000002"].map(Arc::from).to_vec();
        assert_eq!(watches.without_gone("/a", read), [Arc::from("/a/x-0000000002")]);
    }

    #[test]
    fn a_lock_that_is_not_asked_about_is_watched_no_more() {
        let watches = Watches::default();
        watches.begin("/a", &Arc::from("a"), at(0));
        watches.begin("/b", &Arc::from("b"), at(20));
        assert_eq!(
            watches.begin("/c", &Arc::from("c"), at(31)),
            Changed { begin: true, end: vec!["/a".to_owned()] }
        );
        assert!(!watches.has("/a") && watches.has("/b"));
    }
}
