//! `quorlock log`, and what is logged.

use quorlock_testkit::{Servers, until};
use serde_json::Value;

use crate::support::{Ended, Quorlock, servers};

async fn log(servers: &Servers, words: &[&str]) -> Ended {
    Quorlock::new([&["log"], words].concat()).on(servers).end().await
}

async fn logged(servers: &Servers, name: &str) -> Vec<Value> {
    log(servers, &["--json", name]).await.expect(0).events()
}

#[tokio::test]
async fn it_shows_who_held_the_lock_and_how_that_ended() {
    let Some(servers) = servers(3).await else { return };
    log(&servers, &["job"]).await.expect(0).shows("no hold of `job` is logged");
    let run = |words: &[&str]| Quorlock::new([&["run"], words].concat()).on(&servers);
    run(&["job", "--", "true"]).end().await.expect(0);
    assert!(logged(&servers, "job").await.is_empty(), "it is off by default");

    run(&["--log", "9", "--label", "the first", "job", "--", "true"]).end().await.expect(0);
    run(&["job", "--", "true"]).env("QUORLOCK_LOG", "9").end().await.expect(0);
    run(&["--log", "9", "--max-hold", "300ms", "job", "--", "sleep", "60"]).end().await.expect(76);
    until("three holds on each node", async || {
        let holds = logged(&servers, "job").await;
        holds.len() == 3 && holds.iter().all(|hold| hold["nodes"] == 3)
    })
    .await;
    let holds = logged(&servers, "job").await;
    assert!(holds[0]["holder"].as_str().unwrap().ends_with(" the first"), "{holds:?}");
    assert!(holds[0]["acquired"].as_str().unwrap().starts_with("20"), "{holds:?}");
    assert_eq!(holds[0]["ended"], "released");
    assert!(holds[1]["fencing_token"].as_u64() > holds[0]["fencing_token"].as_u64(), "{holds:?}");
    assert!(holds[2]["held_ms"].as_u64().unwrap() >= 200, "{holds:?}");

    let table = log(&servers, &["job"]).await.expect(0).stdout;
    assert!(table.contains("acquired (UTC)"), "{table}");
    assert!(table.contains("the first") && table.contains("3 holds of `job` that have ended"), "{table}");
    let listed = Quorlock::new(["list"]).on(&servers).end().await.expect(0);
    assert_eq!(listed.stdout, "no lock is held\n", "a log is no lock");
}

#[tokio::test]
async fn a_minority_of_nodes_may_be_down_and_a_majority_may_not() {
    let Some(servers) = servers(3).await else { return };
    let run = Quorlock::new(["run", "--log", "9", "job", "--", "true"]).on(&servers);
    run.end().await.expect(0);
    until("the hold on each node", async || {
        logged(&servers, "job").await.first().is_some_and(|hold| hold["nodes"] == 3)
    })
    .await;
    servers[0].kill();
    let seen = log(&servers, &["job"]).await.expect(0);
    seen.shows("1 hold of `job`").shows("2 of 3 nodes answered");
    servers[1].kill();
    log(&servers, &["job"]).await.expect(69).shows("1 of 3 nodes answered, 2 are needed");
    let of_another = log(&servers, &["another job"]).await.expect(69);
    assert!(
        of_another.stdout.starts_with("unknown whether holds of `another job` are logged\n1 of 3 nodes"),
        "{of_another:?}"
    );
}

#[tokio::test]
async fn nodes_that_keep_no_log_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let node = format!("sqlite://{}/locks.db", folder.path().display());
    let ended = Quorlock::new(["log", "--nodes", &node, "job"]).end().await.expect(78);
    assert!(ended.stderr.contains("does not support a log of the holds of a lock"), "{ended:?}");
    let Some(servers) = servers(2).await else { return };
    let mixed = [servers.urls(), vec!["exec:/bin/false".to_owned()]].concat().join(",");
    let ended = Quorlock::new(["log", "job"]).at(&mixed).end().await.expect(0);
    ended.shows("2 of 3 nodes answered\n").shows(": keeps no log\n");
}

#[tokio::test]
async fn each_permit_of_a_semaphore_has_a_log() {
    let Some(servers) = servers(3).await else { return };
    let run = Quorlock::new(["run", "--permits", "2", "--log", "9", "exports", "--", "true"]).on(&servers);
    run.end().await.expect(0);
    log(&servers, &["exports"]).await.expect(0).shows("`quorlock log 'exports#0'` is that of the first");
}

#[tokio::test]
async fn a_log_that_is_too_long_is_refused_by_its_option() {
    let words = ["log", "--nodes", "redis://a", "--log", "9999", "job"];
    Quorlock::new(words).end().await.expect(64).says("--log").says("200");
}
