//! `quorlock bench`.

use nix::sys::signal::Signal;
use quorlock_testkit::{Resp, Servers, until};

use crate::support::{Quorlock, keys, kill_all, servers};

fn bench(servers: &Servers, options: &[&str]) -> Quorlock {
    Quorlock::new([&["bench"], options].concat()).on(servers)
}

/// Waits until no key of any kind is left but the fencing counters of hash slots.
async fn left_clean(servers: &Servers) {
    until("empty servers", async || {
        for server in servers.iter() {
            let Resp::List(keys) = server.command(&["KEYS", "*"]).await.unwrap() else { panic!("a list") };
            if !keys.iter().all(|key| key.to_string().ends_with(":quorlock:fence:counter")) {
                return false;
            }
        }
        true
    })
    .await;
}

#[tokio::test]
async fn it_measures_and_leaves_nothing_behind() {
    let Some(servers) = servers(3).await else { return };
    for prefix in ["", "app:"] {
        let words = ["--duration", "100ms", "--tasks", "4", "--json", "--key-prefix", prefix];
        let ended = bench(&servers, &words).end().await.expect(0);
        let value = ended.json();
        assert_eq!(value["nodes"].as_array().map(Vec::len), Some(3));
        assert_eq!(value["nodes"][0]["round_trip_us"]["count"], 100);
        for (load, tasks) in [(&value["loads"][0], 1), (&value["loads"][1], 4)] {
            assert_eq!((&load["tasks"], &load["failed"]), (&tasks.into(), &0.into()), "{value}");
            let acquired = load["acquire_us"]["count"].as_u64().unwrap();
            assert!(acquired > 0 && load["release_us"]["count"] == acquired, "{value}");
            let [p50, p99, max] =
                ["p50", "p99", "max"].map(|name| load["acquire_us"][name].as_u64().unwrap());
            assert!(0 < p50 && p50 <= p99 && p99 <= max, "{value}");
        }
        left_clean(&servers).await;
    }
}

#[tokio::test]
async fn a_table_is_for_people_and_a_dead_node_is_in_it() {
    let Some(servers) = servers(3).await else { return };
    servers[2].kill();
    let ended = bench(&servers, &["--duration", "50ms", "--fencing", "off"]).end().await.expect(0);
    assert!(ended.stdout.contains("100 of them unanswered: unreachable"), "{ended:?}");
    assert!(ended.stdout.contains("16 tasks: release"), "{ended:?}");
}

#[tokio::test]
async fn interrupted_it_leaves_nothing_behind_either() {
    let Some(servers) = servers(3).await else { return };
    let running = bench(&servers, &["--duration", "1h"]).start();
    until("locks", async || !keys(&servers[..1]).await.is_empty()).await;
    let ended = running.ends_by(Signal::SIGINT).await.expect(130);
    assert_eq!(ended.stdout, "", "no figures of half a run");
    left_clean(&servers).await;
}

#[tokio::test]
async fn without_a_quorum_it_is_69_and_without_time_64() {
    let Some(servers) = servers(3).await else { return };
    bench(&servers, &["--duration", "0s"]).end().await.expect(64);
    bench(&servers, &["--tasks", "0"]).end().await.expect(64);
    kill_all(&servers[..2]);
    bench(&servers, &["--duration", "50ms"]).end().await.expect(69);
}
