//! What the nodes hint at, for the waiters of each key.

use std::iter;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use super::WaitQueues;
use crate::engine::commands::Event;
use crate::engine::lease_state::LeaseState;
use crate::node::{Hint, HintListener};
use quorlock_protocol::machine::NodeSet;

/// Which of the two modes' queues held a key that is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HolderMode {
    /// This mode's.
    Same,
    /// The other mode's: writers must be notified of a reader's release, and the other way round.
    Other,
}

/// Whom a change by this process matters to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Audience {
    /// Waiters and observers.
    All,
    Observers,
}

impl WaitQueues {
    /// Hints that this process has released these keys. Servers do not notify the connection that
    /// made a change, so waiters in other queues of this process learn of it here. They may ask
    /// immediately: their request is queued behind the release at each node. Queues of the same
    /// mode (`mode`) without branches are served anyway.
    pub(crate) fn given_back<'a>(
        &self,
        keys: &(impl Iterator<Item = &'a Arc<str>> + Clone),
        mode: HolderMode,
    ) {
        let root = self.root();
        // Costs nothing where there are no other queues.
        let others = mode == HolderMode::Other || root.branched.load(Ordering::Relaxed);
        if others && root.used.load(Ordering::Relaxed) {
            root.hint_all(keys, Audience::All);
        }
    }

    /// Notifies the leases of this process that hear of changes of this key: one of a permit or of several locks is known
    /// to a branch.
    pub(crate) fn hint_leases(&self, key: &str) {
        self.root().hint_own_leases(key);
    }

    fn hint_own_leases(&self, key: &str) {
        let inside = self.inside.lock();
        let lease = inside.leases.get(key).and_then(Weak::upgrade);
        // An observer has no lease.
        let branches = inside.branches_for(iter::empty());
        drop(inside);
        if let Some(lease) = lease {
            lease.handle(Event::Hint);
        }
        for branch in &branches {
            branch.hint_own_leases(key);
        }
    }

    /// Hints to the observers in this process that it has acquired these keys, for the same reason. Costs nothing where
    /// there was never one.
    pub(crate) fn acquired<'a>(&self, keys: &(impl Iterator<Item = &'a Arc<str>> + Clone)) {
        let root = self.root();
        if root.observed.load(Ordering::Relaxed) {
            root.hint_all(keys, Audience::Observers);
        }
    }

    pub(super) fn root(&self) -> &WaitQueues {
        self.parent.as_ref().map_or(self, |parent| parent.root())
    }

    fn hint_all<'a>(&self, keys: &(impl Iterator<Item = &'a Arc<str>> + Clone), audience: Audience) {
        let mut inside = self.inside.lock();
        if audience == Audience::All || self.observes.is_some() {
            for key in keys.clone() {
                if let Some(queue) = inside.by_key.get_mut(key) {
                    queue.hint(NodeSet::ALL);
                }
            }
        }
        let branches = inside.branches_for(keys.clone().map(|key| &**key));
        drop(inside);
        for branch in &branches {
            branch.hint_all(keys, audience);
        }
    }

    /// Keeps hints for `key` from now on, although no caller waits for it.
    pub(crate) fn watch(&self, key: &Arc<str>) {
        self.inside.lock().by_key.entry(key.clone()).or_default();
    }

    /// Notifies the contender for `key` of an offer.
    pub(crate) fn notify_offer(&self, key: &str) {
        if let Some(queue) = self.inside.lock().by_key.get_mut(key) {
            queue.hint(NodeSet::default());
        }
    }

    /// Delivers notifications by `turn_key` to `key` from now on.
    pub(crate) fn listen_for_turns(&self, turn_key: &Arc<str>, key: &Arc<str>) {
        self.inside.lock().turns.insert(turn_key.clone(), key.clone());
    }

    /// Ends that.
    pub(crate) fn forget_turns(&self, turn_key: &str) {
        self.inside.lock().turns.remove(turn_key);
    }

    /// Takes the nodes that have notified us of our turn at `key` since the last call.
    pub(crate) fn take_turns(&self, key: &str) -> NodeSet {
        let mut inside = self.inside.lock();
        let signals = inside.by_key.get_mut(key).and_then(|queue| queue.signals.as_deref_mut());
        signals.map_or_else(NodeSet::default, |signals| std::mem::take(&mut signals.turns))
    }

    /// Whether there are such nodes.
    pub(crate) fn has_turn(&self, key: &str) -> bool {
        let inside = self.inside.lock();
        let signals = inside.by_key.get(key).and_then(|queue| queue.signals.as_deref());
        signals.is_some_and(|signals| !signals.turns.is_empty())
    }

    /// Has this lease hear of changes of its keys, if any node sends hints by now, and returns that.
    pub(crate) fn hear_for<'a>(
        &self,
        keys: impl Iterator<Item = &'a Arc<str>>,
        lease: &Arc<LeaseState>,
    ) -> bool {
        let mut inside = self.inside.lock();
        let hears = !inside.hearing.is_empty();
        if hears {
            inside.leases.extend(keys.map(|key| (key.clone(), Arc::downgrade(lease))));
        }
        hears
    }

    /// Ends that, unless the keys are those of another lease by now.
    pub(crate) fn stop_hearing_for<'a>(
        &self,
        keys: impl Iterator<Item = &'a Arc<str>>,
        lease: &Arc<LeaseState>,
    ) {
        let mut inside = self.inside.lock();
        for key in keys {
            if inside.leases.get(key).is_some_and(|known| known.as_ptr() == Arc::as_ptr(lease)) {
                inside.leases.remove(key);
            }
        }
    }

    /// Drops the hints so far: the nodes are about to be asked.
    pub(crate) fn clear_hints(&self, key: &str) {
        if let Some(queue) = self.inside.lock().by_key.get_mut(key) {
            queue.changed = NodeSet::default();
        }
    }

    /// Returns the nodes that have hinted at a change of `key`, and those that send hints.
    pub(crate) fn hints(&self, key: &str) -> HintState {
        let inside = self.inside.lock();
        let changed = inside.by_key.get(key).map_or_else(NodeSet::default, |queue| queue.changed);
        HintState { changed, hearing: inside.hearing }
    }

    /// Returns what is notified when a node hints at a change of `key`.
    pub(crate) fn bell(&self, key: &str) -> Option<Arc<Notify>> {
        self.inside
            .lock()
            .by_key
            .get_mut(key)
            .map(|queue| queue.signals_mut().bell.get_or_insert_default().clone())
    }

    /// Notifies `bell` from now on when a node hints at a change of `key`.
    pub(crate) fn ring(&self, key: &str, bell: &Arc<Notify>) {
        if let Some(queue) = self.inside.lock().by_key.get_mut(key) {
            queue.signals_mut().bell = Some(bell.clone());
        }
    }
}

