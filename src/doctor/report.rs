//! What a check-up says of one node.

use std::sync::Arc;
use std::time::Duration;

use crate::node::facts::{ClockReading, Role, Software};

/// One node, as a line of a table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeReport {
    /// Its address, without password.
    pub name: Arc<str>,
    /// Which program it is.
    pub software: Option<Software>,
    /// What it is for others.
    pub role: Option<Role>,
    /// For how long its process has been running.
    pub uptime: Option<Duration>,
    /// How long it takes to answer.
    pub round_trips: Option<RoundTrips>,
    /// Its calendar clock against ours.
    pub clock: Option<ClockReading>,
    /// Whether its votes count.
    pub standing: Standing,
}

/// Whether the votes of a node count.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Standing {
    /// They do.
    Votes,
    /// They will, after this time: it restarted.
    Quarantined {
        /// How much longer it waits.
        left: Duration,
    },
    /// They do not.
    Excluded {
        /// Why not.
        reason: Arc<str>,
    },
    /// Nobody knows: a node of a kind that cannot be examined.
    Unknown,
}

/// How long a node takes to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RoundTrips {
    /// Half of them took no longer.
    pub median: Duration,
    /// 99 of 100 took no longer: of twenty, the longest.
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
