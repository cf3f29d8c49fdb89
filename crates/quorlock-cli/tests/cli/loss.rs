//! A command ends before its lock expires.

use std::time::Duration;

use nix::sys::signal::Signal;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_testkit::{Proxy, Way, until};

use crate::support::{
    STAYS, each, events_among, freeze, is_gone, keys, kill_all, run, servers, started, thaw,
};

/// Long, so that the margin before the end of validity is wider than the delays of a busy machine.
pub(crate) const TTL: Duration = Duration::from_secs(5);

/// Starts a process that ignores signals, prints which signals it gets, and ignores them as well.
const STUBBORN: &str = "trap 'echo asked to end' TERM; (trap '' TERM; exec sleep 1000) & \
                        echo $!; echo $$; while :; do sleep 0.05; done";

#[tokio::test]
async fn it_is_asked_to_end_and_then_killed_with_all_it_started() {
    let Some(servers) = servers(5).await else { return };
    let running = run(&servers, &["-t", "5s"], STUBBORN).start();
    let pids = running.lines(2).await;
    freeze(&servers[..3]);
    // No later renewal can get a quorum.
    let clock = SystemClock::default();
    let validity_ends = clock.now() + TTL.mul_f64(0.99);
    until("the end of the whole group", async || pids.iter().all(|pid| is_gone(pid))).await;
    let gone = clock.now();
    let ended = running.end().await.expect(76);
    assert!(gone < validity_ends, "it ran {:?} without the lock; {ended:?}", gone.since(validity_ends));
    assert!(ended.stdout.ends_with("asked to end\n"), "SIGTERM came first; {ended:?}");
    ended.says("stopping the command").says("not renewed");
    thaw(&servers[..3]);
    until("clean servers", async || keys(&servers).await.is_empty()).await;
}

#[tokio::test]
async fn a_command_that_ends_well_when_asked_has_still_lost_its_lock() {
    let Some(servers) = servers(3).await else { return };
    let script = "trap 'exit 0' TERM; echo started; while :; do sleep 0.05; done";
    let running = run(&servers, &["-t", "3s", "--json"], script).prints(1).await;
    kill_all(&servers[..2]);
    let ended = running.end().await.expect(76);
    // The shell writes to it as well.
    let mut events = events_among(&ended.stderr);
    // Of the servers, and of renewals.
    events.retain(|event| event["event"] != "warning");
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap_or_default()).collect();
    assert_eq!(names, ["acquired", "lost", "unconfirmed"], "{ended:?}");
    assert_eq!((&events[1]["reason"], &events[1]["signal"]), (&"not_renewed".into(), &"SIGTERM".into()));
}

#[tokio::test]
async fn when_a_quorum_has_forgotten_the_lock_there_is_no_time_to_ask() {
    let Some(servers) = servers(3).await else { return };
    let running = run(&servers, &["-t", "3s"], STUBBORN).start();
    let pids = running.lines(2).await;
    each(&servers[..2], &["SET", "job", "another client", "PX", "60000"]).await;
    let ended = running.end().await.expect(76);
    assert!(
        !ended.stdout.contains("asked"),
        "it ran on although another client may hold the lock; {ended:?}"
    );
    // SIGKILL was sent before quorlock ended; the kernel takes its time.
    until("nothing that runs on without the lock", async || pids.iter().all(|pid| is_gone(pid))).await;
}

#[tokio::test]
async fn a_longest_hold_ends_the_command() {
    let Some(servers) = servers(3).await else { return };
    run(&servers, &["--max-hold", "600ms"], "exec sleep 1000").end().await.expect(76).says("--max-hold");
    assert_eq!(keys(&servers).await, [""; 0], "a lock was left behind");
}

#[tokio::test]
async fn a_blocked_stderr_does_not_keep_it_alive() {
    let Some(servers) = servers(3).await else { return };
    // It fills the pipe, which then has no room for quorlock's own messages either.
    let script = "trap '' TERM; echo $$; exec cat /dev/zero >&2";
    let running = run(&servers, &["-vv", "-t", "3s"], script).start_unread();
    let pid = running.lines(1).await.remove(0);
    kill_all(&servers[..2]);
    until("the end of the command", async || is_gone(&pid)).await;
    running.end().await.expect(76);
}

#[tokio::test]
async fn a_lost_lock_ends_the_command_before_the_next_holder() {
    let Some(servers) = servers(3).await else { return };
    // One client, and no other, is cut off from all nodes.
    let proxies = servers.ways(Duration::ZERO).await.unwrap();
    let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
    let stubborn = format!("trap '' TERM; {STAYS}");
    let cut_off = run(&servers, &["-t", "2s"], &stubborn).env("QUORLOCK_NODES", &urls.join(",")).start();
    let pid = cut_off.lines(1).await.remove(0);
    let next =
        run(&servers, &["-w", "forever", "-vv"], &format!("! kill -0 {pid} && echo alone")).waits().await;
    for proxy in &proxies {
        proxy.hold(Way::Both);
    }
    // `kill -0` fails only once the first has ended and been reaped.
    let next = next.end().await.expect(0);
    assert_eq!(next.stdout, "alone\n", "two ran at the same time; {next:?}");
    for proxy in &proxies {
        proxy.release(Way::Both);
    }
    cut_off.end().await.expect(76);
}

#[tokio::test]
async fn a_hiccup_of_all_nodes_is_no_loss() {
    let Some(servers) = servers(3).await else { return };
    let (running, pid) = started(&servers, &["-t", "12s", "-vv"]).await;
    freeze(&servers);
    until("a renewal in vain", async || running.stderr().contains("renewal not confirmed")).await;
    thaw(&servers);
    until("a renewal", async || running.stderr().contains("renewed")).await;
    assert!(!is_gone(&pid), "{}", running.stderr());
    running.ends_by(Signal::SIGTERM).await.expect(143);
}
