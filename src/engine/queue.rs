//! The wait queues of this process: for each key that it holds or wants, the waiters in order of
//! arrival, and the nodes that have hinted at a change.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::lease_state::LeaseState;
use super::options::{AcquireRequest, News};
use super::recently_contended::Contended;
use super::wait::{OnWait, Wait, Waiting, notify_listener};
use crate::runtime::Mutex;
use quorlock_protocol::Moment;
use quorlock_protocol::machine::{LocalQueue, NodeSet};
use quorlock_protocol::votes::Holder;

mod hints;
mod waiter;

pub(crate) use hints::{HintSink, HintState, HolderMode};
pub(crate) use waiter::{HoldReceiver, Joined, Place, Waiter};

/// The wait queues of a coordinator. A key has one while a keeper holds it or a contender wants it.
#[derive(Default)]
pub(crate) struct WaitQueues {
    inside: Mutex<Inner>,
    /// What makes these queues a branch of those of the coordinator.
    branch: Option<Branch>,
    /// Whether there was ever a branch.
    branched: AtomicBool,
    /// Whether any caller ever waited here or in a branch.
    used: AtomicBool,
    /// Whether other clients ever wanted a lock of these.
    contended: AtomicBool,
}

struct Inner {
    /// Ordered, so that a seed reproduces the order in which queues receive hints.
    by_key: BTreeMap<Arc<str>, WaitQueue>,
    arrivals: NonZeroU64,
    /// Until when to pause before acquiring keys that others wanted when they were released here.
    cooldowns: HashMap<Arc<str>, Moment>,
    /// Keys that others wanted a moment ago.
    contended: Contended,
    // What follows is only in the queues of the coordinator, to which the nodes hint.
    /// The nodes that send hints.
    hearing: NodeSet,
    /// The branches, by the keys of which they hear, ordered as above.
    branches: BTreeMap<Arc<str>, Vec<Weak<WaitQueues>>>,
    /// The keys by which nodes notify us of our turn, with the queues and the lock of each.
    turns: HashMap<Arc<str>, (Weak<WaitQueues>, Arc<str>)>,
    /// The leases that were renewed, by their keys: each is to hear of a change of them (rule I-52).
    leases: HashMap<Arc<str>, Weak<LeaseState>>,
}

impl Default for Inner {
    fn default() -> Inner {
        Inner {
            by_key: BTreeMap::new(),
            arrivals: NonZeroU64::MIN,
            cooldowns: HashMap::new(),
            contended: Contended::default(),
            hearing: NodeSet::default(),
            branches: BTreeMap::new(),
            turns: HashMap::new(),
            leases: HashMap::new(),
        }
    }
}

/// Wait queues of their own, which receive the same hints about some keys.
struct Branch {
    /// The queues of the coordinator. Kept alive by their branches when that is gone.
    root: Arc<WaitQueues>,
    /// The keys of which it hears.
    keys: Vec<Arc<str>>,
    /// Whether it only watches them, and also learns when this process acquires one.
    observes: bool,
}

impl Drop for Branch {
    fn drop(&mut self) {
        let mut inside = self.root.inside.lock();
        for key in &self.keys {
            let Some(known) = inside.branches.get_mut(key) else { continue };
            // No one has the queues of this branch any more.
            known.retain(|known| known.strong_count() > 0);
            if known.is_empty() {
                inside.branches.remove(key);
            }
        }
    }
}

/// One per held lock, so state that only waiters need is boxed.
#[derive(Default)]
struct WaitQueue {
    callers: LocalQueue<Waiter>,
    /// The nodes that have hinted at a change since the contender last asked.
    changed: NodeSet,
    /// The lease of this process, while it holds the key.
    lease: Weak<LeaseState>,
    signals: Option<Box<Signals>>,
}

/// What the waiters in a queue share.
#[derive(Default)]
struct Signals {
    /// Notifies the contender when a node hints at a change.
    bell: Option<Arc<Notify>>,
    /// The nodes that have notified us of our turn.
    turns: NodeSet,
    /// How the last attempt was lost.
    news: Option<News>,
}

impl WaitQueue {
    /// Records hints from these nodes.
    fn hint(&mut self, nodes: NodeSet) {
        self.changed.add(nodes);
        if let Some(Signals { bell: Some(bell), .. }) = self.signals.as_deref() {
            bell.notify_one();
        }
    }

    /// Returns those of these callers that want to hear of the holder.
    fn hearers(&self, is_meant: impl Fn(&Waiter) -> bool) -> Vec<Hearer> {
        let callers = self.callers.waiters().enumerate().filter(|(_, waiter)| is_meant(waiter));
        let hearer = |(before, waiter): (usize, &Waiter)| {
            let on_wait = waiter.acquisition.on_wait.clone()?;
            Some(Hearer { on_wait, before, since: waiter.acquisition.since })
        };
        callers.filter_map(hearer).collect()
    }

    fn signals_mut(&mut self) -> &mut Signals {
        self.signals.get_or_insert_default()
    }
}

