//! `quorlock hold`.

use nix::sys::signal::Signal;
use quorlock_testkit::{Servers, until};

use crate::support::{Quorlock, Running, events, keys, kill_all, run, servers};

fn hold(servers: &Servers, options: &[&str]) -> Quorlock {
    Quorlock::new([&["hold"], options, &["job"]].concat()).on(servers)
}

/// Returns the value after `name: ` in the output.
async fn line_with(running: &Running, name: &str) -> String {
    let lines = running.lines(4).await;
    let value = lines.iter().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    value.unwrap_or_else(|| panic!("{name} is not told: {lines:?}")).to_owned()
}

#[tokio::test]
async fn the_lock_is_held_and_renewed_until_a_signal_comes_and_then_given_back() {
    let Some(servers) = servers(3).await else { return };
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        let holder = hold(&servers, &["-t", "3s"]).start();
        let fencing_token: u64 = line_with(&holder, "fencing token").await.parse().unwrap();
        assert!(fencing_token > 0);
        if signal == Signal::SIGINT {
            // Still held after more than its TTL: another client waits that long in vain.
            run(&servers, &["-w", "4s", "-t", "3s"], "echo ran").end().await.expect(75);
        }
        holder.ends_by(signal).await.expect(0);
        assert_eq!(keys(&servers).await, [""; 0]);
    }
}

/// For a third of the TTL it could not know that another client may have held the lock.
#[tokio::test]
async fn it_prints_the_token_by_which_a_release_from_elsewhere_ends_it_with_76() {
    let Some(servers) = servers(3).await else { return };
    let holder = hold(&servers, &["-t", "3s", "--label", "the script"]).start();
    let token = line_with(&holder, "token").await;
    assert!(token.ends_with(" the script"), "{token}");
    Quorlock::new(["release", "job", "--token", &token]).on(&servers).end().await.expect(0);
    assert_eq!(keys(&servers).await, [""; 0]);
    holder.end().await.expect(76).says("`quorlock release` released it from elsewhere");
}

#[tokio::test]
async fn a_script_that_goes_away_takes_its_lock_with_it() {
    let Some(servers) = servers(3).await else { return };
    let mut holder = hold(&servers, &[]).stdin_open().prints(4).await;
    // Two of three are a quorum: each may be the last to store it.
    until("the lock", async || keys(&servers[..1]).await == ["job"]).await;
    holder.close_stdin();
    holder.end().await.expect(0);
    assert_eq!(keys(&servers).await, [""; 0]);
}

#[tokio::test]
async fn dev_null_and_files_do_not_end_it_by_default() {
    let Some(servers) = servers(3).await else { return };
    // /dev/null is what service managers give, and a file is at its end at some time.
    for holder in [hold(&servers, &[]), hold(&servers, &[]).stdin("an answer\n")] {
        let holder = holder.prints(4).await;
        run(&servers, &["-w", "300ms"], "echo ran").end().await.expect(75);
        holder.ends_by(Signal::SIGTERM).await.expect(0);
    }
    // It must wait for the lock: a free lock may be acquired before the end of stdin is noticed.
    let other = hold(&servers, &[]).prints(4).await;
    hold(&servers, &["--until-eof", "always"]).start().end().await.expect(129);
    other.ends_by(Signal::SIGTERM).await.expect(0);
    let mut deaf = hold(&servers, &["--until-eof", "never"]).stdin_open().prints(4).await;
    deaf.close_stdin();
    run(&servers, &["-w", "300ms"], "echo ran").end().await.expect(75);
    deaf.ends_by(Signal::SIGTERM).await.expect(0);
}

#[tokio::test]
async fn a_waiter_whose_stdin_ends_gets_no_lock_later() {
    let Some(servers) = servers(3).await else { return };
    let _holder = hold(&servers, &[]).prints(4).await;
    let mut waiter = hold(&servers, &["-w", "forever", "-vv"]).stdin_open().waits().await;
    waiter.close_stdin();
    let ended = waiter.end().await.expect(129);
    assert_eq!(ended.stdout, "");
}

#[tokio::test]
async fn a_lock_that_is_lost_ends_it_with_76() {
    let Some(servers) = servers(3).await else { return };
    let holder = hold(&servers, &["-t", "3s", "--json"]).prints(1).await;
    kill_all(&servers[..2]);
    let ended = holder.end().await.expect(76);
    let events = ended.events();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["acquired", "lost"], "{ended:?}");
    assert_eq!(events[1]["reason"], "not_renewed");
}

#[tokio::test]
async fn a_longest_hold_ends_it_with_76() {
    let Some(servers) = servers(3).await else { return };
    hold(&servers, &["--max-hold", "300ms"]).end().await.expect(76).says("max_hold");
}

#[tokio::test]
async fn a_held_lock_is_75_and_names_the_holder() {
    let Some(servers) = servers(3).await else { return };
    let _holder = hold(&servers, &["--label", "the first"]).prints(4).await;
    let refused = hold(&servers, &["-n"]).end().await.expect(75).says("the first");
    assert_eq!(refused.stdout, "");
    hold(&servers, &["-n", "-E", "9"]).end().await.expect(9);
}

#[tokio::test]
async fn a_blocked_stdout_does_not_stop_renewals() {
    let Some(servers) = servers(3).await else { return };
    // The pipe is full before it has said a word.
    let holder = hold(&servers, &["-t", "3s"]).start_with_full_stdout();
    until("the lock", async || keys(&servers).await.len() >= 2).await;
    run(&servers, &["-w", "4s", "-t", "3s"], "echo ran").end().await.expect(75);
    holder.ends_by(Signal::SIGTERM).await.expect(0);
    assert_eq!(keys(&servers).await, [""; 0]);
}

/// For programs in any language: what it writes is answered on stdout.
#[tokio::test]
async fn a_program_checks_renews_and_releases_by_lines() {
    let Some(servers) = servers(3).await else { return };
    let mut holder = hold(&servers, &["--json", "-t", "30s"]).stdin_open().prints(1).await;
    holder.write_stdin("check\nrenew\nmore\n");
    let lines = holder.lines(4).await;
    let events = events(&lines.join("\n"));
    assert_eq!(events[1]["event"], "checked");
    assert_eq!(events[1]["held"], true);
    assert_eq!(events[2]["event"], "renewed");
    assert!(events[2]["remaining_ms"].as_u64() >= events[1]["remaining_ms"].as_u64(), "{lines:?}");
    assert_eq!(events[3]["event"], "unknown");
    assert!(events[3]["known"].as_array().unwrap().contains(&"renew".into()));
    // Its stdin stays open.
    holder.write_stdin("release\n");
    let ended = holder.end().await.expect(0);
    assert!(ended.stdout.lines().last().unwrap().contains("released"), "{ended:?}");
    assert_eq!(keys(&servers).await, [""; 0]);
}
