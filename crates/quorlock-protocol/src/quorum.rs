use std::fmt;

/// How many of how many nodes must grant.
///
/// Always a majority or more, so that any two quorums of a deployment share a node, which grants to
/// only one of them. A larger quorum tolerates nodes that lose data: two quorums share at least
/// `2 * needed - nodes` nodes, and one fewer than that may lose data (docs/trust.md). The price is
/// availability: only `nodes - needed` may be down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quorum {
    nodes: usize,
    needed: usize,
}

impl Quorum {
    /// Returns a quorum of more than half of the nodes: the smallest safe one.
    #[must_use]
    #[inline]
    pub fn majority(nodes: usize) -> Quorum {
        Quorum { nodes, needed: nodes / 2 + 1 }
    }

    /// Returns `needed` of `nodes`, or `None` if that is no majority or more than there are.
    #[must_use]
    #[inline]
    pub fn of(needed: usize, nodes: usize) -> Option<Quorum> {
        let safe = Quorum::majority(nodes).needed..=nodes;
        safe.contains(&needed).then_some(Quorum { nodes, needed })
    }

    /// Returns how many nodes there are.
    #[must_use]
    #[inline]
    pub fn nodes(self) -> usize {
        self.nodes
    }

    /// Returns how many must grant.
    #[must_use]
    #[inline]
    pub fn needed(self) -> usize {
        self.needed
    }

    /// Returns how many nodes that do not grant keep a client from a quorum: `nodes - needed + 1`.
    #[must_use]
    #[inline]
    pub fn blocking(self) -> usize {
        self.nodes - self.needed + 1
    }
}

impl fmt::Display for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.needed, self.nodes)
    }
}
