//! The program `quorlock` with directories, alone and together with a server.

use std::fs;

use quorlock_testkit::program::{Program, ended};
use quorlock_testkit::{BuiltinServer, Kind, Servers};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;

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

fn program() -> Program {
    Program::example("quorlock_with_directory")
}

/// Runs `doctor`, and asserts that it finds nothing worse than a note about a directory.
fn examined(nodes: &[String]) -> Value {
    let (_, output) = program().run(nodes, &["doctor", "--json"]);
    let report: Value = serde_json::from_str(output.lines().next().unwrap()).unwrap();
    for node in report["nodes"].as_array().unwrap() {
        assert_eq!(node["vote"], "yes", "{output}");
        let address = node["node"].as_str().unwrap();
        if address.starts_with("directory://") {
            assert_eq!(node["server"], "quorlock-directory", "{output}");
            assert_eq!(node["clock_ahead_us"], 0, "{output}");
            assert!(node["round_trip_p50_us"].as_u64().unwrap() > 0, "{output}");
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
    program().runs_a_job(&nodes);
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
        program().runs_a_job(&nodes);
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
        let mut command = program().command(&[], &["status", "job"]);
        command.args(options).env_remove("QUORLOCK_NODES").env_remove("QUORLOCK_RESTART_GUARD");
        let (_, output) = ended(&mut command);
        let shown =
            |node: &&String| output.lines().any(|line| line.contains(node.as_str()) && line.contains("free"));
        assert_eq!(nodes.iter().filter(shown).count(), 3, "{options:?}: {output}");
    }
}

#[test]
fn a_missing_directory_is_named_and_the_others_are_a_quorum() {
    let (folder, nodes) = directories(3);
    fs::remove_dir_all(folder.path().join("2")).unwrap();
    let (code, output) = program().run(&nodes, &["run", "job", "--", "echo", "done"]);
    assert!(code == Some(0) && output.contains("done"), "{output}");
    let (_, output) = program().run(&nodes, &["doctor"]);
    assert!(output.contains("unreachable") && output.contains("No such file"), "{output}");
}

#[test]
fn a_new_directory_does_not_vote_yet() {
    let (_folder, nodes) = directories(1);
    let mut run = program().command(&nodes, &["run", "--wait", "0", "job", "--", "true"]);
    run.env_remove("QUORLOCK_RESTART_GUARD");
    let (code, output) = ended(&mut run);
    assert_eq!(code, Some(69), "{output}");
}