/// The nodes that have hinted at a change, and those that send hints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HintState {
    pub(crate) changed: NodeSet,
    hearing: NodeSet,
}

impl HintState {
    /// Combines the hints for two keys.
    pub(crate) fn and(self, other: HintState) -> HintState {
        HintState { changed: self.changed.union(other.changed), hearing: self.hearing }
    }

    /// How many of these nodes have hinted.
    pub(crate) fn changed(self, among: NodeSet) -> usize {
        self.changed.intersection(among).len()
    }

    /// How many of these nodes send hints.
    pub(crate) fn hearing(self, among: NodeSet) -> usize {
        self.hearing.intersection(among).len()
    }
}

/// Receives the hints of one node.
#[derive(Debug)]
pub(crate) struct HintSink {
    /// Nodes keep their listeners, and may outlive the coordinator.
    pub(crate) queues: Weak<WaitQueues>,
    pub(crate) node: usize,
}

impl HintListener for HintSink {
    fn on_hint(&self, hint: Hint<'_>) {
        let Some(queues) = self.queues.upgrade() else { return };
        let node = NodeSet::of(self.node);
        let mut inside = queues.inside.lock();
        let mut lease = None;
        match hint {
            Hint::Subscribed => inside.hearing.add(node),
            Hint::Invalidated(key) => {
                let key = str::from_utf8(key).unwrap_or_default();
                lease = inside.leases.get(key).and_then(Weak::upgrade);
                if let Some(lock) = inside.turns.get(key).cloned() {
                    if let Some(queue) = inside.by_key.get_mut(&lock) {
                        queue.signals_mut().turns.add(node);
                        queue.hint(NodeSet::default());
                    }
                } else if let Some(queue) = inside.by_key.get_mut(key) {
                    queue.hint(node);
                }
            }
            Hint::Flushed | Hint::Unsubscribed => {
                if hint == Hint::Unsubscribed {
                    inside.hearing.remove(self.node);
                }
                for queue in inside.by_key.values_mut() {
                    queue.hint(node);
                }
            }
        }
        let branches = match hint {
            Hint::Invalidated(key) => inside.branches_for(str::from_utf8(key).into_iter()),
            Hint::Subscribed | Hint::Unsubscribed | Hint::Flushed => inside.all_branches(),
        };
        drop(inside);
        if let Some(lease) = lease {
            lease.handle(Event::Hint);
        }
        for branch in &branches {
            HintSink { queues: Arc::downgrade(branch), node: self.node }.on_hint(hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There may be thousands of observers, and each of them would be asked at each release.
    #[test]
    fn a_hint_reaches_the_observers_of_its_key_alone() {
        let root = Arc::<WaitQueues>::default();
        let observed: Vec<_> = ["a", "a", "b"].map(|key| root.observe(&key.into())).into();
        let reached = |key: &str| root.inside.lock().branches_for(iter::once(key)).len();
        assert_eq!(["a", "b", "c"].map(reached), [2, 1, 0]);
        let sink = HintSink { queues: Arc::downgrade(&root), node: 0 };
        sink.on_hint(Hint::Subscribed);
        sink.on_hint(Hint::Invalidated(b"b"));
        let heard = |at: usize, key| observed[at].hints(key).changed(NodeSet::ALL);
        assert_eq!([heard(0, "a"), heard(1, "a"), heard(2, "b")], [0, 0, 1]);
        sink.on_hint(Hint::Flushed);
        assert_eq!([heard(0, "a"), heard(1, "a"), heard(2, "b")], [1, 1, 1]);
        for queues in &observed {
            queues.stop_observing();
        }
        assert!(root.inside.lock().observers.is_empty(), "none is left of them");
    }
}
