//! The output of each verb, as snapshots in `snapshots/` with variable parts masked.
//!
//! `INSTA_UPDATE=always cargo test -p quorlock-cli --test cli shown` rewrites them; review the changes before you
//! commit them.

use crate::support::{Ended, Quorlock, Running, has_waiter, keys, kill_all, run, servers};
use std::sync::LazyLock;

use insta::assert_snapshot;
use nix::sys::signal::Signal;
use quorlock_testkit::{Servers, until};
use regex::Regex;

/// What differs between runs, and its replacement.
static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"\b[0-9a-f]{32}\b", "TOKEN"),
        (r#""token":"[0-9a-f]{8}""#, r#""token":"TOKEN""#),
        (r"token=[0-9a-f]{8}", "token=TOKEN"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "DATE"),
        (r"\b1[0-9]{15}\b", "FENCING"),
        (r#""id":"[0-9a-f]{16}""#, r#""id":"ID""#),
        (r#"[^ "\x60(]+:\d+( (?:the first|the second|bench))"#, "HOST:PID$1"),
        (r"\b(?:redis|valkey)-server \d[^)]*\([^)]*\)", "SERVER VERSION"),
        (
            r#""(\w+_ms|at_ms|p50|p99|max|count|round_trip_us|seconds|locks_per_second)":[0-9.e-]+"#,
            r#""$1":N"#,
        ),
        (r"(\d+(\.\d+)?(s|ms|us|µs)\b ?)+(to go|more|left|later|after|before)", "TIME $4"),
        (r"\b\d+s \d+ms\b|\b\d+(\.\d+)?(s|ms|us|µs)\b", "TIME"),
        (r"\b\d+\.\d\d s\b", "TIME"),
        (r"(?m)  +\d+$", "  N"),
        (r"/\S*/\.tmp\w+", "HOME"),
        // It varies which nodes have answered by the time of the decision.
        (r"\d of 3 nodes for up", "N of 3 nodes for up"),
        (r"\d of 3 granted, 2 needed \(.*\)", "N of 3 granted, 2 needed (WHY)"),
        (r"  +", "  "),
        (r"(?m) +$", ""),
    ]
    .map(|(pattern, mask)| (Regex::new(pattern).expect("a pattern"), mask))
    .into()
});

fn masked(text: &str, servers: &[quorlock_testkit::Server]) -> String {
    let mut text = text.to_owned();
    for (place, server) in servers.iter().enumerate() {
        text = text.replace(&server.bare_url(), &format!("redis://node-{}", place + 1));
        text = text.replace(&format!("127.0.0.1:{}", server.port()), &format!("node-{}", place + 1));
    }
    MASKS.iter().fold(text, |text, (pattern, mask)| pattern.replace_all(&text, *mask).into_owned())
}

/// Exit code and output, masked.
fn seen(ended: &Ended, servers: &[quorlock_testkit::Server]) -> String {
    let Ended { code, stdout, stderr, .. } = ended;
    let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
    masked(&format!("exit code: {code}\n--- stdout\n{stdout}--- stderr\n{stderr}"), servers)
}

async fn shows(servers: &Servers, words: &[&str]) -> String {
    seen(&Quorlock::new(words).on(servers).end().await, servers)
}

/// Starts a holder of the lock, and waits until every node has its key.
async fn holder(servers: &Servers) -> Running {
    let running = run(servers, &["--label", "the first"], "echo started; exec sleep 1000").prints(1).await;
    until("the lock at each node", async || keys(servers).await.len() == servers.len()).await;
    running
}

/// All verbs, in the order of the help.
pub(crate) const VERBS: [&str; 15] = [
    "run",
    "elect",
    "status",
    "list",
    "log",
    "top",
    "doctor",
    "init",
    "hold",
    "wait",
    "release",
    "bench",
    "demo",
    "completions",
    "man",
];

#[tokio::test]
async fn the_help_lists_the_verbs() {
    // Unmasked: nothing in it varies.
    let help = Quorlock::new(["--help"]).end().await.expect(0).stdout;
    let verbs = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
    // Continuations of a line are further to the right.
    let verbs =
        verbs.lines().filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    let verbs = verbs.filter_map(|line| line.split(' ').next()).filter(|verb| *verb != "help");
    assert_eq!(verbs.collect::<Vec<_>>(), VERBS, "the tests of all verbs use that list");
    assert_snapshot!("help", help);
    // A sample of the layout: the reference pins the text of each verb.
    assert_snapshot!("help_run", Quorlock::new(["run", "--help"]).end().await.expect(0).stdout);
}

