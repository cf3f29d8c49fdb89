//! Whether the clients of a deployment have the same nodes, as far as the servers report it (rule I-49).
//!
//! A client knows which data sets the nodes are to which it is connected, by whatever address it reaches them, and
//! records this list on each of them now and then, with [`UNKNOWN`] for each of the others. Nodes that two lists have
//! in common show both. As the identity of a node changes when it restarts, lists differ for the moment in which
//! clients reconnect, so a difference counts only if it lasts.

use std::sync::Arc;
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

/// Stands in a list for a node whose identity its client does not know: it is not connected, or is a cluster, which
/// clients may know by different names.
pub(crate) const UNKNOWN: &str = "-";

/// Returns the list of these nodes. `None` is one whose identity is not known.
pub(crate) fn list_of<'a>(ids: impl IntoIterator<Item = Option<&'a str>>) -> String {
    let (mut unknown, mut known) = (Vec::new(), Vec::new());
    for id in ids {
        match id {
            Some(id) => known.push(id),
            None => unknown.push(UNKNOWN),
        }
    }
    let known = list_of_nodes(known);
    unknown.extend((!known.is_empty()).then_some(&*known));
    unknown.join(" ")
}

/// Whether two lists may be of the same nodes, each of which has had one identity.
pub(crate) fn may_be_same(one: &str, two: &str) -> bool {
    let number = |list: &str| list.split(' ').count();
    let unknown = |list: &str| list.split(' ').filter(|id| *id == UNKNOWN).count();
    number(one) == number(two) && lacks(one, two) <= unknown(one) && lacks(two, one) <= unknown(two)
}

/// Returns how many identities of `other` the list lacks. One that stands twice there has to stand twice here.
fn lacks(list: &str, other: &str) -> usize {
    let mut left: Vec<&str> = list.split(' ').collect();
    let lacking = |id: &&str| match left.iter().position(|has| has == id) {
        Some(index) => {
            left.swap_remove(index);
            false
        }
        None => true,
    };
    other.split(' ').filter(|id| *id != UNKNOWN).filter(lacking).count()
}

/// Compares the list of nodes of this client with those that other clients have recorded.
#[derive(Debug)]
pub(crate) struct NodeLists {
    quorum: Quorum,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    nodes: Vec<KnownNode>,
    /// The list, and since when these nodes are connected, and no others.
    ours: Option<(Arc<str>, Moment)>,
    /// When a node was last found under another identity than before.
    since: Moment,
    others: Vec<OtherList>,
}

/// The identity of a node, as far as it is one by which all clients know it.
#[derive(Clone, Debug, Default)]
struct KnownNode {
    /// While it is connected.
    now: Option<Arc<str>>,
    /// When it last was.
    last: Option<Arc<str>>,
}

#[derive(Debug)]
struct OtherList {
    nodes: Arc<str>,
    first: Moment,
    last: Moment,
}

