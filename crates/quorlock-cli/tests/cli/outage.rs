//! In an outage of all nodes each verb says so, within its wait: never that another client holds the lock.

use quorlock_testkit::Server;

use crate::support::{Quorlock, Running, servers};

/// The words of each verb, and what it prints.
const VERBS: [(&[&str], &str); 25] = [
    (&["run", "-n", "job", "--", "echo", "ran"], NO_QUORUM),
    (&["run", "-w", "300ms", "job", "--", "echo", "ran"], NO_QUORUM),
    (&["lock", "-n", "job", "echo", "ran"], NO_QUORUM),
    (&["run", "-n", "-E", "0", "job", "--", "echo", "ran"], NO_QUORUM),
    (&["run", "-n", "--shared", "job", "--", "echo", "ran"], NO_QUORUM),
    (&["run", "-w", "300ms", "--shared", "job", "--", "echo", "ran"], NO_QUORUM),
    (&["run", "-n", "--also", "other", "job", "--", "echo", "ran"], NO_QUORUM),
    (&["run", "-w", "300ms", "--also", "other", "job", "--", "echo", "ran"], NO_QUORUM),
    (&["run", "-n", "--permits", "2", "permits", "--", "echo", "ran"], NO_QUORUM),
    (&["run", "-w", "300ms", "--permits", "2", "permits", "--", "echo", "ran"], NO_QUORUM),
    (&["run", "-n", "--at-least", "1s", "job", "--", "echo", "ran"], NO_QUORUM),
    (&["run", "-n", "--once-per", "1day", "job", "--", "echo", "ran"], NO_QUORUM),
    (&["run", "-n", "--fencing", "off", "job", "--", "echo", "ran"], NO_QUORUM),
    (&["run", "-n", "--json", "job", "--", "echo", "ran"], r#""event":"no_quorum""#),
    (&["elect", "-w", "300ms", "job", "--", "echo", "ran"], NO_QUORUM),
    (&["hold", "-n", "job"], NO_QUORUM),
    (&["hold", "-w", "300ms", "job"], NO_QUORUM),
    (&["wait", "-w", "300ms", "job"], NO_QUORUM),
    (&["status", "job"], "0 of 3"),
    (&["list"], "0 of 3 nodes could be listed, 2 needed"),
    (&["top", "--iterations", "1"], "node"),
    (&["release", "job", "--force", "--yes"], "on 0 of 3 nodes"),
    (&["doctor"], "no-quorum"),
    (&["init"], "nothing is written"),
    (&["bench", "--duration", "300ms"], NO_QUORUM),
];
const NO_QUORUM: &str = "no quorum for `";

#[tokio::test]
async fn each_verb_says_that_no_quorum_answers() {
    each_verb(Server::kill, false).await;
}

#[tokio::test]
async fn each_verb_says_that_no_quorum_answers_although_others_wait_and_one_held_the_lock() {
    each_verb(|server| server.freeze().unwrap(), true).await;
}

/// Runs each verb after all servers were made to `fail`, with a holder and a waiter of each lock or without.
async fn each_verb(fail: fn(&Server), others: bool) {
    let Some(servers) = servers(3).await else { return };
    let start = |words: &[&str]| Quorlock::new(words).on(&servers);
    let mut running: Vec<Running> = Vec::new();
    for name in ["job", "permits"].into_iter().filter(|_| others) {
        let holder = start(&["hold", name]).prints(1).await;
        let waiter = start(&["run", "-w", "forever", "-vv", name, "--", "true"]).waits().await;
        running.extend([holder, waiter]);
    }
    servers.iter().for_each(fail);
    for (words, expected) in VERBS {
        let ended = start(words).end().await;
        let output = format!("{}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.code, Some(69), "{words:?}: {ended:#?}");
        assert!(output.contains(expected), "{words:?}: {ended:#?}");
        for wrong in ["ran\n", "held by", "` is held"] {
            assert!(!output.contains(wrong), "{words:?}: {ended:#?}");
        }
    }
    drop(running);
    // One that is stopped would not end.
    for server in servers.iter().filter(|_| others) {
        server.thaw().unwrap();
    }
}
