//! Locks in Redisson's layout.

use quorlock_testkit::Servers;

use crate::support::{Quorlock, each_verb_finds_it, servers};

const OWNER: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:31";

/// The server is new, so it cannot have forgotten a lock.
fn quorlock(servers: &Servers, words: &[&str]) -> Quorlock {
    Quorlock::new(words).at(&format!("{}?layout=redisson", servers[0].url()))
}

#[tokio::test]
async fn every_verb_works_in_redissons_layout() {
    let Some(servers) = servers(1).await else { return };
    let words = |words: &[&str]| quorlock(&servers, words);
    // Redisson holds the lock twice, has unlocked others, and keeps a map.
    for command in [
        format!("HSET jobs/theirs {OWNER} 2"),
        "PEXPIRE jobs/theirs 60000".to_owned(),
        "SET redisson_unlock_latch:{jobs/theirs}:7 1 PX 18000".to_owned(),
        "HSET jobs/map name anna".to_owned(),
    ] {
        servers[0].command(&command.split(' ').collect::<Vec<_>>()).await.unwrap();
    }
    let held = each_verb_finds_it(words).await;

    let ended = words(&["list", "--json"]).end().await.expect(0);
    let all = ended.events();
    let names: Vec<_> = all.iter().map(|lock| lock["resource"].as_str().unwrap()).collect();
    assert_eq!(names, ["jobs/a", "jobs/theirs"], "{ended:#?}");
    let [ours, theirs] = &all[..] else { panic!("two locks") };
    assert_eq!((&ours["depth"], &theirs["depth"]), (&1.into(), &2.into()), "{ended:#?}");
    assert!(ours["since"].is_string() && theirs["since"].is_null(), "{ended:#?}");
    let shown = format!("Redisson {OWNER}, depth 2");
    assert_eq!(theirs["holder"], shown, "{ended:#?}");
    for verb in ["status", "list"] {
        words(&[verb, "jobs/theirs"]).end().await.expect(0).shows(&shown);
    }
    words(&["run", "--no-wait", "jobs/theirs", "--", "true"]).end().await.expect(75).says(OWNER);
    drop(held);

    // In a settings file.
    let file = format!("nodes = [\"{}?layout=redisson\"]\nrestart-guard = \"off\"\n", servers[0].url());
    Quorlock::new(["status", "jobs/theirs"]).file("quorlock.toml", &file).end().await.expect(0).shows(&shown);
    words(&["run", "--shared", "jobs/a", "--", "true"]).end().await.says("shared locks");
    let ended = words(&["doctor"]).end().await;
    let output = &ended.stdout;
    assert!(output.contains("layout=redisson") && output.contains("1 of 1 nodes vote"), "{ended:#?}");
    assert!(!output.contains("missing-right"), "{ended:#?}");
}
