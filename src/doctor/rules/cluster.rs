//! Findings about a cluster that is one node.

use std::sync::Arc;

use super::Findings;
use super::node::findings as of_server;
use crate::doctor::finding::{Check, Finding, Severity};
use crate::doctor::setting::Setting;
use crate::node::facts::Facts;
use quorlock_protocol::Slot;

const CHECKS: [fn(&Facts, &mut Findings<'_>); 3] = [uncovered, replicas, full_coverage];

/// Returns the findings about one cluster, and about each of its masters.
pub(super) fn findings(name: &Arc<str>, facts: &Facts, setting: &Setting) -> Vec<Finding> {
    let mut sheet = Findings::of_node(name);
    for check in CHECKS {
        check(facts, &mut sheet);
    }
    let mut findings = sheet.findings;
    for shard in &facts.shards {
        let at_master = of_server(name, &shard.facts, setting).into_iter();
        // A cluster needs replicas, and a promotion counts as a restart.
        let at_master = at_master.filter(|finding| finding.check != Check::Replicas);
        findings.extend(at_master.map(|finding| Finding {
            evidence: format!("(master {}) {}", shard.master, finding.evidence),
            ..finding
        }));
    }
    findings
}

fn uncovered(facts: &Facts, sheet: &mut Findings<'_>) {
    if let Some(unserved @ 1..) = facts.unserved {
        let (served, all) = (Slot::COUNT.saturating_sub(unserved), Slot::COUNT);
        let evidence = format!("serves {served} of {all} slots, and grants no lock with a key in the others");
        sheet.note(Severity::Warning, Check::SlotsUncovered, evidence);
    }
}

fn replicas(facts: &Facts, sheet: &mut Findings<'_>) {
    for shard in facts.shards.iter().filter(|shard| shard.replicas == 0) {
        let (master, slots, all) = (&shard.master, shard.slots, Slot::COUNT);
        let evidence = format!(
            "has no replica of its master {master}: if it fails, {slots} of {all} slots are not served"
        );
        sheet.note(Severity::Note, Check::NoReplica, evidence);
    }
}

/// With replicas, a failover restores the coverage.
fn full_coverage(facts: &Facts, sheet: &mut Findings<'_>) {
    let alone = facts.shards.iter().any(|shard| shard.replicas == 0);
    let wanted = facts.shards.iter().any(|shard| shard.facts.full_coverage == Some(true));
    if wanted && alone {
        let evidence =
            "refuses all keys while a master without a replica is down (cluster-require-full-coverage yes)";
        sheet.note(Severity::Note, Check::FullCoverage, evidence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::rules::tests::setting;
    use crate::node::facts::{Memory, Role, ShardFacts};

    fn cluster(shards: &[(u16, u64)]) -> Facts {
        let shard = |(slots, replicas): &(u16, u64)| {
            let mut facts = Facts { role: Some(Role::Master), full_coverage: Some(true), ..Facts::default() };
            facts.replicas = Some(*replicas);
            facts.memory = Some(Memory::new(1, Some(2), "allkeys-lru"));
            ShardFacts::new("redis://m".into(), *slots, *replicas, facts)
        };
        let unserved = Some(Slot::COUNT - shards.iter().map(|(slots, _)| slots).sum::<u16>());
        let shards = shards.iter().map(shard).collect();
        Facts { role: Some(Role::Cluster), shards, unserved, ..Facts::default() }
    }

    fn found(shards: &[(u16, u64)]) -> Vec<Check> {
        findings(&"c".into(), &cluster(shards), &setting(1)).iter().map(|finding| finding.check).collect()
    }

    #[test]
    fn only_the_faults_of_a_cluster_are_found() {
        let whole = found(&[(8192, 1), (8192, 1)]);
        for check in [Check::SlotsUncovered, Check::NoReplica, Check::FullCoverage, Check::Replicas] {
            assert!(!whole.contains(&check), "{check}");
        }
        let lacking = found(&[(8192, 0), (8191, 1)]);
        for check in [Check::SlotsUncovered, Check::NoReplica, Check::FullCoverage] {
            assert!(lacking.contains(&check), "{check}");
        }
    }

    #[test]
    fn a_finding_about_a_master_names_it() {
        let findings = findings(&"c".into(), &cluster(&[(16_384, 1)]), &setting(1));
        let eviction = findings.iter().find(|finding| finding.check == Check::Eviction).unwrap();
        assert!(
            eviction.to_string().starts_with("unsafe: c (master redis://m) may evict locks"),
            "{eviction}"
        );
    }
}
