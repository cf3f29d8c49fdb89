//! `quorlock release`.

use nix::sys::signal::Signal;
use quorlock_testkit::{Resp, Servers, until};
use serde_json::Value;

use crate::support::{Ended, Quorlock, Running, each, events, keys, run, servers};

fn release(servers: &Servers, options: &[&str]) -> Quorlock {
    Quorlock::new([&["release", "job"], options].concat()).on(servers)
}

/// A holder of the lock, with the token and the fencing token of its command.
async fn holder(servers: &Servers) -> (Running, String, u64) {
    let script = "echo \"$QUORLOCK_TOKEN\"; echo $QUORLOCK_FENCE; exec sleep 1000";
    let running = run(servers, &["--label", "the first"], script).start();
    let lines = running.lines(2).await;
    until("the lock at each node", async || keys(servers).await.len() == servers.len()).await;
    (running, lines[0].clone(), lines[1].parse().unwrap())
}

/// Releases while the holder stands still: it gives up what is left of its lock when most nodes have lost it.
async fn released_from(holder: &Running, release: Quorlock) -> Ended {
    holder.signal(Signal::SIGSTOP);
    let ended = release.end().await.expect(0);
    holder.signal(Signal::SIGCONT);
    ended
}

#[tokio::test]
async fn with_its_token_a_lock_is_given_back_and_with_another_it_is_not() {
    let Some(servers) = servers(3).await else { return };
    let (holder, token, _) = holder(&servers).await;
    let wrong = release(&servers, &["--token", "another one"]).end().await.expect(75);
    assert!(wrong.stdout.contains("is not held with this token"), "{wrong:?}");
    assert_eq!(keys(&servers).await, ["job"; 3], "nothing was changed");
    let right = released_from(&holder, release(&servers, &["--token", &token])).await;
    assert!(right.stdout.ends_with("`job` was released on 3 of 3 nodes\n"), "{right:?}");
    assert_eq!(keys(&servers).await, [""; 0]);
    // The holder notices, and does not store its key again.
    holder.end().await.expect(76);
    assert_eq!(keys(&servers).await, [""; 0]);
}

#[tokio::test]
async fn the_token_may_come_from_a_file_or_stdin() {
    let Some(servers) = servers(3).await else { return };
    let (_first, token, _) = holder(&servers).await;
    let by_stdin = release(&servers, &["--token-file", "-"]).stdin(&format!("{token}\n"));
    by_stdin.end().await.expect(0);
    let (_second, token, _) = holder(&servers).await;
    // It has no end.
    release(&servers, &["--token-file", "/dev/zero"]).end().await.expect(75);
    release(&servers, &["--token-file", "token"]).file("token", &token).end().await.expect(0);
    release(&servers, &["--token-file", "missing"]).end().await.expect(64);
    release(&servers, &["--token", ""]).end().await.expect(64);
}

#[tokio::test]
async fn force_names_the_holders_and_needs_a_terminal() {
    let Some(servers) = servers(3).await else { return };
    let (holder, _, fencing_token) = holder(&servers).await;
    let refused = release(&servers, &["--force"]).end().await.expect(64);
    assert!(refused.stderr.contains("--yes"), "the cure is named: {refused:?}");
    assert_eq!(keys(&servers).await, ["job"; 3], "nothing was changed");
    let taken = released_from(&holder, release(&servers, &["--force", "--yes"])).await;
    for word in [
        "the first",
        &fencing_token.to_string(),
        "until nodes notify it",
        "fencing tokens",
        &servers[0].bare_url(),
    ] {
        assert!(taken.stderr.contains(word), "`{word}` is not said: {taken:?}");
    }
    assert_eq!(taken.stdout.matches("deleted: ").count(), 3, "node by node: {taken:?}");
    holder.end().await.expect(76);
    let next = run(&servers, &["-n"], "echo $QUORLOCK_FENCE").end().await.expect(0);
    assert!(next.stdout.trim().parse::<u64>().unwrap() > fencing_token, "the counters are kept");
}

#[tokio::test]
async fn unlock_is_an_alias_and_json_agrees() {
    let Some(servers) = servers(3).await else { return };
    let (holder, token, _) = holder(&servers).await;
    let secret = token.split(' ').next().unwrap_or_default();
    let words = ["unlock", "--force", "-y", "--json", "job"];
    let released = released_from(&holder, Quorlock::new(words).on(&servers)).await;
    let value = released.json();
    assert_eq!((&value["state"], &value["nodes"][2]["state"]), (&"released".into(), &"deleted".into()));
    assert!(value["nodes"][0]["from"][0].as_str().is_some_and(|from| from.ends_with("the first")), "{value}");
    assert!(
        !released.stdout.contains(secret) && !released.stderr.contains(secret),
        "a token is a secret: {released:?}"
    );
    let again = Quorlock::new(words).on(&servers).end().await.expect(0);
    let value = again.json();
    assert_eq!(value["state"], "free");
}

