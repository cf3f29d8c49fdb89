//! The report on one node.

use std::sync::Arc;
use std::time::Duration;

use crate::node::facts::{ClockReading, Role, Software};

/// The report on one node, as a row of a table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeReport {
    /// Its address, without the password.
    pub name: Arc<str>,
    /// The server software.
    pub software: Option<Software>,
    /// The role of the server.
    pub role: Option<Role>,
    /// How long its process has been running.
    pub uptime: Option<Duration>,
    /// Its round-trip times.
    pub round_trips: Option<RoundTrips>,
    /// Its wall clock compared with ours.
    pub clock: Option<ClockReading>,
    /// Whether its votes count.
    pub standing: Standing,
}

/// Whether the votes of a node count.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Standing {
    /// They count.
    Votes,
    /// They will count after this time: the server restarted or was promoted.
    Quarantined {
        /// The remaining time.
        left: Duration,
    },
    /// They do not count.
    Excluded {
        /// Why they do not.
        reason: Arc<str>,
    },
    /// Unknown: a node of a kind that cannot be examined.
    Unknown,
}

/// The round-trip times of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RoundTrips {
    /// The median.
    pub median: Duration,
    /// The 99th percentile; of twenty, the longest.
    pub p99: Duration,
}

impl RoundTrips {
    pub(crate) fn of(samples: &[Duration]) -> Option<RoundTrips> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let at = |share: usize| sorted.get((sorted.len() * share).div_ceil(100).max(1) - 1).copied();
        Some(RoundTrips { median: at(50)?, p99: at(99)? })
    }
}
