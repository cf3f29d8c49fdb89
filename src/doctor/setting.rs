//! What a coordinator is set to, as a check-up judges by it.

use std::time::Duration;

use quorlock_protocol::{Drift, Quarantine, Quorum};

/// What a coordinator is set to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) quorum: Quorum,
    pub(crate) ttl: Duration,
    pub(crate) max_ttl: Duration,
    pub(crate) drift: Drift,
    pub(crate) quarantine: Quarantine,
    /// How long a round waits for a node, where that is set.
    pub(crate) node_timeout: Option<Duration>,
    /// What is to be feared where there is one node.
    pub(crate) risk_of_one: Option<&'static str>,
    /// Whether that one is of this host alone.
    pub(crate) one_host: bool,
}

impl Setting {
    pub(super) fn guarded(&self) -> bool {
        !self.quarantine.length().is_zero()
    }
}
