//! Checks that the targets, packages and scripts that command lines name exist, whether a test runs them or not.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use quorlock_book::block;
use quorlock_book::page::root;

use super::pages;
use super::script::{Step, all_steps};
use super::spans;
use crate::target;

#[test]
fn everything_named_in_a_command_line_exists() {
    let mut count = 0;
    for page in pages().unwrap() {
        let commands = all_steps(&page).into_iter().filter_map(|step| match step {
            Step::Command { line, text, .. } => Some((line, text)),
            Step::File { .. } => None,
        });
        for (line, text) in
            commands.chain(block::spans(&page.text).into_iter().map(|span| (span.line, span.text)))
        {
            let found = look_for(&text)
                .unwrap_or_else(|missing| panic!("{}:{line}: `{text}`: no {missing}", page.path.display()));
            count += usize::from(found);
        }
    }
    assert!(count > 40, "{count} were found");
}

/// Returns whether `line` names something that is checked here.
///
/// # Errors
///
/// What is missing.
fn look_for(line: &str) -> Result<bool, String> {
    let line = line.split(" #").next().unwrap_or_default();
    let (own, given) = line.split_once(" -- ").unwrap_or((line, ""));
    let words = own.split_whitespace().skip_while(|word| word.contains('=') && !word.starts_with('-'));
    match *words.collect::<Vec<_>>() {
        [script, ..] if FOLDERS.iter().any(|folder| script.starts_with(folder)) => {
            // Otherwise it is a file to read, and no command.
            let path = root().join(script);
            let is_command = !script.ends_with('/') && path.extension().is_none_or(|kind| kind == "sh");
            let can_be_run = path.metadata().is_ok_and(|file| file.permissions().mode() & 1 == 1);
            let_there_be(can_be_run || !is_command, "program", script)?;
            Ok(is_command)
        }
        ["cargo", "run" | "test" | "bench", ref words @ ..] => look_for_targets(words, given).map(|()| true),
        _ => Ok(false),
    }
}

/// The folders of programs that are run by their path.
const FOLDERS: [&str; 3] = ["scripts/", "compose/", "examples/"];

/// Checks what the arguments of `cargo run`, `test` or `bench` name, and the options in `given`, which follow
/// `--`.
fn look_for_targets(words: &[&str], given: &str) -> Result<(), String> {
    let mut package = root();
    let mut program = None;
    for pair in words.windows(2) {
        let name = pair[1];
        match pair[0] {
            "-p" | "--package" => {
                package = if name == "quorlock" { root() } else { root().join("crates").join(name) };
                let_there_be(package.join("Cargo.toml").exists(), "package", name)?;
                program = Some(target().join(name)).filter(|program| program.exists());
            }
            "--bin" => {
                program = Some(target().join(name));
                let_there_be(target().join(name).exists(), "program", name)?;
            }
            "--example" => {
                let_there_be(target().join("examples").join(name).exists(), "example", name)?;
            }
            "--test" => {
                let tests = package.join("tests");
                let file = tests.join(format!("{name}.rs")).exists();
                let_there_be(file || tests.join(name).join("main.rs").exists(), "test", name)?;
            }
            _ => {}
        }
    }
    let given = spans::words(given);
    match program {
        Some(program) if !given.is_empty() && !given.iter().any(|word| word.contains(['…', '<', '['])) => {
            let ended = Command::new(&program).args(given).arg("--help").output().unwrap();
            let_there_be(ended.status.success(), "such option", &String::from_utf8_lossy(&ended.stderr))
        }
        _ => Ok(()),
    }
}

fn let_there_be(is_there: bool, kind: &str, name: &str) -> Result<(), String> {
    if is_there { Ok(()) } else { Err(format!("{kind} {name}")) }
}
