//! `quorlock status --watch` where stdout is no terminal, and of several locks.

use nix::sys::signal::Signal;

use crate::support::{Quorlock, STAYS, events, run, servers};

#[tokio::test]
async fn a_line_is_written_for_each_change_and_none_in_between() {
    let Some(servers) = servers(3).await else { return };
    let watch = Quorlock::new(["status", "--watch=20ms", "job", "other"]).on(&servers).start();
    let first = watch.lines(2).await;
    assert!(first[0].ends_with("Z  `job` is free") && first[1].ends_with("Z  `other` is free"), "{first:?}");
    let holder = run(&servers, &["--label", "the first"], STAYS).prints(1).await;
    let held = watch.lines(3).await;
    assert!(held[2].contains("`job` "), "{held:?}");
    holder.ends_by(Signal::SIGTERM).await.expect(143);
    let free = || watch.stdout().lines().filter(|line| line.ends_with("`job` is free")).count() == 2;
    quorlock_testkit::until("the release is seen", async || free()).await;
    let ended = watch.ends_by(Signal::SIGINT).await.expect(0);
    // From no node over some nodes to all of them and back; each step once.
    assert!(ended.stdout.lines().count() <= 2 + 2 * servers.len(), "{ended:?}");
    assert_eq!(ended.stdout.matches("`other`").count(), 1, "it has not changed: {ended:?}");
}

#[tokio::test]
async fn in_json_each_change_is_the_whole_state() {
    let Some(servers) = servers(3).await else { return };
    let watch = Quorlock::new(["status", "--json", "--watch=20ms", "job"]).on(&servers).prints(1).await;
    servers[0].kill();
    let states = events(&watch.lines(2).await.join("\n"));
    assert_eq!(states[1]["nodes"][0]["state"], "unknown", "{states:?}");
    watch.ends_by(Signal::SIGTERM).await.expect(0);
}

#[tokio::test]
async fn several_locks_are_shown_one_after_the_other() {
    let Some(servers) = servers(3).await else { return };
    let text = Quorlock::new(["status", "one", "two"]).on(&servers).end().await.expect(0);
    assert!(
        text.stdout.contains("`one` is free\n\n") && text.stdout.ends_with("`two` is free\n"),
        "{text:?}"
    );
    let json = Quorlock::new(["status", "--json", "one", "two"]).on(&servers).end().await.expect(0);
    let names = json.events();
    assert_eq!((&names[0]["resource"], &names[1]["resource"]), (&"one".into(), &"two".into()));
}

#[tokio::test]
async fn a_watch_needs_an_interval() {
    Quorlock::new(["status", "--watch=0s", "job", "--nodes", "redis://127.0.0.1:1"]).end().await.expect(64);
}

/// As `head` goes after its first line. Nothing changes after that, so nothing more is printed.
#[tokio::test]
async fn what_shows_locks_without_end_ends_with_its_reader() {
    let Some(servers) = servers(3).await else { return };
    for words in [
        &["status", "--watch=1h", "job"][..],
        &["status", "--json", "--watch=20ms", "job"],
        &["top", "--interval", "1h"],
        &["top", "--json", "--interval", "1h"],
    ] {
        let script = "\"$@\" | head -n 1; exit ${PIPESTATUS[0]}";
        let watch = Quorlock::new(words).on(&servers).through_all("bash", &["-c", script, "bash"]);
        // As if SIGPIPE had ended it.
        watch.end().await.expect(141);
    }
}
