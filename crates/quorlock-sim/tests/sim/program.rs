//! The program, as a user runs it.

use std::process::{Command, Output, Stdio};

fn run(options: &[&str], stdout: Stdio) -> (Option<i32>, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_quorlock-sim"));
    let child = program.args(options).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert!(!text.contains("panicked"), "{text}");
    (status.code(), text)
}

#[test]
fn options_with_which_nothing_would_happen_are_refused() {
    let short = ["--seeds", "18446744073709551615", "--minutes", "0.05"];
    let (code, text) = run(&short, Stdio::piped());
    assert!(code == Some(0) && text.ends_with("no violations\n"), "{text}");
    for (option, words) in [
        ("--clients=0", "'--clients <N>'"),
        ("--minutes=nan", "'--minutes <MINUTES>'"),
        ("--minutes=-1", "'--minutes <MINUTES>'"),
        ("--keep=99999", "no entry of --keep is in the schedule of seed 0"),
    ] {
        let (code, text) = run(&["--seeds", "0", option], Stdio::piped());
        assert!(code.is_some_and(|code| code > 0) && text.contains(words), "{option}: {text}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_verdict_that_cannot_be_printed_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let (code, text) = run(&["--seeds", "0", "--minutes", "0.05"], full.into());
    assert!(code == Some(1) && text.starts_with("quorlock-sim: no verdict: "), "{text}");
}
