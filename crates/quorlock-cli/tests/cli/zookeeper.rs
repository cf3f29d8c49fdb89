//! Locks in an ensemble of ZooKeeper, which the tests start; skipped if there is none.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use quorlock_testkit::{ZooKeeperCluster, ZooKeeperPrograms, until};

use crate::support::{Quorlock, each_verb_finds_it, found, tool};

pub(crate) fn programs() -> Option<ZooKeeperPrograms> {
    found(ZooKeeperPrograms::at(&tool("zookeeper/lib")).or_else(|_| ZooKeeperPrograms::find()))
}

/// The ensemble is new, so it cannot have forgotten a lock.
fn quorlock(cluster: &ZooKeeperCluster, words: &[&str]) -> Quorlock {
    Quorlock::new(words).at(&format!("{}/locks?session=3s", cluster.url())).env("QUORLOCK_TTL", "3s")
}

#[tokio::test]
async fn every_verb_works_on_an_ensemble() {
    let Some(programs) = programs() else { return };
    let cluster = programs.start(1).await.unwrap();
    let words = |words: &[&str]| quorlock(&cluster, words);
    let held = each_verb_finds_it(words).await;
    let ended = words(&["release", "--force", "jobs/a"]).end().await;
    assert!(ended.stdout.contains("jobs/a") || ended.stderr.contains("jobs/a"), "{ended:#?}");
    drop(held);
    words(&["doctor"]).end().await.shows("ZooKeeper").shows("has one member");
    // What the layout cannot have is refused by name.
    for (options, expected) in [
        (&["--shared"][..], "shared locks"),
        (&["--permits", "2"], "keeps no semaphores"),
        (&["--also", "other"], "several"),
        // A lock ends with the session of its process.
        (&["--at-least", "10s"], "cannot stay taken"),
        (&["--ttl", "1s"], "3s"),
    ] {
        let ended = words(&[&["run"], options, &["job", "--", "true"]].concat()).end().await;
        assert_ne!(ended.code, Some(0), "{options:?}");
        assert!(ended.stderr.contains(expected), "{expected}: {ended:#?}");
    }
}

/// Creates a place in the queue of a lock that no session keeps, as a client does that uses another kind of node than
/// Curator: persistent and numbered.
fn without_a_session(cluster: &ZooKeeperCluster, path: &str) {
    let buffer = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
    let mut stream = TcpStream::connect(cluster.address(0)).unwrap();
    // The version, what was seen last, the timeout of the session in milliseconds, no session before, and its password.
    let session = [&[0; 12][..], &5000_u32.to_be_bytes(), &[0; 8], &buffer(&[0; 16]), &[0]].concat();
    let all =
        [&1_u32.to_be_bytes()[..], &31_u32.to_be_bytes(), &buffer(b"world"), &buffer(b"anyone")].concat();
    let [number, create, how] = [1_u32, 1, 2].map(u32::to_be_bytes);
    let node = [&number[..], &create, &buffer(path.as_bytes()), &buffer(b""), &all, &how].concat();
    for message in [session, node] {
        stream.write_all(&buffer(&message)).unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        stream.read_exact(&mut answer).unwrap();
    }
}

#[tokio::test]
async fn a_place_without_a_session_is_shown_and_force_releases_it() {
    let Some(programs) = programs() else { return };
    let cluster = programs.start(1).await.unwrap();
    let words = |words: &[&str]| quorlock(&cluster, words);
    // Makes the folder of the lock.
    words(&["run", "jobs/a", "--", "true"]).end().await.expect(0);
    without_a_session(&cluster, "/locks/jobs/a/x-lock-");
    let run = async || words(&["run", "-w", "1s", "jobs/a", "--", "true"]).end().await;
    let refused = run().await;
    assert_ne!(refused.code, Some(0), "{refused:#?}");
    assert!(refused.stderr.contains("release --force"), "{refused:#?}");
    words(&["status", "--json", "jobs/a"]).end().await.expect(0).shows("\"remaining_ms\":null");
    words(&["release", "--force", "--yes", "jobs/a"]).end().await.expect(0).says("which never expires");
    run().await.expect(0);
}

#[tokio::test]
async fn the_demonstration_runs_a_command_on_zookeeper() {
    if programs().is_none() {
        return;
    }
    let words = ["demo", "--servers", "zookeeper", "--", "sh", "-c", "echo at $QUORLOCK_NODES"];
    let demo = Quorlock::new(words).env("QUORLOCK_ZOOKEEPER", &tool("zookeeper/lib").display().to_string());
    demo.end().await.expect(0).shows("at zookeeper://");
}

/// `doctor` on a history that has just grown old enough, as it stays for later connections.
#[tokio::test]
async fn doctor_says_of_an_old_ensemble_what_run_does() {
    let Some(programs) = programs() else { return };
    let cluster = programs.start(1).await.unwrap();
    let guarded = |words: &[&str]| {
        quorlock(&cluster, words).env("QUORLOCK_RESTART_GUARD", "on").env("QUORLOCK_MAX_TTL", "3s")
    };
    // Until the ensemble votes.
    until("a first lock", async || guarded(&["run", "-n", "job", "--", "true"]).end().await.code == Some(0))
        .await;
    for _ in 0..3 {
        guarded(&["run", "-n", "job", "--", "true"]).end().await.expect(0);
        let ended = guarded(&["doctor"]).end().await;
        assert_ne!(ended.code, Some(69), "{ended:#?}");
        assert!(!ended.stdout.contains("no lock can be acquired"), "{ended:#?}");
    }
}
