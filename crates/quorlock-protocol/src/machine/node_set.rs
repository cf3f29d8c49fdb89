//! A subset of the nodes of a deployment.

use std::fmt;
use std::iter::FromIterator;

/// A set of nodes, by their positions in the configuration: one bit each, for at most 31 nodes (see
/// the builder).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeSet(u32);

impl NodeSet {
    /// All nodes, whatever their number.
    pub const ALL: NodeSet = NodeSet(u32::MAX);

    /// Returns the set of this node alone.
    #[must_use]
    pub fn of(node: usize) -> NodeSet {
        NodeSet(1u32.wrapping_shl(u32::try_from(node).unwrap_or(31)))
    }

    /// Whether the node with this index is in the set.
    #[must_use]
    pub fn contains(self, node: usize) -> bool {
        self.0 & NodeSet::of(node).0 != 0
    }

    /// Adds a node.
    pub fn insert(&mut self, node: usize) {
        self.add(NodeSet::of(node));
    }

    /// Takes a node out.
    pub fn remove(&mut self, node: usize) {
        self.0 &= !NodeSet::of(node).0;
    }

    /// Adds all nodes of another set.
    pub fn add(&mut self, others: NodeSet) {
        self.0 |= others.0;
    }

    /// Returns the nodes of either set.
    #[must_use]
    pub fn union(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 | other.0)
    }

    /// Returns the nodes of both sets.
    #[must_use]
    pub fn intersection(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 & other.0)
    }

    /// Returns all nodes except these.
    #[must_use]
    pub fn complement(self) -> NodeSet {
        NodeSet(!self.0)
    }

    /// Whether no node is in the set.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> NodeSet {
        nodes.into_iter().fold(NodeSet::default(), |set, node| set.union(NodeSet::of(node)))
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries((0..32).filter(|node| self.contains(*node))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_exactly_the_inserted_nodes() {
        let set: NodeSet = [0, 3, 30].into_iter().collect();
        let has = |set: NodeSet| (0..31).filter(|node| set.contains(*node)).collect::<Vec<_>>();
        assert_eq!((has(set), set.len()), (vec![0, 3, 30], 3));
        assert_eq!(has(set.intersection([3, 4].into_iter().collect())), [3]);
        assert_eq!(has(set.union(NodeSet::of(4))), [0, 3, 4, 30]);
        assert!(!set.complement().contains(3) && set.complement().contains(4));
        assert_eq!(has(NodeSet::ALL).len(), 31);
        let mut changed = set;
        changed.insert(7);
        changed.remove(0);
        assert_eq!(format!("{changed:?}"), "{3, 7, 30}");
    }
}
