//! What this process knows of each key that it holds or wants: who waits for it, in the order
//! they came, and what the nodes have hinted at.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::hold::Hold;
use super::options::{AcquireRequest, News};
use super::recently_contended::Contended;
use super::wait::{Wait, Waiting, tell};
use crate::error::AcquireError;
use crate::node::{Hint, HintListener};
use crate::quorum::node_set::NodeSet;
use crate::quorum::vote_report::Holder;
use quorlock_protocol::Moment;

/// All lines of a coordinator. A key has one while a keeper holds it or contends for it.
#[derive(Default)]
pub(crate) struct Lines {
    inside: Mutex<Inner>,
    /// Those from which these hear of hints. They live on for it when their coordinator has gone.
    trunk: Option<Arc<Lines>>,
    /// Whether there have ever been branches.
    branched: AtomicBool,
    /// Whether anybody has ever waited here, or in a branch.
    used: AtomicBool,
    /// Whether others have ever wanted a lock of these.
    contended: AtomicBool,
}

struct Inner {
    /// In order, so that a seed reproduces in which order the lines are told of changes.
    by_key: BTreeMap<Arc<str>, Line>,
    arrivals: NonZeroU64,
    /// Until when to stay back from keys that others wanted when they were released here.
    courtesies: HashMap<Arc<str>, Moment>,
    /// Which keys others wanted a moment ago.
    contended: Contended,
    /// The nodes that tell of changes.
    hearing: NodeSet,
    /// Other lines, which hear the same.
    branches: Vec<Weak<Lines>>,
    /// The keys by which nodes tell that it is our turn, and the lock of each.
    turns: HashMap<Arc<str>, Arc<str>>,
}

impl Default for Inner {
    fn default() -> Inner {
        Inner {
            by_key: BTreeMap::new(),
            arrivals: NonZeroU64::MIN,
            courtesies: HashMap::new(),
            contended: Contended::default(),
            hearing: NodeSet::default(),
            branches: Vec::new(),
            turns: HashMap::new(),
        }
    }
}

/// There is one for each lock that is held, so what only those need who wait is elsewhere.
#[derive(Default)]
struct Line {
    /// Whether this process holds the key.
    held: bool,
    /// The nodes that have hinted at a change since the contest last asked.
    changed: NodeSet,
    /// Who has been taken out of the line, has not got the key yet, and still waits for it.
    served: Option<NonZeroU64>,
    crowd: Option<Box<Crowd>>,
}

/// Those who wait in a line, and what they are to know.
#[derive(Default)]
struct Crowd {
    /// In the order of their arrival.
    waiters: VecDeque<Waiter>,
    /// Rings when a node hints at a change, for whoever has asked for it.
    bell: Option<Arc<Notify>>,
    /// The nodes that have told that it is our turn.
    told: NodeSet,
    /// How the last contest was lost.
    news: Option<News>,
}

impl Line {
    fn set_held(&mut self, held: bool) {
        self.held = held;
        self.served = None;
    }

    /// These nodes have hinted at a change.
    fn hint(&mut self, nodes: NodeSet) {
        self.changed.add(nodes);
        if let Some(Crowd { bell: Some(bell), .. }) = self.crowd.as_deref() {
            bell.notify_one();
        }
    }

    fn crowd(&mut self) -> &mut Crowd {
        self.crowd.get_or_insert_default()
    }

    /// Whether this process holds the key, or somebody in it came first.
    fn is_taken(&self) -> bool {
        self.held || self.served.is_some() || self.waiters().next().is_some()
    }

    fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.crowd.iter().flat_map(|crowd| &crowd.waiters)
    }

    /// The first who still waits. Those who have gone leave by themselves, by dropping their
    /// [`Place`]: they own somebody else's data, which is not to be dropped under the lock.
    fn take_first(&mut self) -> Option<Waiter> {
        let waiters = &mut self.crowd.as_mut()?.waiters;
        let first = waiters.iter().position(|waiter| !waiter.door.is_closed())?;
        waiters.remove(first)
    }
}

/// In whose line a key was held that is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// One of these.
    Own,
    /// One of those of the other mode: of a reader's key writers have to hear, and the other way round.
    Other,
}

/// Somebody who waits.
pub(crate) struct Waiter {
    arrival: NonZeroU64,
    pub(crate) plan: Arc<AcquireRequest>,
    pub(crate) door: Door,
    /// Where it waits.
    pub(crate) runtime: Handle,
}

impl Waiter {
    /// Somebody who stands in no line.
    pub(crate) fn alone(plan: Arc<AcquireRequest>, runtime: Handle) -> (Waiter, Delivery) {
        let (door, delivery) = oneshot::channel();
        (Waiter { arrival: NonZeroU64::MIN, plan, door, runtime }, delivery)
    }
}

