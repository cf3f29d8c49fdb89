//! The doctor as a library function; `crates/quorlock-cli/tests` runs it on real servers with faults.

use std::collections::HashSet;

use quorlock::{
    Coordinator,
    doctor::{Check, Severity, Summary},
};
use quorlock_testkit::memory_nodes;

#[test]
fn every_finding_has_a_name_a_fix_and_a_place_in_the_docs() {
    let docs = include_str!("../../docs/doctor.md");
    let mut codes = HashSet::new();
    for matter in Check::ALL {
        assert!(codes.insert(matter.code()), "{matter} twice");
        assert!(!matter.cure().is_empty());
        assert!(docs.contains(&format!("| `{matter}` |")), "docs/doctor.md does not explain {matter}");
    }
}

#[tokio::test]
async fn nodes_that_cannot_be_examined_are_unknown() {
    let coordinator = Coordinator::builder().custom_nodes(memory_nodes(3)).build().unwrap();
    let examination = coordinator.doctor().await;
    assert_eq!(examination.summary(), Summary::Unclear);
    let found: Vec<_> = examination.findings.iter().map(|finding| finding.severity).collect();
    assert_eq!(found, [Severity::Unknown]);
    assert!(coordinator.warnings().is_empty());
}
