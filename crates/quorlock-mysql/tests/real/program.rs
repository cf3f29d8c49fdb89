//! The program `quorlock` with MariaDB databases.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::need_server;
use crate::server::Server;

/// Cargo builds the examples with the tests, but does not say where.
fn program() -> PathBuf {
    let test = env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples/quorlock_with_mysql");
    assert!(path.exists(), "{} is not built; run `cargo build --examples`", path.display());
    path
}

/// Returns the exit code and the output. The databases were created just now, and have forgotten nothing.
fn quorlock(nodes: &str, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(program());
    command.args(words).env("PROGRAM", program());
    command.env("QUORLOCK_NODES", nodes).env("QUORLOCK_RESTART_GUARD", "off");
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_under_a_lock_of_one_database_and_of_three() {
    need_server!();
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start(&[]).await);
    }
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    for nodes in [urls[0].clone(), urls.join(",")] {
        let (code, said) = quorlock("redis://127.0.0.1:1", &["run", "--nodes", &nodes, "job", "--", "true"]);
        assert_eq!(code, Some(0), "{said}");
        let script = "\"$PROGRAM\" status job; \"$PROGRAM\" run --wait 0 job -- echo both; echo \"ended $?\"";
        let (code, said) = quorlock(&nodes, &["run", "job", "--", "sh", "-c", script]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("`job` is held by"), "{said}");
        assert!(said.contains("ended 75") && !said.contains("both"), "{said}");
        let (code, said) = quorlock(&nodes, &["status", "job"]);
        assert!(code == Some(0) && said.contains("`job` is free"), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_faults_of_a_server() {
    need_server!();
    let sound = Server::start(&[]).await;
    let (_, said) = quorlock(&sound.url(), &["doctor"]);
    assert!(said.contains("mariadb") && !said.contains("innodb_flush_log_at_trx_commit"), "{said}");
    let forgetful = Server::start(&["--innodb-flush-log-at-trx-commit=2"]).await;
    let (_, said) = quorlock(&forgetful.url(), &["doctor"]);
    assert!(said.contains("innodb_flush_log_at_trx_commit"), "{said}");
    sound.sql("SET GLOBAL read_only = ON").await;
    let (code, said) = quorlock(&sound.url(), &["doctor"]);
    assert!(code != Some(0) && said.contains("read_only") && !said.contains("secret"), "{said}");
}
