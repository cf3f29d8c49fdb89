//! Whether the clients of a deployment have the same nodes, as far as the servers report it (rule I-49).
//!
//! A client that is connected to all of its nodes knows which data sets they are, by whatever address it reaches
//! them, and records this list on each of them now and then. Nodes that two lists have in common show both. As
//! the identity of a node changes when it restarts, lists differ for the moment in which clients reconnect, so a
//! difference counts only if it lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Identity;
use super::hint::{ConnectionState, StatusListener};
use crate::runtime::{Mutex, clock::Clock};
use quorlock_protocol::{Moment, Quorum, list_of_nodes};

/// How long after a change of our list those of others may still be old ones. It takes a second to reconnect.
pub(crate) const SETTLED: Duration = Duration::from_secs(30);
/// Another list counts once it has been recorded twice, this far apart: a client that has not noticed the
/// restart of an idle node records its old list once more.
const AGAIN: Duration = Duration::from_secs(20);
/// For how long a difference is reported after the other list was last recorded.
const REPORTED: Duration = Duration::from_secs(10 * 60);
/// As many as a server keeps.
const MOST: usize = 16;

/// Compares the list of nodes of this client with those that other clients have recorded.
#[derive(Debug)]
pub(crate) struct NodeLists {
    /// Whether all nodes are connected.
    complete: AtomicBool,
    quorum: Quorum,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The nodes that are connected.
    connected: Vec<Option<Arc<Identity>>>,
    /// The list when all of them last were, and since when.
    ours: Option<(Arc<str>, Moment)>,
    others: Vec<OtherList>,
}

#[derive(Debug)]
struct OtherList {
    nodes: Arc<str>,
    first: Moment,
    last: Moment,
}

impl NodeLists {
    pub(crate) fn new(quorum: Quorum) -> Arc<NodeLists> {
        let inner = Inner { connected: vec![None; quorum.nodes()], ours: None, others: Vec::new() };
        Arc::new(NodeLists { complete: AtomicBool::new(false), quorum, inner: Mutex::new(inner) })
    }

    /// Returns the quorum of this client.
    pub(crate) fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// Returns an observer of the node at `index`.
    pub(crate) fn observer(
        self: &Arc<NodeLists>,
        index: usize,
        clock: &Arc<dyn Clock>,
    ) -> Arc<dyn StatusListener> {
        Arc::new(ListObserver { lists: Arc::clone(self), index, clock: Arc::clone(clock) })
    }

    /// Whether there is a list to record.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }

    /// Returns the list to record, while all nodes are connected.
    pub(crate) fn ours(&self) -> Option<Arc<str>> {
        let inner = self.inner.lock();
        inner.ours.as_ref().filter(|_| self.is_complete()).map(|(nodes, _)| Arc::clone(nodes))
    }

    fn set(&self, index: usize, connected: Option<Arc<Identity>>, now: Moment) {
        let mut inner = self.inner.lock();
        if let Some(node) = inner.connected.get_mut(index) {
            *node = connected;
        }
        let all: Option<Vec<&str>> = inner.connected.iter().map(|node| node.as_ref()?.lasting_id()).collect();
        let list = all.map(list_of_nodes);
        self.complete.store(list.is_some(), Ordering::Relaxed);
        if let Some(list) = list
            && inner.ours.as_ref().is_none_or(|(ours, _)| **ours != *list)
        {
            inner.ours = Some((list.into(), now));
            inner.others.clear();
        }
    }

    /// Records the lists that a node has reported, each with the time since it was recorded there. Returns one
    /// that counts as a difference from now on.
    pub(crate) fn hear(
        &self,
        reported: impl IntoIterator<Item = (Arc<str>, Duration)>,
        now: Moment,
    ) -> Option<Arc<str>> {
        let mut inner = self.inner.lock();
        let Inner { ours: Some((ours, since)), others, .. } = &mut *inner else { return None };
        let mut found = None;
        for (nodes, ago) in reported {
            let recorded = now.back(ago);
            if nodes == *ours || recorded < *since + SETTLED {
                continue;
            }
            if let Some(known) = others.iter_mut().find(|known| known.nodes == nodes) {
                let before = known.counts();
                known.last = known.last.max(recorded);
                if !before && known.counts() {
                    found = Some(nodes);
                }
            } else if others.len() < MOST {
                others.push(OtherList { nodes, first: recorded, last: recorded });
            }
        }
        found
    }