#[tokio::test]
async fn the_short_help_fits_on_a_screen_and_names_the_long_one() {
    assert_snapshot!("help_short_run", Quorlock::new(["run", "-h"]).end().await.expect(0).stdout);
    for verb in VERBS {
        let short = Quorlock::new([verb, "-h"]).end().await.expect(0).stdout;
        assert!(short.lines().count() <= 40, "{verb} -h has {} lines: {short}", short.lines().count());
        assert!(short.contains("--help"), "{verb} -h does not name the long help: {short}");
    }
}

#[tokio::test]
async fn run_that_gets_the_lock_and_that_does_not() {
    let Some(servers) = servers(3).await else { return };
    let _holder = holder(&servers).await;
    assert_snapshot!("run_held", shows(&servers, &["run", "-n", "job", "--", "true"]).await);
    assert_snapshot!("run_held_json", shows(&servers, &["run", "-n", "--json", "job", "--", "true"]).await);
    let words = ["run", "--json", "--label", "the first", "other", "--", "echo", "from the command"];
    assert_snapshot!("run_json", shows(&servers, &words).await);
    kill_all(&servers[..2]);
    assert_snapshot!("run_no_quorum", shows(&servers, &["run", "-n", "-q", "third", "--", "true"]).await);
}

#[tokio::test]
async fn run_that_loses_the_lock() {
    let Some(servers) = servers(3).await else { return };
    let running = run(&servers, &["-t", "9s", "-q"], "echo started; exec sleep 1000").prints(1).await;
    kill_all(&servers[..2]);
    assert_snapshot!("run_lost", seen(&running.end().await, &servers));
}

#[tokio::test]
async fn status_of_a_held_a_free_and_an_unknown_lock() {
    let Some(servers) = servers(3).await else { return };
    assert_snapshot!("status_free", shows(&servers, &["status", "job"]).await);
    let _holder = holder(&servers).await;
    assert_snapshot!("status_held", shows(&servers, &["status", "job"]).await);
    assert_snapshot!("status_held_json", shows(&servers, &["status", "--json", "job"]).await);
    kill_all(&servers[..2]);
    assert_snapshot!("status_unclear", shows(&servers, &["status", "-q", "job"]).await);
}

#[tokio::test]
async fn status_of_a_lock_that_others_wait_for() {
    let Some(servers) = servers(3).await else { return };
    let _holder = holder(&servers).await;
    let _waiter = run(&servers, &["-w", "forever", "--label", "the second"], "true").start();
    has_waiter(&servers, "job").await;
    assert_snapshot!("status_waited_for", shows(&servers, &["status", "job"]).await);
    assert_snapshot!("status_waited_for_json", shows(&servers, &["status", "--json", "job"]).await);
}

#[tokio::test]
async fn hold_from_beginning_to_end() {
    let Some(servers) = servers(3).await else { return };
    for (name, options, lines) in [("hold", &[][..], 4), ("hold_json", &["--json"], 1)] {
        let words = [&["hold", "--label", "the first", "job"], options].concat();
        let running = Quorlock::new(words).on(&servers).start();
        running.lines(lines).await;
        running.signal(Signal::SIGTERM);
        assert_snapshot!(name, seen(&running.end().await, &servers));
    }
}

#[tokio::test]
async fn release_by_token_and_by_force() {
    let Some(servers) = servers(3).await else { return };
    assert_snapshot!("release_free", shows(&servers, &["release", "--force", "job"]).await);
    let holder = holder(&servers).await;
    assert_snapshot!("release_wrong", shows(&servers, &["release", "--token", "another one", "job"]).await);
    assert_snapshot!("release_unasked", shows(&servers, &["release", "--force", "job"]).await);
    // It would give up what is left of its lock when most nodes have lost it.
    holder.signal(Signal::SIGSTOP);
    assert_snapshot!("release_force", shows(&servers, &["release", "--force", "--yes", "job"]).await);
    let json = ["release", "--token", "another one", "--json", "job"];
    assert_snapshot!("release_json", shows(&servers, &json).await);
}

#[tokio::test]
async fn bench_in_tables_and_in_json() {
    let Some(servers) = servers(3).await else { return };
    // No node is given up on, however busy the machine.
    let words = ["bench", "--duration", "30ms", "--tasks", "2", "--node-timeout", "1s"];
    assert_snapshot!("bench", shows(&servers, &words).await);
    assert_snapshot!("bench_json", shows(&servers, &[&words[..], &["--json"]].concat()).await);
}

#[tokio::test]
async fn what_is_wrong_with_settings_and_arguments() {
    assert_snapshot!("no_nodes", seen(&Quorlock::new(["status", "job"]).end().await, &[]));
    assert_snapshot!("no_verb", seen(&Quorlock::new(["sing"]).end().await, &[]));
    assert_snapshot!("no_command", seen(&Quorlock::new(["run", "job"]).end().await, &[]));
    let json = Quorlock::new(["hold", "--json", "job"]).end().await;
    assert_snapshot!("no_nodes_json", seen(&json, &[]));
}
