//! The program `quorlock` with directories, alone and together with a server.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use quorlock_testkit::{BuiltinServer, Kind, Servers};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;

/// Cargo builds the examples with the tests, but does not say where.
fn program() -> PathBuf {
    let test = env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples/quorlock_with_directory");
    assert!(path.exists(), "{} is not built; run `cargo build --examples`", path.display());
    path
}

/// A directory for each node.
fn directories(count: usize) -> (TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let node = |index: usize| {
        let directory = folder.path().join(index.to_string());
        fs::create_dir(&directory).unwrap();
        format!("directory://{}", directory.display())
    };
    let nodes = (0..count).map(node).collect();
    (folder, nodes)
}

/// Starts a server within this process, and returns its URL.
async fn builtin() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(tokio::spawn(async move { BuiltinServer::new().serve(listener).await }));
    format!("redis://127.0.0.1:{port}")
}

/// The program with these arguments. The nodes were created just now, and have forgotten nothing.
fn quorlock(nodes: &[String], words: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(words).env("QUORLOCK_NODES", nodes.join(",")).env("QUORLOCK_RESTART_GUARD", "off");
    command.env("PROGRAM", program());
    command
}

fn ended(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat())
}

/// Asserts that the lock is held while the command runs, excludes another process, and is free afterwards.
fn runs(nodes: &[String]) {
    let script = "\"$PROGRAM\" status job; \"$PROGRAM\" run --wait 0 job -- echo both; echo \"ended $?\"";
    let (code, said) = ended(quorlock(nodes, &["run", "job", "--", "sh", "-c", script]));
    assert_eq!(code, Some(0), "{said}");
    let everywhere = format!("on {0} of {0} nodes", nodes.len());
    assert!(said.contains("`job` is held by") && said.contains(&everywhere), "{said}");
    assert!(said.contains("ended 75") && !said.contains("both"), "{said}");
    let (code, said) = ended(quorlock(nodes, &["status", "job"]));
    assert!(code == Some(0) && said.contains("`job` is free"), "{said}");
}

/// Runs `doctor`, and asserts that it finds nothing worse than a note about a directory.
fn examined(nodes: &[String]) -> Value {
    let (_, said) = ended(quorlock(nodes, &["doctor", "--json"]));
    let report: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    for node in report["nodes"].as_array().unwrap() {
        assert_eq!(node["vote"], "yes", "{said}");
        let address = node["node"].as_str().unwrap();
        if address.starts_with("directory://") {
            assert_eq!(node["server"], "quorlock-directory", "{said}");
            assert_eq!(node["clock_ahead_us"], 0, "{said}");
            assert!(node["round_trip_p50_us"].as_u64().unwrap() > 0, "{said}");
        }
    }
    let findings = report["findings"].as_array().unwrap().iter();
    for finding in findings.filter(|finding| finding["node"].to_string().contains("directory://")) {
        assert!(finding["severity"] == "note", "{finding}");
    }
    report
}

#[test]
fn directories_are_a_quorum() {
    let (_folder, nodes) = directories(3);
    runs(&nodes);
    let report = examined(&nodes);
    assert_eq!(report["summary"], "sound", "{report}");
    assert!(!report.to_string().contains("untold"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_and_a_server_are_a_quorum() {
    let (_folder, mut nodes) = directories(2);
    let servers = if Kind::all_found().is_empty() { None } else { Some(Servers::start(1).await.unwrap()) };
    nodes.push(match &servers {
        Some(servers) => servers[0].url(),
        None => builtin().await,
    });
    tokio::task::spawn_blocking(move || {
        runs(&nodes);
        examined(&nodes);
    })
    .await
    .unwrap();
}

#[test]
fn a_file_and_an_option_name_directories_as_the_environment_does() {
    let (folder, nodes) = directories(3);
    let file = folder.path().join("quorlock.toml");
    fs::write(&file, format!("nodes = {nodes:?}\nrestart-guard = \"off\"\n")).unwrap();
    let (file, listed) = (file.display().to_string(), nodes.join(","));
    for options in [["--config", &*file], ["--nodes", &*listed]] {
        let mut command = Command::new(program());
        command.args(["status", "job"]).args(options);
        let (_, said) = ended(command);
        let shown =
            |node: &&String| said.lines().any(|line| line.contains(node.as_str()) && line.contains("free"));
        assert_eq!(nodes.iter().filter(shown).count(), 3, "{options:?}: {said}");
    }
}

#[test]
fn a_missing_directory_is_named_and_the_others_are_a_quorum() {
    let (folder, nodes) = directories(3);
    fs::remove_dir_all(folder.path().join("2")).unwrap();
    let (code, said) = ended(quorlock(&nodes, &["run", "job", "--", "echo", "done"]));
    assert!(code == Some(0) && said.contains("done"), "{said}");
    let (_, said) = ended(quorlock(&nodes, &["doctor"]));
    assert!(said.contains("unreachable") && said.contains("No such file"), "{said}");
}

#[test]
fn a_new_directory_does_not_vote_yet() {
    let (_folder, nodes) = directories(1);
    let mut run = quorlock(&nodes, &["run", "--wait", "0", "job", "--", "true"]);
    run.env_remove("QUORLOCK_RESTART_GUARD");
    let (code, said) = ended(run);
    assert_eq!(code, Some(69), "{said}");
}
