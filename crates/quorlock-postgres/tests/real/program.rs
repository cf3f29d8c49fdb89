//! The program `quorlock` with PostgreSQL databases.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{Server, server};

/// Cargo builds the examples with the tests, but does not say where.
fn program() -> PathBuf {
    let test = env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples/quorlock_with_postgres");
    assert!(path.exists(), "{} is not built; run `cargo build --examples`", path.display());
    path
}

/// The program with these arguments. The databases were created just now, and have forgotten nothing.
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

#[test]
fn a_command_runs_under_a_lock_of_one_database_and_of_three() {
    let Some(first) = server() else { return };
    let servers = [first, Server::start(&[]), Server::start(&[])];
    let nodes = servers.each_ref().map(|server| server.url(""));
    for nodes in [&nodes[..1], &nodes[..]] {
        let script = "\"$PROGRAM\" status job; \"$PROGRAM\" run --wait 0 job -- echo both; echo \"ended $?\"";
        let (code, said) = ended(quorlock(nodes, &["run", "job", "--", "sh", "-c", script]));
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("`job` is held by"), "{said}");
        assert!(said.contains("ended 75") && !said.contains("both"), "{said}");
        let (code, said) = ended(quorlock(nodes, &["status", "job"]));
        assert!(code == Some(0) && said.contains("`job` is free"), "{said}");
    }
}

#[test]
fn doctor_names_only_the_faults_of_a_database() {
    let Some(server) = server() else { return };
    let (_, said) = ended(quorlock(&[server.url("")], &["doctor", "--json"]));
    let report: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    let node = &report["nodes"][0];
    assert_eq!((&node["vote"], &node["server"]), (&"yes".into(), &"postgresql".into()), "{said}");
    let findings = report["findings"].as_array().unwrap().iter();
    for finding in findings.filter(|finding| finding["node"].to_string().contains("postgres")) {
        assert_ne!(finding["check"], "untold", "{finding}");
        assert_eq!(finding["severity"], "note", "{finding}");
    }
    let forgetful = Server::start(&["fsync=off"]);
    let (_, said) = ended(quorlock(&[forgetful.url("")], &["doctor"]));
    assert!(said.contains("fsync or full_page_writes off"), "{said}");
    let standby = server.standby();
    let (_, said) = ended(quorlock(&[standby.url("")], &["doctor"]));
    assert!(said.contains("the address of the primary"), "{said}");
    let (_, said) = ended(quorlock(&[server.url("")], &["doctor"]));
    assert!(said.contains("has replicas"), "{said}");
}

#[test]
fn a_password_is_shown_nowhere() {
    let Some(server) = server() else { return };
    let node = server.url("").replace("postgres@/", "nobody:hunter2@/");
    for words in [
        &["status", "job"][..],
        &["run", "--wait", "0", "job", "--", "true"],
        &["doctor"],
        &["-v", "status", "job"],
    ] {
        let (_, said) = ended(quorlock(std::slice::from_ref(&node), words));
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_password_in_the_environment_authenticates() {
    if server().is_none() {
        return;
    }
    let rules = "local all postgres trust\nhost all all all scram-sha-256\n";
    let server = Server::with_files(&["password_encryption=scram-sha-256"], &[("pg_hba.conf", rules)]);
    let made = "CREATE USER app PASSWORD 'hunter2'; GRANT CREATE ON DATABASE postgres TO app";
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async { server.client().await.batch_execute(made).await.unwrap() });
    let nodes = [server.tcp_url("app", "localhost", "")];
    for (password, code, words) in [
        (Some("hunter2"), 0, "done"),
        (Some("hunter3"), 69, "refuses user and password"),
        (None, 69, "it wants a password"),
    ] {
        let mut run = quorlock(&nodes, &["run", "--wait", "5s", "job", "--", "echo", "done"]);
        if let Some(password) = password {
            run.env("QUORLOCK_PASSWORD", password);
        }
        let (ended, said) = ended(run);
        assert!(ended == Some(code) && said.contains(words) && !said.contains("hunter"), "{ended:?}: {said}");
    }
}
