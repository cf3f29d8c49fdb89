//! The settings of a coordinator that the health check needs.

use std::time::Duration;

use quorlock_protocol::{Drift, Quarantine, Quorum};

/// The settings of a coordinator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) quorum: Quorum,
    pub(crate) ttl: Duration,
    pub(crate) max_ttl: Duration,
    pub(crate) drift: Drift,
    pub(crate) quarantine: Quarantine,
    /// How long a round waits for a node, if that is set.
    pub(crate) node_timeout: Option<Duration>,
    /// The risk of a deployment with one node.
    pub(crate) risk_of_one: Option<&'static str>,
    /// Whether that node is reachable from this host only.
    pub(crate) one_host: bool,
}

impl Setting {
    pub(super) fn guarded(&self) -> bool {
        !self.quarantine.length().is_zero()
    }
}