impl WaitQueues {
    /// Creates queues of their own that receive the same hints about these keys, for callers which want more than the
    /// key, and so do not queue with the others.
    pub(crate) fn branch(self: &Arc<Self>, keys: impl Iterator<Item = Arc<str>>) -> Arc<WaitQueues> {
        self.branch_for(keys.collect(), false)
    }

    /// The same for an observer of `key`, which only watches, and also learns when this process acquires it.
    pub(crate) fn observe(self: &Arc<Self>, key: &Arc<str>) -> Arc<WaitQueues> {
        let branch = self.branch_for(vec![key.clone()], true);
        branch.watch(key);
        branch
    }

    fn branch_for(self: &Arc<Self>, keys: Vec<Arc<str>>, observes: bool) -> Arc<WaitQueues> {
        let root = self.branch.as_ref().map_or(self, |branch| &branch.root).clone();
        let of_keys = Branch { root: root.clone(), keys: keys.clone(), observes };
        let branch = Arc::new(WaitQueues { branch: Some(of_keys), ..WaitQueues::default() });
        let mut inside = root.inside.lock();
        for key in keys {
            inside.branches.entry(key).or_default().push(Arc::downgrade(&branch));
        }
        drop(inside);
        root.branched.store(true, Ordering::Relaxed);
        root.used.store(true, Ordering::Relaxed);
        branch
    }

    /// Reads or changes the queue of this key, if there is one, under the lock.
    fn with<T>(&self, key: &str, work: impl FnOnce(&mut WaitQueue) -> T) -> Option<T> {
        self.inside.lock().by_key.get_mut(key).map(work)
    }

    /// Returns the key, if it is held here or contended for.
    pub(crate) fn known(&self, key: &str) -> Option<Arc<str>> {
        self.inside.lock().by_key.get_key_value(key).map(|(key, _)| key.clone())
    }

    /// The number of keys that are held here or contended for.
    pub(crate) fn len(&self) -> usize {
        let inside = self.inside.lock();
        let only_heard_of = inside.leases.keys().filter(|key| !inside.by_key.contains_key(*key)).count();
        inside.by_key.len() + only_heard_of
    }

    /// Whether this process holds the key, or another caller in it came first.
    pub(crate) fn is_taken(&self, key: &str) -> bool {
        self.with(key, |queue| queue.callers.is_taken()).unwrap_or_default()
    }

    /// Whether this process holds the key by a lease that is not over. Its keeper may see later that it is.
    pub(crate) fn is_held(&self, key: &str, now: Moment) -> bool {
        let lease = self.with(key, |queue| queue.lease.upgrade()).flatten();
        lease.is_some_and(|lease| lease.runs_until(now).is_some())
    }

    /// Whether the queue has a waiter that is not being served yet.
    pub(crate) fn is_waited_for(&self, key: &str) -> bool {
        self.with(key, |queue| queue.callers.is_waited_for()).unwrap_or_default()
    }

    /// Joins the end of the queue. A caller that does not wait joins only an empty one: checked
    /// under the same lock, or it might wait for a caller that came in between.
    pub(crate) fn join(self: &Arc<Self>, acquisition: &Arc<AcquireRequest>, runtime: &Handle) -> Joined {
        self.used.store(true, Ordering::Relaxed);
        let mut inside = self.inside.lock();
        inside.arrivals = inside.arrivals.saturating_add(1);
        let arrival = inside.arrivals;
        match inside.by_key.entry(acquisition.queue_key().clone()) {
            Entry::Occupied(mut queue) => {
                let (sender, delivery) = oneshot::channel();
                let (acquisition, runtime) = (acquisition.clone(), runtime.clone());
                let may_wait = acquisition.wait != Wait::Never;
                let waiter = || Waiter { arrival, acquisition, sender, runtime };
                if queue.get_mut().callers.join(may_wait, waiter) {
                    let place = Place { queues: self.clone(), key: queue.key().clone(), arrival };
                    Joined::Behind(place, delivery)
                } else {
                    Joined::Taken
                }
            }
            Entry::Vacant(queue) => {
                queue.insert(WaitQueue { callers: LocalQueue::serving(arrival), ..WaitQueue::default() });
                Joined::First
            }
        }
    }

    /// Takes the first waiter. If there is none, closes the queue; the next caller starts a new
    /// one.
    pub(crate) fn next_or_end(&self, key: &str) -> Option<Waiter> {
        let mut inside = self.inside.lock();
        let queue = inside.by_key.get_mut(key)?;
        let waiter = queue.callers.serve_next();
        let ended = if waiter.is_none() { inside.by_key.remove(key) } else { None };
        drop(inside);
        drop(ended);
        waiter
    }

    /// Closes the queue with all its waiters, because nothing serves it any more.
    pub(crate) fn end(&self, key: &str) {
        let ended = self.inside.lock().by_key.remove(key);
        // Dropped after the lock is released: it owns data of callers.
        drop(ended);
    }

    /// Takes the first waiter.
    pub(crate) fn next(&self, key: &str) -> Option<Waiter> {
        self.with(key, |queue| queue.callers.take_next())?
    }

