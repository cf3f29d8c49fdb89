//! The health check of a deployment: what its servers report about themselves, and what that means for locks.
//!
//! [`Coordinator::doctor`](crate::Coordinator::doctor) asks each node and returns a [`Report`]: a
//! [`NodeReport`] for each node, and the [`Finding`]s, the most severe first. A finding has a [`Severity`], a
//! [`Check`] whose code is stable for programs, the evidence, and the fix. [`Report::summary`] sums them
//! up. The command `quorlock doctor` prints the same.
//!
//! The page `docs/doctor.md` of the book lists all findings.

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

/// The result of a health check.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The number of nodes that must grant a lock.
    pub quorum: Quorum,
    /// A report for each node, in the order of the configuration.
    pub nodes: Vec<NodeReport>,
    /// All findings, the most severe first.
    pub findings: Vec<Finding>,
}

/// The summary of a health check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Summary {
    /// A quorum is available, and nothing was found that makes locks unsafe.
    Sound,
    /// A quorum is available, but something was found that makes locks unsafe.
    Unsafe,
    /// Too few nodes can be examined to say whether a quorum is available.
    Unclear,
    /// Too few nodes vote for a quorum.
    NoQuorum,
}

impl Report {
    /// Judges the facts of all nodes; `None` for a node that cannot be examined.
    pub(crate) fn of(nodes: &[(Arc<str>, Option<Facts>)], setting: &Setting) -> Report {
        let setting = &setting.with_max_ttls(nodes.iter().map(|(_, facts)| facts.as_ref()?.max_ttl));
        let mut reports: Vec<_> =
            nodes.iter().map(|(name, facts)| rules::report(name, facts.as_ref(), setting)).collect();
        count_each_server_once(nodes, &mut reports);
        let examined: Vec<_> =
            nodes.iter().filter_map(|(name, facts)| Some((name, facts.as_ref()?))).collect();
        let mut findings = rules::of_deployment(&examined, &reports, setting);
        findings.extend(examined.iter().flat_map(|(name, facts)| rules::of_node(name, facts, setting)));
        // Stable sort: the findings of one node stay together, in the order of the tables.
        findings.sort_by_key(|finding| finding.severity);
        Report { quorum: setting.quorum, nodes: reports, findings }
    }

    /// Returns the summary.
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

    /// Returns whether there is a finding of this severity.
    #[must_use]
    pub fn has(&self, severity: Severity) -> bool {
        self.findings.iter().any(|finding| finding.severity == severity)
    }
}

/// Counts one vote where several addresses lead to one server: that of the first address.
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
