//! The settings of a coordinator that the health check needs.

use std::time::Duration;

use crate::node::max_ttls::MaxTtls;
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

    /// Returns the settings with the quarantine of a client that has heard from each node the largest `max_ttl` of others
    /// (rule I-37).
    pub(super) fn with_max_ttls(&self, reported: impl Iterator<Item = Option<Duration>>) -> Setting {
        let heard = MaxTtls::new(self.max_ttl, self.drift, self.quorum);
        for (node, theirs) in reported.enumerate() {
            theirs.and_then(|theirs| heard.hear(node, theirs));
        }
        let quarantine = if self.guarded() { heard.quarantine(self.quarantine) } else { self.quarantine };
        Setting { quarantine, ..*self }
    }
}
