//! What the nodes hint at, for the waiters of each key.

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
            keys.clone().for_each(|key| root.hint(key, NodeSet::ALL, Audience::All));
        }
    }

    /// Notifies the lease of this process that hears of changes of this key.
    pub(crate) fn hint_leases(&self, key: &str) {
        let lease = self.root().inside.lock().leases.get(key).and_then(Weak::upgrade);
        if let Some(lease) = lease {
            lease.handle(Event::Hint);
        }
    }

    /// Hints to the observers in this process that it has acquired these keys, for the same reason. Costs nothing where
    /// there are no other queues.
    pub(crate) fn acquired<'a>(&self, keys: &(impl Iterator<Item = &'a Arc<str>> + Clone)) {
        let root = self.root();
        if root.branched.load(Ordering::Relaxed) {
            keys.clone().for_each(|key| root.hint(key, NodeSet::ALL, Audience::Observers));
        }
    }

    fn root(&self) -> &WaitQueues {
        self.branch.as_ref().map_or(self, |branch| &branch.root)
    }

    /// Records hints from these nodes in the queues of this key, here and in the branches that hear of it.
    fn hint(&self, key: &str, nodes: NodeSet, audience: Audience) {
        let mut inside = self.inside.lock();
        if audience == Audience::All
            && let Some(queue) = inside.by_key.get_mut(key)
        {
            queue.hint(nodes);
        }
        let branches = inside.branches.get(key).into_iter().flatten();
        let branches: Vec<_> = branches.filter_map(Weak::upgrade).collect();
        drop(inside);
        for branch in &branches {
            let observes = branch.branch.as_ref().is_some_and(|branch| branch.observes);
            if audience == Audience::All || observes {
                branch.with(key, |queue| queue.hint(nodes));
            }
        }
    }

    /// Keeps hints for `key` from now on, although no caller waits for it.
    pub(crate) fn watch(&self, key: &Arc<str>) {
        self.inside.lock().by_key.entry(key.clone()).or_default();
    }

    /// Notifies the contender for `key` of an offer.
    pub(crate) fn notify_offer(&self, key: &str) {
        self.with(key, |queue| queue.hint(NodeSet::default()));
    }

    /// Delivers notifications by `turn_key` to `key` from now on.
    pub(crate) fn listen_for_turns(self: &Arc<Self>, turn_key: &Arc<str>, key: &Arc<str>) {
        let of_lock = (Arc::downgrade(self), key.clone());
        self.root().inside.lock().turns.insert(turn_key.clone(), of_lock);
    }

    /// Ends that.
    pub(crate) fn forget_turns(&self, turn_key: &str) {
        self.root().inside.lock().turns.remove(turn_key);
    }

    /// Records that this node has notified us of our turn at `key`.
    fn note_turn(&self, key: &str, node: NodeSet) {
        self.with(key, |queue| {
            queue.signals_mut().turns.add(node);
            queue.hint(NodeSet::default());
        });
    }

    /// Takes the nodes that have notified us of our turn at `key` since the last call.
    pub(crate) fn take_turns(&self, key: &str) -> NodeSet {
        let turns = self.with(key, |queue| Some(std::mem::take(&mut queue.signals.as_mut()?.turns)));
        turns.flatten().unwrap_or_default()
    }

    /// Whether there are such nodes.
    pub(crate) fn has_turn(&self, key: &str) -> bool {
        let turns = self.with(key, |queue| queue.signals.as_ref().map(|signals| signals.turns));
        turns.flatten().is_some_and(|turns| !turns.is_empty())
    }

    /// Has this lease hear of changes of its keys, if any node sends hints by now, and returns that.
    pub(crate) fn hear_for<'a>(
        &self,
        keys: impl Iterator<Item = &'a Arc<str>>,
        lease: &Arc<LeaseState>,
    ) -> bool {
        let mut inside = self.root().inside.lock();
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
        let mut inside = self.root().inside.lock();
        for key in keys {
            if inside.leases.get(key).is_some_and(|known| known.as_ptr() == Arc::as_ptr(lease)) {
                inside.leases.remove(key);
            }
        }
    }

    /// Drops the hints so far: the nodes are about to be asked.
    pub(crate) fn clear_hints(&self, key: &str) {
        self.with(key, |queue| queue.changed = NodeSet::default());
    }

    /// Returns the nodes that have hinted at a change of `key`, and those that send hints.
    pub(crate) fn hints(&self, key: &str) -> HintState {
        let hearing = self.root().inside.lock().hearing;
        let changed = self.with(key, |queue| queue.changed).unwrap_or_default();
        HintState { changed, hearing }
    }

    /// Returns what is notified when a node hints at a change of `key`.
    pub(crate) fn bell(&self, key: &str) -> Option<Arc<Notify>> {
        self.with(key, |queue| queue.signals_mut().bell.get_or_insert_default().clone())
    }

    /// Notifies `bell` from now on when a node hints at a change of `key`.
    pub(crate) fn ring(&self, key: &str, bell: &Arc<Notify>) {
        self.with(key, |queue| queue.signals_mut().bell = Some(bell.clone()));
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
        match hint {
            Hint::Subscribed => inside.hearing.add(node),
            Hint::Invalidated(key) => {
                let key = str::from_utf8(key).unwrap_or_default();
                let turn = inside.turns.get(key).cloned();
                drop(inside);
                if let Some((waits_in, lock)) = turn {
                    if let Some(queues) = waits_in.upgrade() {
                        queues.note_turn(&lock, node);
                    }
                } else {
                    queues.hint(key, node, Audience::All);
                    queues.hint_leases(key);
                }
            }
            Hint::Flushed | Hint::Unsubscribed => {
                if hint == Hint::Unsubscribed {
                    inside.hearing.remove(self.node);
                }
                let keys: Vec<_> = inside.by_key.keys().chain(inside.branches.keys()).cloned().collect();
                drop(inside);
                for key in keys {
                    queues.hint(&key, node, Audience::All);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    /// There may be thousands of them, and each would be asked at each release.
    #[test]
    fn a_hint_reaches_the_branches_of_its_key_alone() {
        let root = Arc::<WaitQueues>::default();
        let [a, b, turn]: [Arc<str>; 3] = ["a", "b", "turn"].map(Into::into);
        let mut branches = vec![root.observe(&a), root.observe(&b), root.branch([a.clone()].into_iter())];
        // As one of a set of locks is: its queues have a name of their own.
        let several = root.branch(iter::empty()).branch([&a, &b].map(Clone::clone).into_iter());
        branches.push(several);
        for (at, key) in [(2, &a), (3, &a), (3, &b)] {
            branches[at].watch(key);
        }
        let reached = |key: &str| root.inside.lock().branches.get(key).map_or(0, Vec::len);
        assert_eq!(["a", "b", "c"].map(reached), [3, 2, 0]);
        let sink = HintSink { queues: Arc::downgrade(&root), node: 0 };
        sink.on_hint(Hint::Subscribed);
        assert!(branches.iter().all(|queues| queues.hints("a").hearing(NodeSet::ALL) == 1));
        let heard = |at: usize, key| branches[at].hints(key).changed(NodeSet::ALL);
        let all = || [heard(0, "a"), heard(1, "b"), heard(2, "a"), heard(3, "a"), heard(3, "b")];
        sink.on_hint(Hint::Invalidated(b"b"));
        assert_eq!(all(), [0, 1, 0, 0, 1]);
        branches[2].listen_for_turns(&turn, &a);
        sink.on_hint(Hint::Invalidated(b"turn"));
        assert_eq!([2, 3].map(|at: usize| branches[at].has_turn("a")), [true, false]);
        sink.on_hint(Hint::Flushed);
        assert_eq!(all(), [1; 5]);
        for queues in &branches {
            queues.clear_hints("a");
        }
        root.acquired(&[a.clone()].iter());
        assert_eq!([heard(0, "a"), heard(2, "a"), heard(3, "a")], [NodeSet::ALL.len(), 0, 0]);
        root.given_back(&[a].iter(), HolderMode::Same);
        assert_eq!([2, 3].map(|at| heard(at, "a")), [NodeSet::ALL.len(); 2]);
        drop(branches);
        assert!(root.inside.lock().branches.is_empty(), "none is left of them");
    }
}