/// Where the lock is delivered, or the reason why there is none.
pub(crate) type Door = oneshot::Sender<Result<Hold, Box<AcquireError>>>;
/// The other side of that door. Who waits no longer drops it.
pub(crate) type Delivery = oneshot::Receiver<Result<Hold, Box<AcquireError>>>;

/// What came of joining a line.
pub(crate) enum Joined {
    /// The line is new, and somebody has to serve it, beginning with this one, who does not stand in it.
    First,
    /// It is being served.
    Behind(Place, Delivery),
    /// This process holds the key, or others in it came first, and the caller does not wait.
    Taken,
}

/// A place in a line, given up when dropped.
pub(crate) struct Place {
    lines: Arc<Lines>,
    key: Arc<str>,
    arrival: NonZeroU64,
}

impl Lines {
    /// Lines of their own that hear the same hints: of those who do not stand in line with the others,
    /// because they only watch, or want more than the key.
    pub(crate) fn branch(self: &Arc<Self>) -> Arc<Lines> {
        let branch = Arc::new(Lines { trunk: Some(self.clone()), ..Lines::default() });
        let mut inside = self.lock();
        branch.lock().hearing = inside.hearing;
        inside.branches.retain(|known| known.strong_count() > 0);
        inside.branches.push(Arc::downgrade(&branch));
        self.branched.store(true, Ordering::Relaxed);
        self.used.store(true, Ordering::Relaxed);
        branch
    }