    /// Returns our list and one that differs from it, if one was recorded recently.
    pub(crate) fn differing(&self, now: Moment) -> Option<(Arc<str>, Arc<str>)> {
        let inner = self.inner.lock();
        let (ours, _) = inner.ours.as_ref()?;
        let recent = |other: &&OtherList| other.counts() && now.since(other.last) < REPORTED;
        let other = inner.others.iter().rev().find(recent)?;
        Some((Arc::clone(ours), Arc::clone(&other.nodes)))
    }
}

impl OtherList {
    fn counts(&self) -> bool {
        self.last >= self.first + AGAIN
    }
}

/// Observes one node.
#[derive(Debug)]
struct ListObserver {
    lists: Arc<NodeLists>,
    index: usize,
    clock: Arc<dyn Clock>,
}

impl StatusListener for ListObserver {
    fn on_status(&self, contact: ConnectionState) {
        let connected =
            if let ConnectionState::Connected(identity) = contact { Some(identity) } else { None };
        self.lists.set(self.index, connected, self.clock.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(seconds))
    }

    fn node(id: &str) -> Arc<Identity> {
        Arc::new(Identity::new(id, Moment::ORIGIN, Duration::ZERO))
    }

    fn client(ids: [&str; 3], now: Moment) -> Arc<NodeLists> {
        let lists = NodeLists::new(Quorum::majority(3));
        for (index, id) in ids.into_iter().enumerate() {
            assert_eq!(lists.ours(), None);
            lists.set(index, Some(node(id)), now);
        }
        lists
    }

    fn ours(lists: &NodeLists) -> Arc<str> {
        lists.ours().unwrap()
    }

    /// Hears that `list` was recorded at this moment.
    fn hear(lists: &NodeLists, list: &Arc<str>, recorded: u64) -> Option<Arc<str>> {
        lists.hear([(Arc::clone(list), Duration::from_secs(3))], at(recorded + 3))
    }

    #[test]
    fn i49_another_list_that_is_still_used_is_reported_once() {
        let (lists, other) = (client(["a", "b", "c"], at(100)), ours(&client(["a", "b", "d"], at(0))));
        for (recorded, found) in [(129, false), (131, false), (150, false), (151, true), (181, false)] {
            assert_eq!(hear(&lists, &other, recorded).is_some(), found, "at {recorded}");
        }
        assert_eq!(lists.differing(at(200)), Some((ours(&lists), other)));
        assert_eq!(lists.differing(at(182 + 10 * 60)), None, "the other client was put right");
    }

    #[test]
    fn the_same_nodes_in_another_order_are_the_same_list() {
        let lists = client(["a", "b", "c"], at(0));
        let other = ours(&client(["c", "a", "b"], at(0)));
        assert_eq!(ours(&lists), other);
        assert!((40..400).all(|recorded| hear(&lists, &other, recorded).is_none()));
    }

    #[test]
    fn a_restarted_node_makes_no_difference() {
        let (one, two) = (client(["a", "b", "c"], at(0)), client(["a", "b", "c"], at(0)));
        let before = ours(&one);
        one.set(2, None, at(100));
        assert!(one.ours().is_none() && !one.is_complete(), "no list is recorded meanwhile");
        one.set(2, Some(node("c2")), at(101));
        // The other one notices it later.
        for recorded in [102, 125, 140] {
            assert_eq!(hear(&one, &before, recorded), None);
        }
        two.set(2, Some(node("c2")), at(141));
        for recorded in [142, 180, 220] {
            assert_eq!(hear(&one, &ours(&two), recorded), None);
            assert_eq!(hear(&two, &ours(&one), recorded), None);
        }
        assert!(one.differing(at(230)).is_none() && two.differing(at(230)).is_none());
    }

    #[test]
    fn a_connection_to_the_same_process_is_no_change() {
        let (lists, other) = (client(["a", "b", "c"], at(0)), ours(&client(["a", "b", "d"], at(0))));
        assert_eq!(hear(&lists, &other, 60), None);
        lists.set(1, None, at(70));
        lists.set(1, Some(node("b")), at(71));
        assert_eq!(hear(&lists, &other, 90), Some(other));
    }
}
