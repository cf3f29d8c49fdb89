//! `run --permits`: at most N at the same time.

use quorlock_testkit::Servers;

use crate::support::{Quorlock, Running, keys, run, servers};

const UNTIL_ENOUGH: &str = "echo $QUORLOCK_PERMIT; while [ ! -e enough ]; do sleep 0.05; done";

/// Starts the holders of both of two permits.
async fn both(servers: &Servers) -> Vec<Running> {
    let mut holders = Vec::new();
    for _ in 0..2 {
        let holder = run(servers, &["--permits", "2", "--label", "export"], UNTIL_ENOUGH).prints(1).await;
        holders.push(holder);
    }
    holders
}

async fn end(holders: Vec<Running>) {
    for holder in holders {
        holder.enough().await.expect(0);
    }
}

#[tokio::test]
async fn two_run_and_the_third_waits_or_is_refused() {
    let Some(servers) = servers(3).await else { return };
    let mut holders = both(&servers).await;
    let mut numbers: Vec<String> = holders.iter().map(Running::stdout).collect();
    numbers.sort();
    assert_eq!(numbers, ["0\n", "1\n"], "each knows its number");

    let refused = run(&servers, &["--permits", "2", "-n"], "echo ran").end().await.expect(75);
    assert!(refused.stderr.contains("all 2 permits of `job` are taken"), "{}", refused.stderr);
    assert!(refused.stderr.contains(" export"), "by whom: {}", refused.stderr);
    run(&servers, &["--permits", "2", "-n", "-E", "9"], "echo ran").end().await.expect(9);

    let waiter = run(&servers, &["--permits", "2", "-w", "forever", "-vv"], "echo ran").waits().await;
    assert_eq!(waiter.stdout(), "", "three hold two permits");
    end(vec![holders.remove(0)]).await;
    assert_eq!(waiter.end().await.expect(0).stdout, "ran\n");
    end(holders).await;
    assert_eq!(keys(&servers).await, [""; 0]);
}

#[tokio::test]
async fn another_number_of_permits_is_refused_with_both_numbers() {
    let Some(servers) = servers(3).await else { return };
    let holders = both(&servers).await;
    for patience in ["-n", "-w5s"] {
        let refused = run(&servers, &["--permits", "3", patience], "echo ran").end().await.expect(78);
        let first = "quorlock: the semaphore `job` has 2 permits, and 3 were asked for";
        assert!(refused.stderr.starts_with(first), "a mistake, and no outage: {}", refused.stderr);
    }
    end(holders).await;
    for number in ["0", "65"] {
        run(&servers, &["--permits", number], "echo ran").end().await.expect(64).says("between 1 and 64");
    }
}

#[tokio::test]
async fn status_shows_each_permit_and_release_asks_for_one_of_them() {
    let Some(servers) = servers(3).await else { return };
    let holders = both(&servers).await;
    let status = Quorlock::new(["status", "job"]).on(&servers).end().await.expect(0);
    for permit in ["`job#0` is held by", "`job#1` is held by"] {
        assert!(status.stdout.contains(permit), "{}", status.stdout);
    }
    assert!(!status.stdout.contains("`job` is free"), "{}", status.stdout);

    let which = Quorlock::new(["release", "--force", "--yes", "job"]).on(&servers).end().await.expect(64);
    assert!(which.stderr.contains("a semaphore of 2 permits"), "{}", which.stderr);
    assert!(which.stderr.contains("`job#0`"), "{}", which.stderr);
    end(holders).await;
    let free = Quorlock::new(["release", "--force", "--yes", "nothing"]).on(&servers).end().await.expect(0);
    assert!(free.stdout.contains("is free"), "{}", free.stdout);
}

#[tokio::test]
async fn status_shows_a_plain_lock_and_the_permits_of_the_same_name() {
    let Some(servers) = servers(3).await else { return };
    let holders = both(&servers).await;
    let plain = run(&servers, &["--label", "alone"], UNTIL_ENOUGH).prints(1).await;
    let status = Quorlock::new(["status", "job"]).on(&servers).end().await.expect(0);
    for held in ["`job` is held by", "`job#0` is held by", "`job#1` is held by", "neither excludes the other"]
    {
        assert!(status.stdout.contains(held), "{held}: {}", status.stdout);
    }
    let json = Quorlock::new(["status", "--json", "job"]).on(&servers).end().await.expect(0);
    assert_eq!(json.stdout.lines().count(), 3, "{}", json.stdout);
    end(vec![plain]).await;
    end(holders).await;
}

#[tokio::test]
async fn at_least_allows_one_run_per_permit_and_slot() {
    let Some(servers) = servers(3).await else { return };
    let options = ["--permits", "2", "--at-least", "1h"];
    for _ in 0..2 {
        assert_eq!(run(&servers, &options, "echo ran").end().await.expect(0).stdout, "ran\n");
    }
    run(&servers, &options, "echo ran").end().await.expect(75).says(" ran at 20").says("(exit 0)");
    Quorlock::new(["status", "job"]).on(&servers).end().await.expect(0).shows("`job#1` stays taken");
}
