use std::error::Error;

use proptest::prelude::*;
use quorlock_history::{Check, History, Report};

use crate::perfect::any_turns;
use crate::script::Script;

#[test]
fn a_line_is_readable() {
    let mut script = Script::default();
    script.invoked(1, "ann1").fenced(2, "bob1", 7);
    let lines = script.history.to_lines();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(
        lines[0],
        r#"{"at":1000000,"event":"invoked","client":"ann","resource":"orders/42","attempt":"ann1"}"#
    );
    assert_eq!(
        lines[2],
        r#"{"at":12000000,"event":"acquired","attempt":"bob1","deadline":1002000000,"fencing_token":7}"#
    );
}

#[test]
fn a_line_that_is_not_an_event_is_reported_with_its_number_and_cause() {
    let mut script = Script::default();
    script.invoked(1, "ann1");
    let text = format!("{}\n{{\"at\":1,\"event\":\"danced\"}}\n", script.history.to_lines());
    let error = History::from_lines(&text).unwrap_err();
    assert_eq!(error.to_string(), "line 3 of the history is not an event");
    assert!(error.source().unwrap().to_string().contains("danced"), "{error:?}");
}

#[test]
fn files_of_several_recorders_may_be_put_together_in_any_order() {
    let mut script = Script::default();
    script.held("ann1", 0, 500).held("bob1", 400, 900);
    let lines = script.history.to_lines();
    let backwards: Vec<&str> = lines.lines().rev().collect();
    let history = History::from_lines(&backwards.join("\n")).unwrap();
    let report = quorlock_history::check(&history, &crate::script::expect());
    assert_eq!(report, script.report());
    assert_eq!(report.of(Check::Exclusion).count(), 1);
}

#[test]
fn a_report_shows_the_first_few_violations_of_each_check_and_can_be_written_and_read() {
    let mut script = Script::default();
    script.held("ann1", 0, 900);
    (0..7).for_each(|index| {
        script.held(&format!("b{index}"), 100 + 20 * index, 111 + 20 * index);
    });
    let report = script.report();
    let shown = report.to_string();
    assert!(shown.contains("\nexclusion: 7 found\n  `orders/42` was held twice for 1ms: by ann"), "{shown}");
    assert!(shown.contains("\n  and 2 more\nmutex: 1 found\n"), "{shown}");
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
}

#[test]
fn a_report_keeps_what_one_check_found_together() {
    let mut script = Script::default();
    script.held("ann1", 0, 500).held("bob1", 400, 900);
    let lines = script.history.to_lines();
    // The same again with other clients and another resource.
    let elsewhere = lines.replace("orders/42", "orders/43").replace("ann", "cid").replace("bob", "dan");
    let history = History::from_lines(&(lines + &elsewhere)).unwrap();
    let report = quorlock_history::check(&history, &crate::script::expect());
    let checks: Vec<Check> = report.violations.iter().map(quorlock_history::Violation::check).collect();
    assert_eq!(checks, [Check::Exclusion, Check::Exclusion, Check::Mutex, Check::Mutex]);
}

proptest! {
    #[test]
    fn a_history_survives_being_written_and_read(turns in any_turns()) {
        let history = crate::perfect::play(&turns);
        prop_assert_eq!(History::from_lines(&history.to_lines()).unwrap(), history);
    }
}
