use quorlock_history::{Check, Violation, What};

use crate::script::{Script, at};

impl Script {
    /// Asked at `asked`, answered ten milliseconds later.
    fn observed(&mut self, asked: u64, leader: &str, token: Option<u64>) -> &mut Script {
        let (client, resource) = ("zoe".into(), "orders/42".into());
        let (leader, fencing_token, asked_at) = (leader.into(), token, at(asked));
        self.record(asked + 10, What::Observed { client, resource, leader, fencing_token, asked: asked_at })
    }
}

/// Ann leads from 10 to 500 with fencing token 7.
fn led() -> Script {
    let mut script = Script::default();
    script.fenced(0, "ann1", 7).released(500, "ann1");
    script
}

#[test]
fn an_observer_may_see_the_current_or_a_recent_leader() {
    // Her keys may be stored before her acquisition returns, and for a TTL afterwards.
    let mut script = led();
    script.observed(0, "ann1", None).observed(100, "ann1", Some(7)).observed(1_400, "ann1", Some(7));
    script.assert_clean();
}

#[test]
fn a_leader_that_never_asked_to_lead_is_found() {
    for script in [led().observed(100, "ben1", None), led().invoked(200, "ben1").observed(100, "ben1", None)]
    {
        let found = script.found(Check::Observers);
        assert!(matches!(found[..], [Violation::Misled { gone_by: None, .. }]), "{found:?}");
        assert!(found[0].to_string().ends_with("but it never campaigned"), "{}", found[0]);
    }
}

#[test]
fn a_leader_that_has_been_over_for_long_is_found() {
    let found = led().observed(1_700, "ann1", None).found(Check::Observers);
    assert!(matches!(found[..], [Violation::Misled { gone_by: Some(_), .. }]), "{found:?}");
}

#[test]
fn a_fencing_token_that_is_not_the_leaders_is_found() {
    for (asked, number) in [(100, 6), (100, 8), (5, 8)] {
        let found = led().observed(asked, "ann1", Some(number)).found(Check::Observers);
        assert!(matches!(found[..], [Violation::OtherToken { .. }]), "{number} at {asked}: {found:?}");
    }
    // A quorum had drawn it, and another node a larger one, before the outcome was decided.
    led().observed(5, "ann1", Some(6)).assert_clean();
    // A node may have drawn another number since.
    for before in [What::Forgot { node: "n1".into() }, What::Repeated] {
        led().record(90, before).observed(100, "ann1", Some(8)).assert_clean();
    }
}

#[test]
fn two_simultaneous_leaders_are_two_holders() {
    let mut script = led();
    script.fenced(300, "ben1", 8).released(600, "ben1");
    assert_eq!(script.found(Check::Exclusion).len(), 1);
}
