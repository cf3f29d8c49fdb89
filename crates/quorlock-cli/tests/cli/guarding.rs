//! The guardian of the command, for when `quorlock` itself cannot act.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use quorlock_testkit::{Servers, until};

use crate::support::{Running, UNTIL_ENOUGH, children, is_gone, pause, run, send, servers, state};

/// A command that ignores signals, and has started a process that does as well.
const STUBBORN: &str =
    "trap '' TERM HUP INT; (trap '' TERM HUP INT; exec sleep 1000) & echo $!; echo $$; wait";

/// Starts such a command, and returns its processes and its guardian.
async fn stubborn(servers: &Servers) -> (Running, Vec<String>, String) {
    let running = run(servers, &[], STUBBORN).start();
    let pids = running.lines(2).await;
    let guardian = guardian(&running).await;
    (running, pids, guardian)
}

/// Returns the guardian of the command of `running`.
pub(crate) async fn guardian(running: &Running) -> String {
    guardian_but(running, "").await
}

/// Returns the guardian that replaced `former`, which may not have been reaped.
async fn guardian_but(running: &Running, former: &str) -> String {
    let mut found = None;
    until("the guardian", async || {
        let is_guardian = |pid: &String| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "lock-guardian\n")
        };
        found = children(&running.pid()).into_iter().filter(|pid| pid != former).find(is_guardian);
        found.is_some()
    })
    .await;
    found.unwrap()
}

async fn all_gone(pids: &[String]) {
    until("the end of all of them", async || pids.iter().all(|pid| is_gone(pid))).await;
}

#[tokio::test]
async fn r2_nothing_of_the_command_outlives_a_quorlock_that_is_killed() {
    let Some(servers) = servers(3).await else { return };
    // Nor processes that outlive the command itself.
    for script in [STUBBORN, &format!("({STUBBORN}) & exit 0")] {
        let running = run(&servers, &["-t", "5s", "-w", "forever"], script).start();
        let mut pids = running.lines(2).await;
        pids.push(guardian(&running).await);
        running.signal(Signal::SIGKILL);
        all_gone(&pids).await;
    }
}

#[tokio::test]
async fn r3_a_stopped_quorlock_leaves_no_process_to_the_next_holder() {
    let Some(servers) = servers(3).await else { return };
    let mut running = run(&servers, &["-t", "3s"], STUBBORN).start();
    let pids = running.lines(2).await;
    running.signal(Signal::SIGSTOP);
    let look =
        format!("grep -qs '^State:.[^ZX]' /proc/{}/status /proc/{}/status || echo alone", pids[0], pids[1]);
    let next = run(&servers, &["-w", "forever"], &look).end().await.expect(0);
    assert!(!running.has_ended(), "it stands still");
    assert_eq!(next.stdout, "alone\n", "two worked at the same time; {next:?}");
    running.ends_by(Signal::SIGCONT).await.expect(76).says("stopping the command");
}

#[tokio::test]
async fn a_pause_that_leaves_time_to_renew_does_not_end_the_command() {
    let Some(servers) = servers(3).await else { return };
    let running = run(&servers, &["-t", "12s", "-vv"], UNTIL_ENOUGH).prints(1).await;
    let renewed = || running.stderr().matches("renewed").count();
    until("a renewal", async || renewed() > 0).await;
    // The guardian, which is not stopped, learns of it within a second.
    pause(Duration::from_millis(1500)).await;
    running.signal(Signal::SIGSTOP);
    // Two and a half seconds are left then: less than the four that the command has to end.
    pause(Duration::from_secs(8)).await;
    let before = renewed();
    running.signal(Signal::SIGCONT);
    until("the renewal that was due", async || renewed() > before).await;
    let ended = running.enough().await.expect(0);
    assert!(!ended.stderr.contains("stopping"), "{ended:?}");
}

#[tokio::test]
async fn a_guardian_that_is_killed_is_replaced() {
    let Some(servers) = servers(3).await else { return };
    let (running, mut pids, first) = stubborn(&servers).await;
    send(&first, Signal::SIGKILL);
    until("the end of the first", async || is_gone(&first)).await;
    pids.push(guardian_but(&running, &first).await);
    // It is started before it joins the group, which makes the next signal safe.
    until("a guardian in the group", async || group_of(&pids[2]) == pids[1]).await;
    running.signal(Signal::SIGKILL);
    all_gone(&pids).await;
}

fn group_of(pid: &str) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let group = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(2));
    group.unwrap_or_default().to_owned()
}

#[tokio::test]
async fn one_that_went_to_another_group_is_signalled_all_the_same() {
    let Some(servers) = servers(3).await else { return };
    let script = "exec python3 -uc 'import os, signal
os.setpgid(0, os.getpgid(os.getppid()))
print(os.getpid())
signal.pause()'";
    let running = run(&servers, &[], script).start();
    let pid = running.lines(1).await.remove(0);
    running.ends_by(Signal::SIGTERM).await.expect(143);
    assert!(is_gone(&pid));
}

#[tokio::test]
async fn a_guardian_is_not_stopped_with_its_group() {
    let Some(servers) = servers(3).await else { return };
    let (running, mut pids, guardian) = stubborn(&servers).await;
    let group = Pid::from_raw(pids[1].parse().unwrap());
    nix::sys::signal::killpg(group, Signal::SIGSTOP).unwrap();
    let alone = async || state(&guardian) == 'S' && pids.iter().all(|pid| state(pid) == 'T');
    until("the guardian alone goes on", alone).await;
    pids.push(guardian);
    running.signal(Signal::SIGKILL);
    all_gone(&pids).await;
}

#[tokio::test]
async fn r4_a_guardian_is_in_the_commands_group_and_holds_none_of_its_files_open() {
    let Some(servers) = servers(3).await else { return };
    let running = run(&servers, &[], STUBBORN).stdin_open().start();
    let pids = running.lines(2).await;
    let guardian = guardian(&running).await;
    let files = fs::read_dir(format!("/proc/{guardian}/fd")).unwrap();
    let names: Vec<_> = files.map(|file| fs::read_link(file.unwrap().path()).unwrap()).collect();
    // The mark, by which others on this host see that it still lives.
    let others = names.iter().filter(|name| !name.to_string_lossy().ends_with("-alive"));
    assert_eq!(others.count(), 1, "a reader of the output would wait for it: {names:?}");
    assert_eq!(names.len(), 2, "{names:?}");
    // It joins the group once the command has started.
    until("a member that keeps the number of the group", async || group_of(&guardian) == pids[1]).await;
}
