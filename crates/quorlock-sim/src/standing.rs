//! Which nodes stored which token, and when last.

use std::collections::BTreeMap;

use crate::world::Time;

/// When each token was last seen on each node.
#[derive(Debug, Default)]
pub(crate) struct HoldingNodes {
    seen: BTreeMap<Vec<u8>, BTreeMap<usize, Time>>,
}

impl HoldingNodes {
    /// The node has this token now.
    pub(crate) fn see(&mut self, token: Vec<u8>, node: usize, now: Time) {
        self.seen.entry(token).or_default().insert(node, now);
    }

    /// Returns how many nodes have had the token since then.
    pub(crate) fn since(&self, token: &[u8], since: Time) -> usize {
        let nodes = self.seen.get(token).into_iter().flatten();
        nodes.filter(|(_, last)| **last >= since).count()
    }
}
