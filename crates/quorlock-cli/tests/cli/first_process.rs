//! `quorlock` as the first process of a container: process 1 of a process namespace, where no signal has its default
//! action. `lingering.rs` tests that it reaps orphans there.

use std::io::Write as _;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quorlock_testkit::{Servers, until};

use crate::support::{Quorlock, Running, run, servers};

/// `quorlock` dies with the test.
const NAMESPACES: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];

/// Starts three servers, if process namespaces can be made.
async fn world() -> Option<Servers> {
    let tried = Command::new("unshare").args(NAMESPACES).arg("true").output();
    if !tried.as_ref().is_ok_and(|output| output.status.success()) {
        drop(writeln!(std::io::stderr(), "skipped: no process namespace can be made here: {tried:?}"));
        return None;
    }
    servers(3).await
}

fn as_first(quorlock: Quorlock) -> Quorlock {
    quorlock.through_all("unshare", &NAMESPACES)
}

/// Returns the number of process 1 of the namespace, as seen from outside.
fn first(running: &Running) -> Pid {
    let pid = running.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    Pid::from_raw(children.trim().parse().unwrap())
}

#[tokio::test]
async fn the_first_process_of_a_container_forwards_sigterm_and_exits_as_its_command() {
    let Some(servers) = world().await else { return };
    for (script, code) in [
        ("echo started; exec sleep 1000", 143),
        ("trap 'exit 7' TERM; echo started; while :; do sleep 0.05; done", 7),
    ] {
        let running = as_first(run(&servers, &[], script)).start();
        running.lines(1).await;
        kill(first(&running), Signal::SIGTERM).unwrap();
        running.end().await.expect(code);
        run(&servers, &["-n"], "true").end().await.expect(0);
    }
}

#[tokio::test]
async fn the_first_process_of_a_container_ends_on_sigterm_while_it_waits() {
    let Some(servers) = world().await else { return };
    let holder = run(&servers, &[], "echo started; exec sleep 1000").start();
    holder.lines(1).await;
    let waiting = as_first(run(&servers, &["-w", "forever", "-vv"], "echo ran")).start();
    until("a waiter", async || waiting.stderr().contains("not acquired")).await;
    kill(first(&waiting), Signal::SIGTERM).unwrap();
    let ended = waiting.end().await.expect(143);
    assert_eq!(ended.stdout, "");
}
