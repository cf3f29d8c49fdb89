//! The program `quorlock` with PostgreSQL databases.

use quorlock_testkit::program::Program;
use serde_json::Value;

use crate::support::{Server, server};

fn program() -> Program {
    Program::example("quorlock_with_postgres")
}

#[test]
fn a_command_runs_under_a_lock_of_one_database_and_of_three() {
    let Some(first) = server() else { return };
    let servers = [first, Server::start(&[]), Server::start(&[])];
    let nodes = servers.each_ref().map(|server| server.url(""));
    for nodes in [&nodes[..1], &nodes[..]] {
        program().runs_a_job(nodes);
    }
}

#[test]
fn doctor_names_only_the_faults_of_a_database() {
    let Some(server) = server() else { return };
    let (_, output) = program().run(&[server.url("")], &["doctor", "--json"]);
    let report: Value = serde_json::from_str(output.lines().next().unwrap()).unwrap();
    let node = &report["nodes"][0];
    assert_eq!((&node["vote"], &node["server"]), (&"yes".into(), &"postgresql".into()), "{output}");
    let findings = report["findings"].as_array().unwrap().iter();
    for finding in findings.filter(|finding| finding["node"].to_string().contains("postgres")) {
        assert_ne!(finding["check"], "untold", "{finding}");
        assert_eq!(finding["severity"], "note", "{finding}");
    }
    let forgetful = Server::start(&["fsync=off"]);
    let (_, output) = program().run(&[forgetful.url("")], &["doctor"]);
    assert!(output.contains("fsync or full_page_writes off"), "{output}");
    let standby = server.standby();
    let (_, output) = program().run(&[standby.url("")], &["doctor"]);
    assert!(output.contains("the address of the primary") && !output.contains("Redis server"), "{output}");
    // Once the standby has connected.
    let doctor = || program().run(&[server.url("")], &["doctor"]).1;
    assert!((0..30).any(|_| doctor().contains("has replicas")), "{}", doctor());
    assert!(!doctor().contains("REPLICAOF"), "{}", doctor());
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
        let (_, output) = program().run(std::slice::from_ref(&node), words);
        assert!(!output.contains("hunter2"), "{output}");
    }
}