impl NodeLists {
    pub(crate) fn new(quorum: Quorum) -> Arc<NodeLists> {
        let nodes = vec![KnownNode::default(); quorum.nodes()];
        let inner = Inner { nodes, ours: None, since: Moment::ORIGIN, others: Vec::new() };
        Arc::new(NodeLists { quorum, inner: Mutex::new(inner) })
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

    /// Returns the list to record: of all nodes, or of those that have been the only connected ones for a while.
    pub(crate) fn ours(&self, now: Moment) -> Option<Arc<str>> {
        let inner = self.inner.lock();
        let complete = inner.nodes.iter().all(|node| node.now.is_some());
        let (ours, _) = inner.ours.as_ref().filter(|(_, since)| complete || *since + SETTLED <= now)?;
        Some(Arc::clone(ours))
    }

    fn set(&self, index: usize, connected: Option<&Identity>, now: Moment) {
        let mut inner = self.inner.lock();
        let Inner { nodes, ours, since, others } = &mut *inner;
        let Some(node) = nodes.get_mut(index) else { return };
        let id = connected.and_then(Identity::lasting_id);
        if node.now.as_deref() == id {
            return;
        }
        node.now = id.map(Arc::from);
        if node.now.is_some() && node.now != node.last {
            node.last.clone_from(&node.now);
            *since = now;
            others.clear();
        }
        *ours = Some((list_of(nodes.iter().map(|node| node.now.as_deref())).into(), now));
    }

    /// Records the lists that a node has reported, each with the time since it was recorded there. Returns one
    /// that counts as a difference from now on, after ours.
    pub(crate) fn hear(
        &self,
        reported: impl IntoIterator<Item = (Arc<str>, Duration)>,
        now: Moment,
    ) -> Option<(Arc<str>, Arc<str>)> {
        let mut inner = self.inner.lock();
        let Inner { ours: Some((ours, _)), since, others, .. } = &mut *inner else { return None };
        let mut found = None;
        for (nodes, ago) in reported {
            let recorded = now.back(ago);
            if recorded < *since + SETTLED || may_be_same(ours, &nodes) {
                continue;
            }
            if let Some(known) = others.iter_mut().find(|known| known.nodes == nodes) {
                let before = known.counts();
                known.last = known.last.max(recorded);
                if !before && known.counts() {
                    found = Some((Arc::clone(ours), nodes));
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
            if let ConnectionState::Connected(identity) = &contact { Some(&**identity) } else { None };
        self.lists.set(self.index, connected, self.clock.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(seconds))
    }

    fn node(id: &str) -> Identity {
        Identity::new(id, Moment::ORIGIN, Duration::ZERO)
    }

    fn client<const NODES: usize>(ids: [&str; NODES], now: Moment) -> Arc<NodeLists> {
        let lists = NodeLists::new(Quorum::majority(NODES));
        for (index, id) in ids.into_iter().enumerate() {
            assert_eq!(lists.ours(now), None);
            lists.set(index, Some(&node(id)), now);
        }
        lists
    }

    fn ours(lists: &NodeLists) -> Arc<str> {
        lists.ours(Moment::ORIGIN).unwrap()
    }

    /// Hears that `list` was recorded at this moment.
    fn hear(lists: &NodeLists, list: &Arc<str>, recorded: u64) -> Option<Arc<str>> {
        let (ours, theirs) = lists.hear([(Arc::clone(list), Duration::from_secs(3))], at(recorded + 3))?;
        assert!(!may_be_same(&ours, &theirs));
        Some(theirs)
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
        assert_eq!(one.ours(at(100)), None, "no list is recorded meanwhile");
        one.set(2, Some(&node("c2")), at(101));
        // The other one notices it later.
        for recorded in [102, 125, 140] {
            assert_eq!(hear(&one, &before, recorded), None);
        }
        two.set(2, Some(&node("c2")), at(141));
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
        lists.set(1, Some(&node("b")), at(71));
        assert_eq!(hear(&lists, &other, 90), Some(other));
    }

    #[test]
    fn i49_a_node_that_does_not_answer_hides_no_difference_of_the_others() {
        let (lists, other) =
            (client(["a", "b", "c", "d", "e"], at(0)), client(["f", "g", "c", "d", "e"], at(0)));
        for client in [&lists, &other] {
            client.set(2, None, at(50));
            assert_eq!(client.ours(at(79)), None, "it may be back in a moment");
        }
        let [mine, theirs] = [&lists, &other].map(|client| client.ours(at(80)).unwrap());
        assert!(mine.starts_with("- ") && mine.split(' ').count() == 5, "{mine}");
        assert_eq!(hear(&lists, &theirs, 80), None);
        assert_eq!(hear(&lists, &theirs, 110).as_ref(), Some(&theirs));
        assert_eq!(lists.differing(at(120)), Some((mine, theirs)));

        // Of a list that may be ours nothing is known.
        let lists = client(["a", "b", "c"], at(0));
        lists.set(2, None, at(50));
        for other in [["a", "b", "c"], ["a", "b", "d"]].map(|ids| ours(&client(ids, at(0)))) {
            assert!((80..400).all(|recorded| hear(&lists, &other, recorded).is_none()));
        }
    }

    #[test]
    fn lists_of_nodes_that_are_not_known_may_be_the_same() {
        for (one, two, may_be) in [
            ("a b c", "a b c", true),
            ("a b c", "a b d", false),
            ("- a b", "a b c", true),
            ("- a b", "- a c", true),
            ("- a b", "a c d", false),
            ("- - a", "b c d", false),
            ("- a b", "a b", false),
            ("a a b", "a b b", false),
            ("a a b", "- a b", true),
        ] {
            assert_eq!((may_be_same(one, two), may_be_same(two, one)), (may_be, may_be), "{one} and {two}");
        }
    }

    #[test]
    fn a_node_is_known_by_what_has_one_vote() {
        let on_server = |history: &str| node(history).on_server("server");
        let lists = NodeLists::new(Quorum::majority(1));
        lists.set(0, Some(&on_server("one")), at(0));
        let one = ours(&lists);
        lists.set(0, Some(&on_server("two")), at(1));
        assert_eq!(ours(&lists), one, "as `quorlock doctor` knows it");
    }
}
