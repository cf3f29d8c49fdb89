//! The judgement of the facts. Pure: no IO and no clock. Each finding of `finding.rs` has its function
//! in `node`, `cluster` or `deployment`; each has a table of its functions.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::finding::{Check, Finding, Severity, Subject};
use super::report::{NodeReport, RoundTrips, Standing};
use super::setting::Setting;
use crate::duration;
use crate::node::facts::{Facts, Feature, Role};
use quorlock_protocol::{Moment, Past, SUCCESSION, printable};

mod cluster;
mod deployment;
mod node;

pub(crate) use deployment::{findings as of_deployment, lists_differ, max_ttl_differs, one_server};
pub(crate) use node::on_sight;

/// Returns all findings about one node.
pub(crate) fn of_node(name: &Arc<str>, facts: &Facts, setting: &Setting) -> Vec<Finding> {
    let findings = if facts.shards.is_empty() { node::findings } else { cluster::findings };
    findings(name, facts, setting)
}

/// Returns the report on one node, apart from what depends on the other nodes.
pub(crate) fn report(name: &Arc<str>, facts: Option<&Facts>, setting: &Setting) -> NodeReport {
    let standing = facts.map_or(Standing::Unknown, |facts| standing(facts, setting));
    let unknown = Facts::default();
    let facts = facts.unwrap_or(&unknown);
    NodeReport {
        name: Arc::clone(name),
        software: facts.software.clone(),
        role: facts.role,
        uptime: facts.uptime,
        round_trips: RoundTrips::of(&facts.round_trips),
        clock: facts.clock,
        standing,
    }
}

/// Returns whether the votes of a node count.
fn standing(facts: &Facts, setting: &Setting) -> Standing {
    let excluded = |reason: &str| Standing::Excluded { reason: printable(reason).to_string().into() };
    if let Some(failure) = &facts.failure {
        return excluded(&format!("{:#}", failure.error));
    }
    if !facts.others.is_empty() {
        return excluded("several servers answer at its address");
    }
    match facts.role {
        Some(Role::Master | Role::Cluster) => {}
        Some(Role::Replica) => return excluded("it is a replica"),
        Some(Role::ClusterMember) => return excluded("it is a cluster member"),
        Some(Role::ActiveReplica) => return excluded("it is an active replica"),
        Some(Role::Sentinel) => return excluded("it is a Sentinel"),
        None => return excluded(facts.unfit.as_deref().unwrap_or("it does not report its role")),
    }
    if let Some(reason) = &facts.unfit {
        return excluded(reason);
    }
    if facts.loading == Some(true) {
        return excluded("it is loading its data");
    }
    // A missing permission for fencing tokens alone does not keep the node from voting if the test lock had
    // one.
    let barred =
        |need| needed_to_vote(need) && !(need == Feature::Fencing && matches!(facts.lock, Some(Ok(()))));
    if let Some(refusal) = facts.refusals.iter().find(|refusal| barred(refusal.need)) {
        return excluded(&format!("its user may not run {}", refusal.command));
    }
    if let Some(Err(error)) = &facts.lock {
        return excluded(&error.to_string());
    }
    let left = quarantined(facts, setting);
    if left.is_zero() { Standing::Votes } else { Standing::Quarantined { left } }
}

fn needed_to_vote(need: Feature) -> bool {
    matches!(need, Feature::Locks | Feature::Fencing)
}

/// Returns how long the vote still does not count.
pub(super) fn quarantined(facts: &Facts, setting: &Setting) -> Duration {
    let age = age(facts);
    if facts.age.is_some() {
        return setting.quarantine.left(age);
    }
    // As in the handshake (rules T-2 and C-6).
    let promoted_by_others = facts.promoted == Some(true) && (facts.service.is_some() || facts.of_cluster);
    if !setting.guarded() || !promoted_by_others {
        return setting.quarantine.left(age);
    }
    let left = setting.quarantine.left(age.saturating_sub(SUCCESSION));
    left.saturating_add(SUCCESSION.saturating_sub(age))
}

/// Returns how long its process has been running, as the restart guard counts it.
pub(super) fn running(facts: &Facts) -> Duration {
    quorlock_protocol::believed(facts.uptime, facts.turns, facts.known)
}

/// Returns the age that the restart guard counts: that of a vote, where the node was asked as for one, or what follows from its
/// uptime, and no longer than the server has been master.
pub(crate) fn age(facts: &Facts) -> Duration {
    let past = match facts.promoted {
        Some(true) => Past::Promoted { master_since: facts.master_since.unwrap_or_default() },
        Some(false) | None => Past::Master,
    };
    age_with(facts, running(facts), past)
}

/// Returns the same for a server that reports this uptime.
pub(super) fn age_with(facts: &Facts, uptime: Duration, past: Past) -> Duration {
    facts.age.unwrap_or_else(|| quorlock_protocol::age(uptime, past, None, Moment::ORIGIN))
}

/// Collects the findings about one subject.
pub(super) struct Findings<'a> {
    node: Option<&'a Arc<str>>,
    findings: Vec<Finding>,
}

impl<'a> Findings<'a> {
    fn of_node(name: &'a Arc<str>) -> Findings<'a> {
        Findings { node: Some(name), findings: Vec::new() }
    }

    fn note(&mut self, severity: Severity, check: Check, evidence: impl AsRef<str>) {
        self.cured(severity, check, evidence, check.cure());
    }

    fn cured(&mut self, severity: Severity, check: Check, evidence: impl AsRef<str>, cure: impl AsRef<str>) {
        let subject = self.node.map_or(Subject::Deployment, |name| Subject::Node(Arc::clone(name)));
        self.findings.push(Finding {
            severity,
            subject,
            check,
            // Both quote the server, and names.
            evidence: printable(evidence.as_ref()).to_string(),
            cure: printable(cure.as_ref()).to_string(),
        });
    }
}

/// Groups the names by key, in order.
pub(super) fn alike<'a, K: Ord>(
    items: impl Iterator<Item = (K, &'a Arc<str>)>,
) -> impl Iterator<Item = (K, Vec<&'a str>)> {
    let mut groups: BTreeMap<K, Vec<&str>> = BTreeMap::new();
    for (key, name) in items {
        let names = groups.entry(key).or_default();
        if !names.contains(&&**name) {
            names.push(name);
        }
    }
    groups.into_iter().filter(|(_, names)| names.len() > 1)
}

/// Returns the network of an address: its /24, or its /64.
pub(super) fn network(address: IpAddr) -> (IpAddr, u8) {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            (IpAddr::from([a, b, c, 0]), 24)
        }
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            (IpAddr::from([a, b, c, d, 0, 0, 0, 0]), 64)
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
