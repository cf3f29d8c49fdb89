//! Waiting for a lock that another client holds.

use nix::sys::signal::Signal;
use quorlock_testkit::{ClosedPort, Servers, until};

use crate::support::{self, Quorlock, STAYS, UNTIL_ENOUGH, is_gone, keys, kill_all, run, servers, started};

/// A waiter whose process stands still for longer than its turn is passed over, as it must be: on a machine whose disk
/// stalls, that happens. It does not happen three times in a row.
#[tokio::test]
async fn waiters_come_in_the_order_they_came() {
    let Some(servers) = servers(3).await else { return };
    let mut orders = Vec::new();
    while orders.len() < 3 {
        let order = order_of_three_waiters(&servers).await;
        if order == "first\nsecond\nthird\n" {
            return;
        }
        orders.push(order);
    }
    panic!("three times out of order: {orders:?}");
}

async fn order_of_three_waiters(servers: &Servers) -> String {
    let holder = run(servers, &[], UNTIL_ENOUGH).prints(1).await;
    let common = tempfile::tempdir().unwrap();
    let log = common.path().join("log");
    let mut waiters = Vec::new();
    for (before, name) in ["first", "second", "third"].into_iter().enumerate() {
        let script = format!("echo {name} >> {}", log.display());
        // A node that is slow would be left out of the queue, and its waiters then have another order.
        let waiter = run(servers, &["-w", "forever", "-v", "--node-timeout", "2s"], &script).start();
        let place = format!("processes_before={before}");
        until("its place in the queue", async || waiter.stderr().contains(&place)).await;
        waiters.push(waiter);
    }
    holder.enough().await.expect(0);
    for waiter in waiters {
        waiter.end().await.expect(0);
    }
    std::fs::read_to_string(log).unwrap()
}

#[tokio::test]
async fn an_interrupted_wait_leaves_nothing() {
    let Some(servers) = servers(5).await else { return };
    let holder = run(&servers, &[], STAYS).prints(1).await;
    for (signal, code) in
        [(Signal::SIGHUP, 129), (Signal::SIGINT, 130), (Signal::SIGQUIT, 131), (Signal::SIGTERM, 143)]
    {
        let waiter = run(&servers, &["-w", "forever", "-vv"], "echo ran").waits().await;
        let ended = waiter.ends_by(signal).await.expect(code);
        assert_eq!(ended.stdout, "", "the command ran without the lock");
    }
    holder.ends_by(Signal::SIGTERM).await.expect(143);
    assert_eq!(keys(&servers).await, [""; 0]);
}

#[tokio::test]
async fn a_wait_without_a_quorum_can_be_interrupted_too() {
    let Some(servers) = servers(3).await else { return };
    kill_all(&servers[..2]);
    let waiter = run(&servers, &["-w", "forever", "-vv"], "echo ran").waits().await;
    waiter.ends_by(Signal::SIGTERM).await.expect(143);
    until("a clean server", async || keys(&servers[2..]).await.is_empty()).await;
}

#[tokio::test]
async fn every_verb_that_waits_says_why_once_for_each_node() {
    let ports = [(); 3].map(|()| ClosedPort::bind().unwrap());
    let urls: Vec<_> = ports.iter().map(|port| format!("redis://{}", port.address().unwrap())).collect();
    let waits: [&[&str]; 4] = [
        &["run", "-w", "forever", "job", "--", "true"],
        &["elect", "job", "--", "true"],
        &["hold", "-w", "forever", "job"],
        &["wait", "job"],
    ];
    let mut waiting = Vec::new();
    for words in waits {
        for json in [false, true] {
            let words =
                [words.get(..1).unwrap_or_default(), if json { &["--json"] } else { &[] }, &words[1..]];
            let command = Quorlock::new(words.concat()).env("QUORLOCK_NODES", &urls.join(","));
            waiting.push((words.concat(), json, command.start()));
        }
    }
    for (words, json, waiting) in waiting {
        let output = |url: &str| {
            let reports = waiting.stderr();
            let lines = reports.lines().filter(|line| line.contains("unreachable, reconnecting"));
            let event = |line: &str| support::json(line)["event"] == "warning";
            let good = |line: &&str| if json { event(line) } else { line.starts_with("quorlock: warning: ") };
            lines.filter(good).filter(|line| line.contains(url)).count()
        };
        let all = async || urls.iter().all(|url| output(url) > 0);
        until(&format!("the warnings of {words:?}"), all).await;
        assert!(urls.iter().all(|url| output(url) == 1), "{words:?}: {}", waiting.stderr());
        waiting.ends_by(Signal::SIGTERM).await.expect(143);
    }
}

#[tokio::test]
async fn a_terminated_waiter_leaves_no_command_running() {
    let Some(servers) = servers(3).await else { return };
    for first in ["the waiter", "the holder", "the waiter", "the holder"] {
        let (holder, held) = started(&servers, &[]).await;
        let waiter = run(&servers, &["-w", "forever", "-vv"], STAYS).waits().await;
        // Both together: the lock becomes free while the waiter gets SIGTERM.
        let order = if first == "the waiter" { [&waiter, &holder] } else { [&holder, &waiter] };
        for running in order {
            running.signal(Signal::SIGTERM);
        }
        holder.end().await.expect(143);
        let ended = waiter.end().await.expect(143);
        assert!(is_gone(&held));
        assert!(ended.stdout.lines().all(is_gone), "a command was started and stays: {ended:?}");
        assert_eq!(keys(&servers).await, [""; 0], "a lock was left behind");
    }
}
