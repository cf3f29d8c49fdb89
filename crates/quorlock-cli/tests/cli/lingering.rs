//! Processes that outlive the command: the lock is kept for them.

use nix::sys::signal::Signal;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_testkit::{Servers, until};

use crate::loss::TTL;
use crate::support::{
    NAMESPACES, Quorlock, Running, freeze, has_namespaces, is_gone, keys, kill_all, run, send, servers, thaw,
};

/// Prints its process id, ignores signals, and runs until the file `enough` exists.
const WORKS: &str = "sh -c 'trap \"\" TERM INT; echo $$; while [ ! -e enough ]; do sleep 0.05; done'";
/// Leaves the group, and prints its process id when its parent may end.
const DAEMON: &str = "setsid sh -c 'trap \"\" TERM; echo $$; : > left; exec sleep 1000' & \
                      while [ ! -e left ]; do sleep 0.05; done";

/// Starts such a command, and returns what is left of it when its first process has ended.
async fn lingering(servers: &Servers, options: &[&str], script: &str) -> (Running, String) {
    let running = run(servers, options, script).start();
    let mut pids = running.lines(2).await;
    gone(&pids[0]).await;
    (running, pids.remove(1))
}

async fn gone(pid: &str) {
    until("the end of a process", async || is_gone(pid)).await;
}

/// Checks that other clients cannot acquire the lock.
async fn is_held(servers: &Servers) {
    run(servers, &["-w", "300ms"], "echo ran").end().await.expect(75);
}

/// Far less than the TTL of a lock that was left behind, but enough for slow nodes.
async fn is_free(servers: &Servers) {
    run(servers, &["-w", "10s"], "echo ran").end().await.expect(0);
}

#[tokio::test]
async fn r1_a_lock_is_kept_while_what_was_started_finishes_its_work_after_its_parent_was_ended() {
    let Some(servers) = servers(3).await else { return };
    // The shell has no trap, so SIGTERM ends it.
    let running = run(&servers, &["-t", "3s"], &format!("echo $$; {WORKS}; true")).start();
    let pids = running.lines(2).await;
    running.signal(Signal::SIGTERM);
    gone(&pids[0]).await;
    // For longer than its TTL: the lock is renewed.
    run(&servers, &["-w", "4s"], "echo ran").end().await.expect(75);
    assert!(!is_gone(&pids[1]), "it was to finish its work");
    running.enough().await.expect(143);
    assert!(is_gone(&pids[1]));
    is_free(&servers).await;
}

#[tokio::test]
async fn r1_a_lock_is_kept_for_what_runs_in_the_background_and_the_code_is_the_commands() {
    let Some(servers) = servers(3).await else { return };
    let (running, pid) = lingering(&servers, &[], &format!("echo $$; {WORKS} & exit 3")).await;
    is_held(&servers).await;
    running.enough().await.expect(3);
    assert!(is_gone(&pid));
    is_free(&servers).await;
}

#[tokio::test]
async fn a_second_request_kills_what_lingers() {
    let Some(servers) = servers(3).await else { return };
    let (running, pid) = lingering(&servers, &[], &format!("echo $$; {WORKS} & exit 3")).await;
    running.ends_by_many(Signal::SIGTERM).await.expect(3);
    assert!(is_gone(&pid));
    is_free(&servers).await;
}

#[tokio::test]
async fn i18_what_lingers_is_gone_before_its_lock_is_over() {
    let Some(servers) = servers(5).await else { return };
    let (running, pid) = lingering(&servers, &["-t", "5s"], &format!("echo $$; {WORKS} & exit 0")).await;
    freeze(&servers[..3]);
    let clock = SystemClock::default();
    let validity_ends = clock.now() + TTL.mul_f64(0.99);
    gone(&pid).await;
    let end = clock.now();
    let ended = running.end().await.expect(76);
    assert!(end < validity_ends, "it ran {:?} without the lock; {ended:?}", end.since(validity_ends));
    thaw(&servers[..3]);
}

#[tokio::test]
async fn a_daemon_is_not_waited_for_unless_it_was_asked_for() {
    let Some(servers) = servers(3).await else { return };
    let running = run(&servers, &[], &format!("{DAEMON}; exit 4")).start();
    let daemon = running.lines(1).await.remove(0);
    running.end().await.expect(4);
    assert!(!is_gone(&daemon), "it left the group, and is its own master");
    is_free(&servers).await;
    end_of(&daemon).await;

    let script = format!("echo $$; {DAEMON}; exit 4");
    let (running, daemon) = lingering(&servers, &["--wait-for-descendants"], &script).await;
    is_held(&servers).await;
    end_of(&daemon).await;
    running.end().await.expect(4);
    is_free(&servers).await;
}

#[tokio::test]
async fn a_daemon_that_is_waited_for_is_asked_to_end_and_killed_as_the_rest() {
    let Some(servers) = servers(3).await else { return };
    let waits = &["--wait-for-descendants", "-t", "3s"];
    // Its own children become ours only when it has ended.
    let family = "setsid sh -c 'trap \"\" TERM; (trap \"\" TERM; exec sleep 1000) & echo $!; echo $$; \
                  : > left; wait' & while [ ! -e left ]; do sleep 0.05; done";
    let running = run(&servers, waits, family).start();
    let pids = running.lines(2).await;
    kill_all(&servers[..2]);
    running.end().await.expect(76);
    assert!(pids.iter().all(|pid| is_gone(pid)), "a daemon has outlived its lock");
}

#[tokio::test]
async fn one_that_kills_its_own_group_ends_and_its_lock_with_it() {
    let Some(servers) = servers(3).await else { return };
    run(&servers, &[], "kill -KILL 0").end().await.expect(137);
    is_free(&servers).await;
    // After the command itself, so no process is left to print it.
    let last = "(trap '' TERM; while [ -d /proc/$$ ]; do sleep 0.05; done; kill -KILL 0) & exit 5";
    run(&servers, &[], last).end().await.expect(5);
    is_free(&servers).await;
    assert_eq!(keys(&servers).await, [""; 0]);
}

#[tokio::test]
async fn the_first_process_of_a_container_reaps_what_it_inherits() {
    let Some(servers) = servers(3).await else { return };
    if !has_namespaces() {
        return;
    }
    // Each is adopted by process 1 when the shell that started it has ended.
    let script = "for turn in 1 2 3 4 5; do (: & :); done; \
                  while grep -q '^State:.Z' /proc/[0-9]*/status 2>/dev/null; do sleep 0.05; done; echo reaped";
    let start = format!("exec \"$0\" run job -- sh -c \"{script}\"");
    let words = [&NAMESPACES[..], &["sh", "-c", &start]].concat();
    let ended = Quorlock::new([""; 0]).on(&servers).through("unshare", &words).end().await.expect(0);
    assert_eq!(ended.stdout, "reaped\n");
}

async fn end_of(pid: &str) {
    send(pid, Signal::SIGKILL);
    gone(pid).await;
}
