//! Programs as nodes, which end with `quorlock`.

use crate::support::{Quorlock, is_gone};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::signal::Signal;
use quorlock_testkit::until;
use tempfile::TempDir;

/// Grants all, without numbers.
const GRANTS: &str = r#"while read -r asked; do
    id=${asked#*'"id":'}
    echo "{\"id\":${id%%,*},\"is\":\"granted\"}"
done"#;
/// Does not read, and cannot be ended by a signal that can be ignored.
const HANGS: &str = "trap '' TERM HUP INT\nsleep 600 &\necho $! >>pids\nwhile :; do sleep 600; done";

/// Returns the URL of a program that is a shell script, which leaves its process id in `pids`.
fn program(folder: &Path, text: &str) -> String {
    let path = folder.join("node");
    let hello = r#"echo '{"quorlock":1,"identity":"mine","age_ms":99999}'"#;
    let script = format!("#!/bin/sh\ncd {}\necho $$ >>pids\n{hello}\n{text}\n", folder.display());
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("exec:/bin/sh?arg={}", path.display())
}

fn quorlock(node: &str, words: &[&str]) -> Quorlock {
    Quorlock::new(words).at(node)
}

fn pids(folder: &TempDir) -> Vec<String> {
    let pids = fs::read_to_string(folder.path().join("pids")).unwrap_or_default();
    pids.lines().map(str::to_owned).collect()
}

async fn all_gone(folder: &TempDir) {
    until("the end of the program and of what it started", async || {
        let pids = pids(folder);
        pids.len() >= 2 && pids.iter().all(|pid| is_gone(pid))
    })
    .await;
}

#[tokio::test]
async fn a_program_that_hangs_ends_with_quorlock_however_that_ends() {
    let folder = tempfile::tempdir().unwrap();
    let node = program(folder.path(), HANGS);
    quorlock(&node, &["run", "-w", "100ms", "a", "--", "true"]).end().await.expect(69);
    all_gone(&folder).await;

    let folder = tempfile::tempdir().unwrap();
    let node = program(folder.path(), HANGS);
    let running = quorlock(&node, &["run", "-w", "forever", "a", "--", "true"]).start();
    until("the program", async || pids(&folder).len() >= 2).await;
    running.signal(Signal::SIGKILL);
    all_gone(&folder).await;
    running.end().await;
}

/// A program is a child of `quorlock`, as are descendants of the command whose parents have ended.
#[tokio::test]
async fn descendants_are_not_waited_for_beside_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let node = program(folder.path(), GRANTS);
    let words = ["run", "--fencing", "off", "a", "--", "echo", "ran"];
    let ended = quorlock(&node, &words).end().await.expect(0);
    assert_eq!(ended.stdout, "ran\n", "{ended:#?}");
    let words = ["run", "--fencing", "off", "--wait-for-descendants", "a", "--", "true"];
    let refused = quorlock(&node, &words).end().await.expect(64).stderr;
    assert!(refused.contains("program of an `exec:` node"), "{refused}");
}
