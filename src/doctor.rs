//! A check-up of a deployment: what its nodes tell of themselves, and what that means for locks.
//!
//! `node/facts.rs` is what one node tells, `finding` the list of all that may be found, and `rules` make
//! the one of the other. Servers are asked in `redis/inspect.rs`.

use std::sync::Arc;

use crate::node::facts::Facts;
pub use finding::{Check, Finding, Severity, Subject};
pub use report::{NodeReport, RoundTrips, Standing};

use quorlock_protocol::Quorum;

mod finding;
mod report;
pub(crate) mod rules;
mod setting;

pub(crate) use setting::Setting;

/// What a check-up has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// How many nodes must grant a lock.
    pub quorum: Quorum,
    /// Each node, in the order in which they were given.
    pub nodes: Vec<NodeReport>,
    /// All findings, the worst first.
    pub findings: Vec<Finding>,
}

/// What it adds up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Summary {
    /// A quorum can be held, and nothing was found that makes it unsafe.
    Sound,
    /// A quorum can be held, and something was found that makes it unsafe.
    Unsafe,
    /// Too few nodes can be examined to say whether a quorum can be held.
    Unclear,
    /// Too few nodes vote.
    NoQuorum,
}

impl Report {
    /// What the facts of all nodes add up to; `None` for a node that cannot be examined.
    pub(crate) fn of(nodes: &[(Arc<str>, Option<Facts>)], setting: &Setting) -> Report {
        let mut reports: Vec<_> =
            nodes.iter().map(|(name, facts)| rules::report(name, facts.as_ref(), setting)).collect();
        count_each_server_once(nodes, &mut reports);
        let told: Vec<_> = nodes.iter().filter_map(|(name, facts)| Some((name, facts.as_ref()?))).collect();
        let mut findings = rules::of_deployment(&told, &reports, setting);
        findings.extend(told.iter().flat_map(|(name, facts)| rules::of_node(name, facts, setting)));
        // Stable: those of one node stay together, and in the order of the tables.
        findings.sort_by_key(|finding| finding.severity);
        Report { quorum: setting.quorum, nodes: reports, findings }
    }

    /// What it adds up to.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let count = |unknown| {
            let counts = |node: &&NodeReport| match node.standing {
                Standing::Votes => true,
                Standing::Unknown => unknown,
                Standing::Quarantined { .. } | Standing::Excluded { .. } => false,
            };
            self.nodes.iter().filter(counts).count()
        };
        if count(true) < self.quorum.needed() {
            Summary::NoQuorum
        } else if self.has(Severity::Unsafe) {
            Summary::Unsafe
        } else if count(false) < self.quorum.needed() {
            Summary::Unclear
        } else {
            Summary::Sound
        }
    }

    /// Whether anything of this severity was found.
    #[must_use]
    pub fn has(&self, severity: Severity) -> bool {
        self.findings.iter().any(|finding| finding.severity == severity)
    }
}

/// Two addresses of one server are one vote: the first one's.
fn count_each_server_once(nodes: &[(Arc<str>, Option<Facts>)], reports: &mut [NodeReport]) {
    let mut seen: Vec<(&str, &Arc<str>)> = Vec::new();
    for ((name, facts), report) in nodes.iter().zip(reports) {
        let Some(identity) = facts.as_ref().and_then(|facts| facts.identity.as_deref()) else { continue };
        match seen.iter().find(|(id, _)| *id == identity) {
            Some((_, first)) => {
                report.standing =
                    Standing::Excluded { reason: format!("it is the same server as {first}").into() };
            }
            None => seen.push((identity, name)),
        }
    }
}
