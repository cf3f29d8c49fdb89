use std::fmt;

/// How many of how many nodes must grant.
///
/// Always a majority or more, so that any two quorums of one deployment share a node, and the
/// shared node grants to one of them only. A larger quorum buys tolerance of nodes that forget:
/// two quorums share at least `2 * needed - nodes` nodes, and that many minus one may forget
/// (docs/safety.md). It costs availability: only `nodes - needed` may be down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quorum {
    nodes: usize,
    needed: usize,
}

impl Quorum {
    /// More than half of the nodes: the smallest quorum that is safe.
    #[must_use]
    #[inline]
    pub fn majority(nodes: usize) -> Quorum {
        Quorum { nodes, needed: nodes / 2 + 1 }
    }

    /// `needed` of `nodes`, or `None` when that is no majority or more than there are.
    #[must_use]
    #[inline]
    pub fn of(needed: usize, nodes: usize) -> Option<Quorum> {
        let safe = Quorum::majority(nodes).needed..=nodes;
        safe.contains(&needed).then_some(Quorum { nodes, needed })
    }

    /// How many nodes there are.
    #[must_use]
    #[inline]
    pub fn nodes(self) -> usize {
        self.nodes
    }

    /// How many must grant.
    #[must_use]
    #[inline]
    pub fn needed(self) -> usize {
        self.needed
    }

    /// How many nodes without our key let somebody else have a quorum: `nodes - needed + 1`.
    ///
    /// A holder that knows of this many is lost at once, before its validity ends (rule I-11).
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
