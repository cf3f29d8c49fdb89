//! Several resources, locked together.

use nix::sys::signal::Signal;
use quorlock_testkit::{Servers, until};

use crate::support::{Quorlock, Running, json, keys, run, servers};

/// Starts a holder of two accounts, until the file `enough` exists.
async fn transfer(servers: &Servers, resources: [&str; 2]) -> Running {
    let script = "echo \"$QUORLOCK_RESOURCE\"; echo \"$QUORLOCK_TOKEN\"; exec sleep 1000";
    let words =
        ["run", resources[0], "--also", resources[1], "--label", "transfer", "--", "sh", "-c", script];
    Quorlock::new(words).on(servers).prints(2).await
}

#[tokio::test]
async fn one_client_holds_all_of_them() {
    let Some(servers) = servers(3).await else { return };
    let running = transfer(&servers, ["job", "another"]).await;
    assert!(running.stdout().starts_with("another + job\n"), "{}", running.stdout());
    run(&servers, &["-n"], "echo ran").end().await.expect(75);
    let alone = Quorlock::new(["run", "-n", "another", "--", "true"]).on(&servers).end().await.expect(75);
    assert!(alone.stderr.contains("transfer"), "{}", alone.stderr);
    let overlapping = Quorlock::new(["run", "-n", "free", "--also", "job", "--", "true"])
        .on(&servers)
        .end()
        .await
        .expect(75);
    assert!(overlapping.stderr.contains("`free + job` is held at `job` by"), "{}", overlapping.stderr);
    let status =
        Quorlock::new(["status", "--json", "free", "job", "another"]).on(&servers).end().await.expect(0);
    let holders: Vec<_> = status.events().iter().map(|lock| lock["holder"]["context"].clone()).collect();
    assert!(holders[0].is_null() && !holders[1].is_null() && holders[1] == holders[2], "{}", status.stdout);
    running.ends_by(Signal::SIGTERM).await.expect(143);
    assert_eq!(keys(&servers).await, [""; 0], "all are given back");
}

#[tokio::test]
async fn two_that_want_the_same_in_opposite_orders_both_get_it() {
    let Some(servers) = servers(3).await else { return };
    let take = |resources: [&'static str; 2]| {
        let script = "for turn in 1 2 3; do true; done; echo mine";
        let words = ["run", "-w", "forever", resources[0], "--also", resources[1], "--", "sh", "-c", script];
        Quorlock::new(words).on(&servers).start()
    };
    for running in [["a", "b"], ["b", "a"], ["b", "c"], ["c", "a"]].map(take) {
        assert_eq!(running.end().await.expect(0).stdout, "mine\n");
    }
    assert_eq!(keys(&servers).await, [""; 0]);
}

#[tokio::test]
async fn a_waiter_gets_them_when_the_last_is_free() {
    let Some(servers) = servers(3).await else { return };
    let held = Quorlock::new(["hold", "b"]).on(&servers).prints(4).await;
    let words = ["run", "-w", "forever", "-vv", "a", "--also", "b", "--", "echo", "mine"];
    let waiting = Quorlock::new(words).on(&servers).start();
    until("the wait", async || waiting.stderr().contains("`b` is held by")).await;
    held.ends_by(Signal::SIGTERM).await.expect(0);
    assert_eq!(waiting.end().await.expect(0).stdout, "mine\n");
}

#[tokio::test]
async fn they_are_released_together_by_their_token() {
    let Some(servers) = servers(3).await else { return };
    let held = Quorlock::new(["hold", "--json", "b", "--also", "a"]).on(&servers).prints(1).await;
    let got = json(&held.stdout());
    assert_eq!(got["resource"], "a + b");
    let words = ["release", "a", "--also", "b", "--token", got["token"].as_str().unwrap()];
    Quorlock::new(words).on(&servers).end().await.expect(0).shows("`a + b` was released");
    assert_eq!(keys(&servers).await, [""; 0]);
}

#[tokio::test]
async fn what_makes_no_sense_for_several_is_refused() {
    let refused = Quorlock::new(["run", "--shared", "a", "--also", "b", "--", "true"]).end().await.expect(64);
    assert!(refused.stderr.contains("--also"), "{}", refused.stderr);
    let also = (0..64).flat_map(|number| ["--also".to_owned(), number.to_string()]);
    let words = ["run", "--nodes", "redis://127.0.0.1:1", "x"].map(str::to_owned).into_iter().chain(also);
    let words: Vec<String> = words.chain(["--", "true"].map(str::to_owned)).collect();
    Quorlock::new(&words).end().await.expect(64).says("a lock of 65 resources");
}
