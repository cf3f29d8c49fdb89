//! The examples tell their stories to the end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `examples/fenced_postgres.sh` ends with this where no database can be had.
const SKIPPED: i32 = 77;

/// Cargo builds the examples when it builds all tests, and does not say where.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not built; run `cargo build --examples`", path.display());
    path
}

fn assert_told(ended: &Output) {
    let (told, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && errors.is_empty(), "{}\n{told}\n{errors}", ended.status);
    let (with, without) = told.split_once("Without the check\n").expect("two acts");
    for (act, words) in [
        (
            with,
            &["(SIGSTOP)", "(SIGCONT)", "Refused: fencing token", "reads 150, writes 120", "has 120;"][..],
        ),
        (without, &["(SIGSTOP)", "(SIGCONT)", "She has written 70.", "has 70; it should have 120"]),
    ] {
        for word in words {
            assert!(act.contains(word), "the story lacks `{word}`: {told}");
        }
    }
    assert!(!without.contains("Refused"), "{told}");
}

#[test]
fn a_stale_write_to_sqlite_is_refused_and_without_the_check_it_is_not() {
    assert_told(&Command::new(example("fenced_sqlite")).output().unwrap());
}

#[test]
fn the_example_runs_with_built_in_servers_where_there_are_no_real_ones() {
    let ended = Command::new(example("fenced_sqlite")).env("QUORLOCK_SERVER", "builtin").output().unwrap();
    assert!(String::from_utf8_lossy(&ended.stdout).contains("built-in server"), "it says which servers");
    assert_told(&ended);
}

#[test]
fn a_stale_write_to_postgresql_is_refused_and_without_the_check_it_is_not() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fenced_postgres.sh");
    let ended = Command::new(script).arg(example("fenced_postgres")).output().unwrap();
    if ended.status.code() == Some(SKIPPED) {
        let why = String::from_utf8_lossy(&ended.stderr);
        // Not by `eprintln`, which the harness keeps to itself while a test passes.
        drop(writeln!(std::io::stderr(), "skipped: {}", why.lines().last().unwrap_or_default()));
        return;
    }
    assert_told(&ended);
}

#[test]
fn readers_share_a_lock_and_a_writer_reads_on() {
    let ended = Command::new(example("shared_catalog")).output().unwrap();
    let (told, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && errors.is_empty(), "{}\n{told}\n{errors}", ended.status);
    for line in ["held by ann and ben.", "Dan does not get in", "Cid writes, alone", "and so does Dan."] {
        assert!(told.contains(line), "the story lacks `{line}`: {told}");
    }
}

#[test]
fn transfers_in_a_ring_end_and_no_money_is_lost() {
    let ended = Command::new(example("transfer")).output().unwrap();
    let (told, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && errors.is_empty(), "{}\n{told}\n{errors}", ended.status);
    // Ann gave ten and got twenty, Ben gave twenty and got ten.
    for line in ["ann has 110.", "ben has 90.", "cid has 100.", "Together they have 300"] {
        assert!(told.contains(line), "the story lacks `{line}`: {told}");
    }
}

#[test]
#[cfg(feature = "blocking")]
fn threads_without_async_count_together_and_miss_nothing() {
    let ended = Command::new(example("blocking")).output().unwrap();
    let (told, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && errors.is_empty(), "{}\n{told}\n{errors}", ended.status);
    assert!(told.contains("The counter is at 20."), "{told}");
    assert_eq!(told.matches("has counted to 5").count(), 4, "{told}");
}