    /// This process itself gives these keys back. The servers tell that to others only, so whoever waits
    /// for one of them in another line here is told by this; and may ask at once, since its request
    /// queues up behind the release at each node. `whose` line it was is served already.
    pub(crate) fn given_back<'a>(&self, keys: impl Iterator<Item = &'a Arc<str>> + Clone, whose: Whose) {
        match &self.trunk {
            Some(trunk) => trunk.given_back(keys, whose),
            // Where there are no others, nobody pays for them.
            None if whose == Whose::Own && !self.branched.load(Ordering::Relaxed) => {}
            None if !self.used.load(Ordering::Relaxed) => {}
            None => self.hint_all(&keys),
        }
    }

    fn hint_all<'a>(&self, keys: &(impl Iterator<Item = &'a Arc<str>> + Clone)) {
        let mut inside = self.lock();
        for key in keys.clone() {
            if let Some(line) = inside.by_key.get_mut(key) {
                line.hint(NodeSet::ALL);
            }
        }
        let branches: Vec<_> = inside.branches.iter().filter_map(Weak::upgrade).collect();
        drop(inside);
        for branch in &branches {
            branch.hint_all(keys);
        }
    }

    /// From now on hints for `key` are kept, though nobody here waits for it.
    pub(crate) fn watch(&self, key: &Arc<str>) {
        self.lock().by_key.entry(key.clone()).or_default();
    }

    /// The key, if it is held here or contended for.
    pub(crate) fn known(&self, key: &str) -> Option<Arc<str>> {
        self.lock().by_key.get_key_value(key).map(|(key, _)| key.clone())
    }

    /// Rings for those who contend for `key`: there is an offer.
    pub(crate) fn ring_for(&self, key: &str) {
        if let Some(line) = self.lock().by_key.get_mut(key) {
            line.hint(NodeSet::default());
        }
    }

    /// How many keys are held here or contended for.
    pub(crate) fn len(&self) -> usize {
        self.lock().by_key.len()
    }

    /// Whether this process holds the key, or somebody else in it came first.
    pub(crate) fn is_taken(&self, key: &str) -> bool {
        self.lock().by_key.get(key).is_some_and(Line::is_taken)
    }

    /// Whether this process holds the key.
    pub(crate) fn is_held(&self, key: &str) -> bool {
        self.lock().by_key.get(key).is_some_and(|line| line.held)
    }

    /// Whether somebody waits in the line who is not served yet.
    pub(crate) fn is_waited_for(&self, key: &str) -> bool {
        self.lock().by_key.get(key).is_some_and(|line| line.waiters().next().is_some())
    }

    /// Joins the end of the line for the waiter's key. A caller that does not wait joins only if nobody is
    /// in front of it: looked at under the same lock, or it might wait for a caller that came in between.
    pub(crate) fn join(self: &Arc<Self>, plan: &Arc<AcquireRequest>, runtime: &Handle) -> Joined {
        self.used.store(true, Ordering::Relaxed);
        let mut inside = self.lock();
        inside.arrivals = inside.arrivals.saturating_add(1);
        let arrival = inside.arrivals;
        match inside.by_key.entry(plan.line().clone()) {
            Entry::Occupied(line) if plan.wait == Wait::Never && line.get().is_taken() => Joined::Taken,
            Entry::Occupied(mut line) => {
                let (door, delivery) = oneshot::channel();
                line.get_mut().crowd().waiters.push_back(Waiter {
                    arrival,
                    plan: plan.clone(),
                    door,
                    runtime: runtime.clone(),
                });
                Joined::Behind(Place { lines: self.clone(), key: line.key().clone(), arrival }, delivery)
            }
            Entry::Vacant(line) => {
                line.insert(Line { served: Some(arrival), ..Line::default() });
                Joined::First
            }
        }
    }

    /// Takes out whoever has waited longest. When nobody waits the line ends, and whoever comes
    /// next starts a new one.
    pub(crate) fn next_or_end(&self, key: &str) -> Option<Waiter> {
        let mut inside = self.lock();
        let line = inside.by_key.get_mut(key)?;
        let waiter = line.take_first();
        line.served = waiter.as_ref().map(|waiter| waiter.arrival);
        let ended = if waiter.is_none() { inside.by_key.remove(key) } else { None };
        drop(inside);
        drop(ended);
        waiter
    }

    /// Ends the line, whoever waits in it: there is nobody to serve it any more.
    pub(crate) fn end(&self, key: &str) {
        let ended = self.lock().by_key.remove(key);
        // Dropped after the lock is gone: it owns somebody else's data.
        drop(ended);
    }

    /// Takes out whoever has waited longest.
    pub(crate) fn next(&self, key: &str) -> Option<Waiter> {
        self.lock().by_key.get_mut(key)?.take_first()
    }

    /// The waiter goes back to where it stood, unless it has gone meanwhile. A key that was held for it is
    /// [let go](Lines::let_go) after that, or a caller that does not wait might join in front of it.
    pub(crate) fn put_back(&self, key: &str, waiter: Waiter) {
        if waiter.door.is_closed() {
            return;
        }
        if let Some(line) = self.lock().by_key.get_mut(key) {
            let waiters = &mut line.crowd().waiters;
            let place = waiters.partition_point(|other| other.arrival < waiter.arrival);
            waiters.insert(place, waiter);
        }
    }

    /// This process does not hold the key any more.
    pub(crate) fn let_go(&self, key: &str) {
        if let Some(line) = self.lock().by_key.get_mut(key) {
            line.set_held(false);
        }
    }

    /// Until the moment given, this process is to stay back from the key.
    pub(crate) fn owe_courtesy(&self, key: &Arc<str>, until: Moment) {
        self.contended.store(true, Ordering::Relaxed);
        self.lock().courtesies.insert(key.clone(), until);
    }

    /// Whether this process is to stay back from the key at first. What was owed for other keys,
    /// and is over, is forgotten. Where others never wanted any, nobody pays for it.
    pub(crate) fn owes_courtesy(&self, key: &str, now: impl FnOnce() -> Moment) -> bool {
        if !self.contended.load(Ordering::Relaxed) {
            return false;
        }
        let now = now();
        let mut inside = self.lock();
        inside.courtesies.retain(|_, until| now < *until);
        inside.courtesies.remove(key).is_some()
    }

    /// Others want the key as well.
    pub(crate) fn meet_others(&self, key: &Arc<str>, now: Moment) {
        self.contended.store(true, Ordering::Relaxed);
        self.lock().contended.remember(key, now);
    }

    /// Whether others wanted the key a moment ago. Where none ever wanted any, nobody pays for it.
    pub(crate) fn others_want(&self, key: &str, now: impl FnOnce() -> Moment) -> bool {
        self.contended.load(Ordering::Relaxed) && self.lock().contended.is_about(key, now())
    }

    /// From now on what nodes tell by `turn_key` is kept for `key`.
    pub(crate) fn listen_for_turns(&self, turn_key: &Arc<str>, key: &Arc<str>) {
        self.lock().turns.insert(turn_key.clone(), key.clone());
    }

    /// Until now.
    pub(crate) fn forget_turns(&self, turn_key: &str) {
        self.lock().turns.remove(turn_key);
    }

    /// The nodes that have told since the last call that it is our turn at `key`.
    pub(crate) fn take_turns(&self, key: &str) -> NodeSet {
        let mut inside = self.lock();
        let crowd = inside.by_key.get_mut(key).and_then(|line| line.crowd.as_deref_mut());
        crowd.map_or_else(NodeSet::default, |crowd| std::mem::take(&mut crowd.told))
    }

    /// Forgets the hints so far: the nodes are about to be asked.
    pub(crate) fn ask_anew(&self, key: &str) {
        if let Some(line) = self.lock().by_key.get_mut(key) {
            line.changed = NodeSet::default();
        }
    }

    /// The nodes that have hinted at a change of `key` since, and those that would.
    pub(crate) fn hints(&self, key: &str) -> Heard {
        let inside = self.lock();
        let changed = inside.by_key.get(key).map_or_else(NodeSet::default, |line| line.changed);
        Heard { changed, hearing: inside.hearing }
    }

    /// Rings when a node hints at a change of `key`.
    pub(crate) fn bell(&self, key: &str) -> Option<Arc<Notify>> {
        self.lock().by_key.get_mut(key).map(|line| line.crowd().bell.get_or_insert_default().clone())
    }

    /// From now on `bell` rings when a node hints at a change of `key`.
    pub(crate) fn ring(&self, key: &str, bell: &Arc<Notify>) {
        if let Some(line) = self.lock().by_key.get_mut(key) {
            line.crowd().bell = Some(bell.clone());
        }
    }

    /// How the last contest for `key` was lost.
    pub(crate) fn news(&self, key: &str) -> Option<News> {
        self.lock().by_key.get(key)?.crowd.as_ref()?.news.clone()
    }

    /// Keeps the news for those who stop waiting, and tells whoever wants to be told who has the key. Without
    /// news it is this process that holds it now.
    pub(crate) fn tell(
        &self,
        key: &str,
        news: Option<News>,
        seen: impl FnOnce() -> (Option<Holder>, Option<u32>),
        now: Moment,
    ) {
        let mut told = Vec::new();
        {
            let mut inside = self.lock();
            let Some(line) = inside.by_key.get_mut(key) else { return };
            if news.is_none() {
                line.set_held(true);
            }
            if news.is_some() || line.crowd.is_some() {
                line.crowd().news = news;
            }
            for (ahead, waiter) in line.waiters().enumerate() {
                if let Some(on_wait) = &waiter.plan.on_wait {
                    told.push((on_wait.clone(), ahead + 1, waiter.plan.since));
                }
            }
        }
        if told.is_empty() {
            return;
        }
        // Not under the lock: a listener may do as it likes, except wait.
        let (holder, processes) = seen();
        for (on_wait, ahead, since) in told {
            tell(&*on_wait, &Waiting { holder: holder.clone(), ahead, processes, waited: now.since(since) });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Usually the waiter has been taken out to be served.
        let left = match self.lines.lock().by_key.get_mut(&self.key) {
            Some(line) => {
                line.served.take_if(|served| *served == self.arrival);
                let waiters = line.crowd.as_mut().map(|crowd| &mut crowd.waiters);
                waiters.and_then(|waiters| {
                    let place = waiters.binary_search_by_key(&self.arrival, |waiter| waiter.arrival).ok()?;
                    waiters.remove(place)
                })
            }
            None => None,
        };
        // Dropped after the lock is gone: it owns somebody else's data.
        drop(left);
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("keys", &self.len()).finish_non_exhaustive()
    }
}

