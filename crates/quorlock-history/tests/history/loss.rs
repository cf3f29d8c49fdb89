use quorlock_history::{Check, Violation, What, check};

use crate::script::{Script, at, expect, millis};

/// A lease from 10 to 900 in a history that lasts much longer.
fn lease() -> Script {
    let mut script = Script::default();
    script.invoked(0, "ann1").acquired(10, "ann1", 900).goes_on_until(5_000);
    script
}

fn seen_valid(script: &mut Script, when: u64) -> &mut Script {
    script.record(when, What::SeenValid { attempt: "ann1".into() })
}

#[test]
fn a_loss_is_reported_by_the_deadline() {
    lease().lost(900, "ann1").assert_clean();
    let found = lease().lost(901, "ann1").found(Check::Loss);
    assert!(matches!(&found[..], [Violation::LossReportedLate { reported: Some(_), .. }]), "{found:?}");
}

#[test]
fn an_unreported_loss_is_found() {
    let found = lease().found(Check::Loss);
    assert!(matches!(&found[..], [Violation::LossReportedLate { reported: None, .. }]), "{found:?}");
}

#[test]
fn a_release_after_the_deadline_does_not_replace_the_report() {
    assert_eq!(lease().released(1_000, "ann1").found(Check::Loss).len(), 1);
    lease().released(899, "ann1").assert_clean();
}

#[test]
fn no_report_is_due_after_a_crash_or_the_end_of_the_history() {
    lease().crashed(500, "ann").assert_clean();
    Script::default().invoked(0, "ann1").acquired(10, "ann1", 900).goes_on_until(900).assert_clean();
}

#[test]
fn a_stopped_client_is_notified_when_it_resumes() {
    lease().stopped("ann", 800, 2_000).lost(2_000, "ann1").assert_clean();
    assert_eq!(lease().stopped("ann", 800, 2_000).lost(2_001, "ann1").found(Check::Loss).len(), 1);
    assert_eq!(lease().stopped("bob", 800, 2_000).lost(2_000, "ann1").found(Check::Loss).len(), 1);
    assert_eq!(
        lease().stopped("ann", 901, 2_000).lost(2_000, "ann1").found(Check::Loss).len(),
        1,
        "it ran at the deadline"
    );
}

#[test]
fn a_real_host_may_be_allowed_some_time() {
    let slow = lease().lost(950, "ann1").history.clone();
    assert!(check(&slow, &expect().signal_slack(millis(50))).is_clean());
    assert!(!check(&slow, &expect().signal_slack(millis(49))).is_clean());
    let stopped = lease().stopped("ann", 800, 2_000).lost(2_050, "ann1").history.clone();
    assert!(check(&stopped, &expect().signal_slack(millis(50))).is_clean());
    assert!(!check(&stopped, &expect().signal_slack(millis(49))).is_clean());
    let crashed = lease().crashed(950, "ann").history.clone();
    assert!(check(&crashed, &expect().signal_slack(millis(50))).is_clean());
    assert!(!check(&crashed, &expect().signal_slack(millis(49))).is_clean());
}

#[test]
fn a_lease_that_comes_after_its_end_can_be_lost_no_sooner() {
    Script::default().invoked(0, "ann1").acquired(950, "ann1", 900).lost(950, "ann1").assert_clean();
}

#[test]
fn a_renewal_in_time_moves_the_end_and_one_at_the_end_is_found() {
    let mut script = lease();
    script.renewed(899, "ann1", 1_700).lost(1_700, "ann1");
    script.assert_clean();
    let mut script = lease();
    script.renewed(900, "ann1", 1_700).lost(1_700, "ann1");
    let found = script.found(Check::Loss);
    let [Violation::RenewedLate { over, renewed, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((*over, *renewed), (at(900), at(1_700)));
}

#[test]
fn a_late_renewal_that_moves_nothing_does_no_harm() {
    lease().renewed(950, "ann1", 900).lost(900, "ann1").assert_clean();
}

#[test]
fn a_renewal_after_a_reported_loss_is_found() {
    let found = lease().lost(500, "ann1").renewed(600, "ann1", 1_400).found(Check::Loss);
    assert!(matches!(&found[..], [Violation::RenewedLate { .. }]), "{found:?}");
}

#[test]
fn a_lease_reported_valid_after_its_deadline_is_found() {
    let mut script = lease();
    seen_valid(script.lost(900, "ann1"), 899);
    script.assert_clean();
    let found = seen_valid(seen_valid(&mut script, 10), 900).found(Check::Loss);
    assert!(matches!(&found[..], [Violation::ValidLate { .. }]), "{found:?}");
}

#[test]
fn a_lease_reported_valid_after_its_loss_is_found() {
    let mut script = lease();
    seen_valid(script.lost(500, "ann1"), 500);
    script.assert_clean();
    let found = seen_valid(&mut script, 501).found(Check::Loss);
    assert!(matches!(&found[..], [Violation::ValidLate { .. }]), "{found:?}");
}

#[test]
fn a_lease_is_checked_against_the_deadline_of_the_time() {
    let mut script = lease();
    // The renewal came too late, and so did the check between the two deadlines.
    seen_valid(&mut script, 950).renewed(960, "ann1", 1_700).lost(1_700, "ann1");
    assert_eq!(script.found(Check::Loss).len(), 2);
}