#[tokio::test]
async fn data_of_another_program_is_left_alone() {
    let Some(servers) = servers(3).await else { return };
    each(&servers, &["SET", "job", "a precious thing"]).await;
    release(&servers, &["--force", "--yes"]).end().await.expect(69).shows("no lock");
    assert_eq!(keys(&servers).await, ["job"; 3]);
}

#[tokio::test]
async fn all_leftovers_are_removed() {
    let Some(servers) = servers(3).await else { return };
    for (server, token) in servers.iter().zip(["one", "two"]) {
        server.command(&["SET", "job", token, "PX", "60000"]).await.unwrap();
    }
    release(&servers, &["--force", "--yes"]).end().await.expect(0).shows("was released on 2 of 3 nodes");
    assert_eq!(keys(&servers).await, [""; 0]);
}

#[tokio::test]
async fn nodes_that_do_not_answer_are_named_and_too_many_of_them_are_69() {
    let Some(servers) = servers(3).await else { return };
    let (holder, _, _) = holder(&servers).await;
    servers[0].kill();
    let most = release(&servers, &["--force", "--yes"]).end().await.expect(0);
    assert!(most.stdout.contains("released on 2 of 3 nodes; 1 did not vote"), "{most:?}");
    holder.end().await.expect(76);
    servers[1].kill();
    release(&servers, &["--force", "--yes"]).end().await.expect(69).shows("may still be held");
}

#[tokio::test]
async fn nodes_that_answer_and_do_not_vote_yet_are_not_said_to_be_silent() {
    let Some(servers) = servers(3).await else { return };
    let young = release(&servers, &["--force", "--yes"]).env("QUORLOCK_RESTART_GUARD", "on");
    let young = young.end().await.expect(69).shows("too recently to vote");
    assert!(young.stdout.contains("on 0 of 3 nodes; 3 did not vote, as the table says"), "{young:?}");
}

#[tokio::test]
async fn a_lock_acquired_in_the_meantime_is_kept() {
    let Some(servers) = servers(3).await else { return };
    let (first, token, _) = holder(&servers).await;
    first.ends_by(Signal::SIGTERM).await.expect(143);
    let (_second, other, _) = holder(&servers).await;
    assert_ne!(token, other);
    release(&servers, &["--token", &token]).end().await.expect(75);
    let Resp::List(held) = servers[0].command(&["MGET", "job"]).await.unwrap() else { panic!("a list") };
    assert_eq!(held[0].to_string(), other);
}

/// Every node grants the lock, and refuses its release.
#[tokio::test]
async fn a_release_that_the_nodes_refuse_is_not_called_one() {
    let servers = Servers::setup().options(&["--rename-command", "DEL", ""]).start(3).await.unwrap();
    if !matches!(servers.kind(), quorlock_testkit::Kind::Program { .. }) {
        return println!("skipped: the built-in server renames no command");
    }
    let ended = run(&servers, &["-t", "30s", "--json"], "exit 5").end().await.expect(5);
    // The warning about a node that answers late may come after it.
    let unconfirmed = |events: Vec<Value>| {
        let found = events.iter().find(|event| event["event"] == "unconfirmed");
        found.unwrap_or_else(|| panic!("{events:?}")).clone()
    };
    let event = unconfirmed(events(&ended.stderr));
    assert!(event["message"].as_str().unwrap().contains("0 of 3"), "{event}");
    // The third may not have been asked in time.
    assert!(keys(&servers).await.len() >= 2, "a quorum still has it");

    let free = async || {
        each(&servers, &["FLUSHALL"]).await;
    };
    for options in [&["-t", "30s"][..], &["-t", "30s", "-q"]] {
        free().await;
        let ended = run(&servers, options, "true").end().await.expect(0);
        assert_eq!(ended.stderr.matches("not confirmed").count(), 1, "{ended:?}");
    }

    free().await;
    let holder = Quorlock::new(["hold", "--json", "job"]).on(&servers).prints(1).await;
    let ended = holder.ends_by(Signal::SIGTERM).await.expect(0);
    let event = unconfirmed(ended.events());
    assert!(event["held_ms"].is_number() && event["token"].is_string(), "{event}");

    let refused = release(&servers, &["--force", "--yes"]).end().await.expect(69);
    assert!(refused.stdout.contains("may still be held: released on 0 of 3 nodes"), "{refused:?}");
}