/// Which nodes have hinted at a change, and which would.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Heard {
    changed: NodeSet,
    hearing: NodeSet,
}

impl Heard {
    /// What was heard of either of two keys.
    pub(crate) fn and(self, other: Heard) -> Heard {
        Heard { changed: self.changed.union(other.changed), hearing: self.hearing }
    }

    /// How many of these nodes have hinted.
    pub(crate) fn changed(self, among: NodeSet) -> usize {
        self.changed.intersection(among).len()
    }

    /// How many of these nodes would.
    pub(crate) fn hearing(self, among: NodeSet) -> usize {
        self.hearing.intersection(among).len()
    }
}

/// Listens to one node.
#[derive(Debug)]
pub(crate) struct Ear {
    /// Nodes keep their listeners, and may outlive the coordinator.
    pub(crate) lines: Weak<Lines>,
    pub(crate) node: usize,
}

impl HintListener for Ear {
    fn on_hint(&self, hint: Hint<'_>) {
        let Some(lines) = self.lines.upgrade() else { return };
        let node = NodeSet::of(self.node);
        let mut inside = lines.lock();
        match hint {
            Hint::Subscribed => inside.hearing.add(node),
            Hint::Invalidated(key) => {
                let key = std::str::from_utf8(key).unwrap_or_default();
                if let Some(lock) = inside.turns.get(key).cloned() {
                    if let Some(line) = inside.by_key.get_mut(&lock) {
                        line.crowd().told.add(node);
                        line.hint(NodeSet::default());
                    }
                } else if let Some(line) = inside.by_key.get_mut(key) {
                    line.hint(node);
                }
            }
            Hint::Flushed | Hint::Unsubscribed => {
                if hint == Hint::Unsubscribed {
                    inside.hearing.remove(self.node);
                }
                for line in inside.by_key.values_mut() {
                    line.hint(node);
                }
            }
        }
        let branches: Vec<_> = inside.branches.iter().filter_map(Weak::upgrade).collect();
        drop(inside);
        for branch in &branches {
            Ear { lines: Arc::downgrade(branch), node: self.node }.on_hint(hint);
        }
    }
}