    /// Takes those that may follow a reader.
    pub(crate) fn followers(&self, key: &str) -> Vec<Waiter> {
        self.with(key, |queue| queue.callers.followers()).unwrap_or_default()
    }

    /// Puts a waiter back in its former place, unless it has gone. A key that was held for it must
    /// be [released](WaitQueues::clear_held) only after that.
    pub(crate) fn put_back(&self, key: &str, waiter: Waiter) {
        if waiter.sender.is_closed() {
            return;
        }
        if let Some(queue) = self.inside.lock().by_key.get_mut(key) {
            queue.callers.put_back(waiter);
        }
    }

    /// Records that this process no longer holds the key exclusively.
    pub(crate) fn clear_held(&self, key: &str) {
        self.with(key, |queue| {
            queue.callers.set_held(false);
            queue.lease = Weak::new();
        });
    }

    /// Makes this process pause before it acquires the key again, until the given moment.
    pub(crate) fn set_cooldown(&self, key: &Arc<str>, (now, until): (Moment, Moment)) {
        self.contended.store(true, Ordering::Relaxed);
        let mut inside = self.inside.lock();
        inside.cooldowns.retain(|_, until| now < *until);
        inside.cooldowns.insert(key.clone(), until);
    }

    /// Whether this process must pause before it acquires the key. Costs nothing if no other client ever wanted a lock.
    pub(crate) fn take_cooldown(&self, key: &str, now: impl FnOnce() -> Moment) -> bool {
        if !self.contended.load(Ordering::Relaxed) {
            return false;
        }
        let now = now();
        let mut inside = self.inside.lock();
        inside.cooldowns.remove(key).is_some_and(|until| now < until)
    }

    /// Records that other clients want the key.
    pub(crate) fn mark_contended(&self, key: &Arc<str>, now: Moment) {
        self.contended.store(true, Ordering::Relaxed);
        self.inside.lock().contended.remember(key, now);
    }

    /// Whether others wanted the key a moment ago. Costs nothing if none ever wanted a lock.
    pub(crate) fn is_contended(&self, key: &str, now: impl FnOnce() -> Moment) -> bool {
        self.contended.load(Ordering::Relaxed) && self.inside.lock().contended.contains(key, now())
    }

    /// How the last attempt for `key` was lost.
    pub(crate) fn news(&self, key: &str) -> Option<News> {
        self.with(key, |queue| queue.signals.as_ref()?.news.clone())?
    }

    /// Keeps the news for callers that stop waiting, and reports the holder to the listeners.
    pub(crate) fn report(
        &self,
        key: &str,
        news: News,
        seen: impl FnOnce() -> (Option<Holder>, Option<u32>),
        now: Moment,
    ) {
        let hearers = self.with(key, |queue| {
            queue.signals_mut().news = Some(news);
            queue.hearers(|_| true)
        });
        // The contender comes before all of them.
        notify_all(hearers, 1, seen, now);
    }

    /// Records that this process holds the key by this lease, and reports that to the listeners.
    pub(crate) fn set_held(&self, key: &str, lease: &Arc<LeaseState>, needed: usize, now: Moment) {
        let hearers = self.with(key, |queue| {
            queue.callers.set_held(true);
            queue.lease = Arc::downgrade(lease);
            if let Some(signals) = &mut queue.signals {
                signals.news = None;
            }
            queue.hearers(|_| true)
        });
        notify_all(hearers, 0, || (Some(lease.holder(needed, now)), None), now);
    }

    /// Reports this process as the holder to the caller in this place, which has come since: nothing else is to be heard
    /// of before the lease ends.
    pub(crate) fn report_held(&self, place: &Place, needed: usize, now: Moment) {
        let found = self.with(&place.key, |queue| {
            Some((queue.lease.upgrade()?, queue.hearers(|waiter| waiter.arrival == place.arrival)))
        });
        if let Some((lease, hearers)) = found.flatten() {
            notify_all(Some(hearers), 0, || (Some(lease.holder(needed, now)), None), now);
        }
    }
}

/// A caller to whom the holder is reported.
struct Hearer {
    on_wait: Arc<OnWait>,
    /// How many come before it that are not served yet.
    before: usize,
    since: Moment,
}

/// Reports to these callers, before each of which `served` others come. Not under a lock: a listener may do anything except
/// block.
fn notify_all(
    hearers: Option<Vec<Hearer>>,
    served: usize,
    seen: impl FnOnce() -> (Option<Holder>, Option<u32>),
    now: Moment,
) {
    let Some(hearers) = hearers.filter(|hearers| !hearers.is_empty()) else { return };
    let (holder, processes) = seen();
    for Hearer { on_wait, before, since } in hearers {
        let ahead = before + served;
        let waiting = Waiting { holder: holder.clone(), ahead, processes, waited: now.since(since) };
        notify_listener(&*on_wait, &waiting);
    }
}

impl fmt::Debug for WaitQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitQueues").field("keys", &self.len()).finish_non_exhaustive()
    }
}
