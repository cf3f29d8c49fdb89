//! The program `quorlock` with MariaDB or MySQL databases.

use quorlock_testkit::program::Program;

use crate::server::Server;

fn quorlock(nodes: &str, words: &[&str]) -> (Option<i32>, String) {
    Program::example("quorlock_with_mysql").run(&[nodes.to_owned()], words)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_under_a_lock_of_one_database_and_of_three() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        let Some(server) = Server::start(&[]).await else { return };
        servers.push(server);
    }
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    for nodes in [&urls[..1], &urls[..]] {
        let (code, output) =
            quorlock("redis://127.0.0.1:1", &["run", "--nodes", &nodes.join(","), "job", "--", "true"]);
        assert_eq!(code, Some(0), "{output}");
        Program::example("quorlock_with_mysql").runs_a_job(nodes);
        let (_, output) = quorlock(&nodes.join(","), &["status", "job"]);
        assert!(!output.contains("secret"), "{output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_faults_of_a_server() {
    let Some(sound) = Server::start(&[]).await else { return };
    let (_, output) = quorlock(&sound.url(), &["doctor"]);
    let program = if sound.is_mysql() { "mysql" } else { "mariadb" };
    assert!(output.contains(program) && !output.contains("innodb_flush_log_at_trx_commit"), "{output}");
    let forgetful = Server::start(&["--innodb-flush-log-at-trx-commit=2"]).await.unwrap();
    let (_, output) = quorlock(&forgetful.url(), &["doctor"]);
    assert!(output.contains("innodb_flush_log_at_trx_commit"), "{output}");
    sound.sql("SET GLOBAL read_only = ON").await;
    let (code, output) = quorlock(&sound.url(), &["doctor"]);
    assert!(code != Some(0) && output.contains("read_only") && !output.contains("secret"), "{output}");
}
