//! The program, as a user runs it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn run(options: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_quorlock-model")).args(options).output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn a_broken_rule_is_shown_step_by_step() {
    let (code, text) = run(&["--only", "without_a_quarantine_a_node", "--steps"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("violated") && text.contains("1 of 1 cases as expected"), "{text}");
    assert!(text.lines().count() > 5, "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn results_that_cannot_be_printed_are_an_error() {
    for options in [&["--list"][..], &["--only", "without_a_quarantine_a_node"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_quorlock-model"));
        let Output { status, stderr, .. } = program.args(options).stdout(full).output().unwrap();
        let why = String::from_utf8(stderr).unwrap();
        let words = "quorlock-model: cannot print the results: ";
        assert!(status.code() == Some(1) && why.starts_with(words), "{why}");
    }
}

#[test]
fn a_name_that_no_case_has_is_an_error() {
    let (code, text) = run(&["--only", "no_such_case"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--list"), "{text}");
}
