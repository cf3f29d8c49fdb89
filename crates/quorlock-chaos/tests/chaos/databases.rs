//! The scenarios with other servers than Redis, some seconds each, on real PostgreSQL, MariaDB, etcd and ZooKeeper. Skipped if
//! none are installed.
//!
//! They assert no success rate and not how soon a holder is notified of a loss: a busy machine may be slow,
//! but must not violate a guarantee. The runs of ten minutes in `scripts/nightly` assert both.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::chaos::{chaos, text};

/// The runs that may go on at the same time: each has about twenty processes, which mostly wait.
static RUNS: Semaphore = Semaphore::const_new(1);

/// A run of a built-in scenario, without its expectations of time.
struct Run {
    folder: TempDir,
    code: Option<i32>,
    output: String,
}

impl Run {
    /// Runs the scenario. Returns `None` and prints the reason if this machine cannot.
    async fn of(name: &str, seconds: u32) -> Option<Run> {
        let _permit = RUNS.acquire().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let scenario = fs::read_to_string(scenarios.join(format!("{name}.toml"))).unwrap();
        let lines = scenario.lines().filter(|line| !line.starts_with("success"));
        let file = folder.path().join(format!("{name}.toml"));
        let mut scenario = lines.collect::<Vec<_>>().join("\n");
        if !scenario.contains("tolerated") {
            scenario.push_str("\ntolerated = ['loss']\n");
        }
        fs::write(&file, scenario).unwrap();
        let duration = format!("{seconds}s");
        let words = ["--scenario", file.to_str().unwrap(), "--duration", &duration];
        let ran = chaos(&[&words[..], &["--keep", "kept", "--json", "out"]].concat(), folder.path());
        let output = text(&ran);
        if let Some(skipped) = output.lines().find(|line| line.starts_with("skipped: ")) {
            // `eprintln` would be captured by the test harness.
            drop(writeln!(std::io::stderr(), "{skipped}"));
            return None;
        }
        Some(Run { folder, code: ran.status.code(), output })
    }

    fn outcome(&self) -> Value {
        serde_json::from_slice::<Value>(&fs::read(self.folder.path().join("out")).unwrap()).unwrap()[0].take()
    }

    /// Asserts that every expectation held, that locks were acquired, and that faults were injected, this one among them.
    fn keeps_every_promise(&self, fault: &str) {
        assert_eq!(self.code, Some(0), "{}", self.output);
        assert!(
            self.output.contains("no rows left in the databases: no lock, reader, waiter or tombstone"),
            "{}",
            self.output
        );
        let outcome = self.outcome();
        assert!(outcome["seen"]["holds"].as_u64().unwrap() > 0, "{}", self.output);
        assert!(!outcome["faults"].as_array().unwrap().is_empty(), "{}", self.output);
        assert!(self.output.contains(fault), "{}", self.output);
    }
}

#[tokio::test]
async fn three_faulty_postgres_servers_keep_every_guarantee() {
    if let Some(run) = Run::of("postgres-three", 10).await {
        run.keeps_every_promise("");
    }
}

#[tokio::test]
async fn three_faulty_mariadb_servers_keep_every_guarantee() {
    if let Some(run) = Run::of("mariadb-three", 10).await {
        run.keeps_every_promise("");
    }
}

#[tokio::test]
async fn a_faulty_cluster_of_etcd_keeps_every_guarantee() {
    if let Some(run) = Run::of("etcd-three", 12).await {
        run.keeps_every_promise("cut-off");
    }
}

#[tokio::test]
async fn a_faulty_ensemble_of_zookeeper_keeps_every_guarantee() {
    if let Some(run) = Run::of("zookeeper-three", 12).await {
        run.keeps_every_promise("cut-off");
    }
}

#[tokio::test]
async fn a_promoted_standby_grants_no_lock_of_its_primary() {
    if let Some(run) = Run::of("postgres-promotion", 12).await {
        run.keeps_every_promise("promote");
    }
}

#[tokio::test]
async fn without_the_restart_guard_a_promotion_makes_two_holders() {
    // On a busy machine it may be that nothing is held, or no client asks, in the moment of the promotion.
    for tries_left in [2, 1, 0] {
        let Some(run) = Run::of("violation-postgres-promotion", 12).await else { return };
        if run.code == Some(0) || tries_left == 0 {
            assert_eq!(run.code, Some(0), "{}", run.output);
            assert!(run.output.contains("was held twice"), "{}", run.output);
            return;
        }
    }
}

#[tokio::test]
async fn a_full_disk_stops_a_server_and_keeps_locks_safe() {
    if let Some(run) = Run::of("postgres-disk-full", 8).await {
        run.keeps_every_promise("");
        let logs = fs::read_dir(run.folder.path().join("kept/postgres-disk-full/logs")).unwrap();
        let mut logs = logs.map(|log| fs::read_to_string(log.unwrap().path()).unwrap_or_default());
        assert!(logs.any(|log| log.contains("No space left on device")), "no disk was full");
    }
}

#[tokio::test]
async fn a_leftover_row_is_detected() {
    let Some(run) = Run::of("mariadb-three", 1).await else { return };
    let record = run.folder.path().join("kept/mariadb-three");
    let mut metadata: Value = serde_json::from_slice(&fs::read(record.join("run.json")).unwrap()).unwrap();
    assert_eq!(metadata["left_behind"], Value::Array(Vec::new()), "{}", run.output);
    metadata["left_behind"] = Value::Array(vec!["node-1: a tombstone of lock-3".into()]);
    fs::write(record.join("run.json"), metadata.to_string()).unwrap();
    let again = chaos(&["check", "kept/mariadb-three"], run.folder.path());
    assert_eq!(again.status.code(), Some(1), "{}", text(&again));
    assert!(text(&again).contains("1 left: node-1: a tombstone of lock-3"), "{}", text(&again));
}

#[test]
fn an_impossible_fault_of_a_database_is_skipped_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("odd.toml");
    for (servers, fault, reason) in [
        ("postgres", "flush", "`flush`: only possible with Redis, not with PostgreSQL"),
        ("mariadb", "stop-backends", "`stop-backends`: MariaDB"),
        ("etcd", "flush", "`flush`: only possible with Redis, not with etcd"),
        ("zookeeper", "hang-disk", "`hang-disk`: only possible with etcd, not with ZooKeeper"),
        ("redis", "promote", "set `servers = \"postgres\"`"),
        ("redis", "cut-off", "set `servers = \"etcd\"`"),
    ] {
        let scenario = format!(
            "summary = 'x'\nservers = '{servers}'\nnodes = 3\n[[fault]]\nkind = '{fault}'\nevery = '1s'\nlasts = '1s'"
        );
        fs::write(&file, scenario).unwrap();
        let skipped = text(&chaos(&["--scenario", file.to_str().unwrap()], folder.path()));
        assert!(skipped.contains("skipped: odd: "), "{skipped}");
        assert!(
            skipped.contains(reason)
                || skipped.contains("there is no ")
                || skipped.contains("is not installed"),
            "{skipped}"
        );
    }
}
