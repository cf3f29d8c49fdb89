//! Signals in each phase of a run: waiting, running, stopped and ending.

use nix::sys::signal::Signal;
use quorlock_testkit::{Servers, until};

use crate::support::{Running, freeze, is_gone, keys, run, send, servers, state, thaw};

/// Prints lines while it runs. One process, and no shell: a shell that is stopped while it starts another program
/// (`vfork`) is not reported as stopped.
pub(crate) const TICKS: &str = r#"exec python3 -uc 'import os, time
print(os.getpid())
while True: print("tick"); time.sleep(0.02)'"#;

/// Waits until a process is stopped, or is not.
pub(crate) async fn await_stopped(pid: &str, still: bool) {
    until("a process that stands still", async || (state(pid) == 'T') == still).await;
}

async fn free(servers: &Servers) {
    until("the end of the lock", async || keys(servers).await.is_empty()).await;
}

async fn ticking(servers: &Servers, options: &[&str]) -> (Running, String) {
    let running = run(servers, options, TICKS).start();
    let pid = running.lines(3).await.remove(0);
    (running, pid)
}

#[tokio::test]
async fn a_stopped_waiter_waits_on_when_continued() {
    let Some(servers) = servers(3).await else { return };
    let (holder, _) = ticking(&servers, &[]).await;
    let waiter = run(&servers, &["-w", "forever", "-vv"], "echo mine").waits().await;
    waiter.signal(Signal::SIGTSTP);
    await_stopped(&waiter.pid(), true).await;
    waiter.signal(Signal::SIGCONT);
    await_stopped(&waiter.pid(), false).await;
    holder.signal(Signal::SIGTERM);
    assert_eq!(waiter.end().await.expect(0).stdout, "mine\n");
}

#[tokio::test]
async fn a_waiter_heeds_no_signal_that_does_not_ask_to_end() {
    let Some(servers) = servers(3).await else { return };
    let (holder, _) = ticking(&servers, &[]).await;
    let waiter = run(&servers, &["-w", "forever", "-vv"], "echo mine").waits().await;
    for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH, Signal::SIGCONT] {
        waiter.signal(signal);
    }
    holder.signal(Signal::SIGTERM);
    assert_eq!(waiter.end().await.expect(0).stdout, "mine\n");
}

#[tokio::test]
async fn a_command_stopped_past_its_lock_does_not_continue() {
    let Some(servers) = servers(3).await else { return };
    let (running, pid) = ticking(&servers, &["-t", "3s"]).await;
    running.signal(Signal::SIGTSTP);
    await_stopped(&pid, true).await;
    running.signal(Signal::SIGSTOP);
    await_stopped(&running.pid(), true).await;
    let before = running.stdout();
    // Another client may hold the lock from here on.
    free(&servers).await;
    let ended = running.ends_by(Signal::SIGCONT).await.expect(76);
    assert!(is_gone(&pid));
    assert_eq!(ended.stdout, before, "it went on without its lock");
}

#[tokio::test]
async fn a_signal_while_the_lock_is_given_back_changes_nothing() {
    let Some(servers) = servers(3).await else { return };
    for _ in 0..3 {
        let script = "echo $$; while [ ! -e enough ]; do sleep 0.02; done; exit 3";
        let running = run(&servers, &[], script).start();
        let pid = running.lines(1).await.remove(0);
        freeze(&servers);
        std::fs::write(running.path("enough"), "").unwrap();
        until("the end of the command", async || is_gone(&pid)).await;
        running.signal(Signal::SIGTERM);
        running.ends_by(Signal::SIGINT).await.expect(3);
        thaw(&servers);
        // The servers carry out what has reached them, and nothing is left.
        free(&servers).await;
    }
}

#[tokio::test]
async fn signals_that_were_ignored_at_the_start_stay_so_for_both() {
    let Some(servers) = servers(3).await else { return };
    // As nohup does.
    let words = ["-c", "trap '' HUP; exec \"$0\" run job -- sh -c 'echo $$; exec sleep 1000'"];
    let running = run(&servers, &[], "").through("sh", &words).start();
    let pid = running.lines(1).await.remove(0);
    running.signal(Signal::SIGHUP);
    send(&pid, Signal::SIGHUP);
    run(&servers, &["-w", "300ms"], "echo ran").end().await.expect(75);
    running.ends_by(Signal::SIGTERM).await.expect(143);
}

#[tokio::test]
async fn what_the_caller_ignores_and_quorlock_must_not_is_ignored_by_the_command_too() {
    let Some(servers) = servers(3).await else { return };
    // The standard library ignores SIGPIPE before `main`, and quorlock needs SIGCHLD.
    let both = 1 << (Signal::SIGPIPE as i32 - 1) | 1 << (Signal::SIGCHLD as i32 - 1);
    let ignored = async |caller: &str| {
        let start = format!("{caller}; exec \"$0\" run job -- grep ^SigIgn: /proc/self/status");
        let ended = run(&servers, &[], "").through("bash", &["-c", &start]).end().await.expect(0);
        let mask = ended.stdout.trim_start_matches("SigIgn:").trim();
        u64::from_str_radix(mask, 16).unwrap() & both
    };
    assert_eq!(ignored(":").await, 0, "what was not ignored has its default action");
    assert_eq!(ignored("trap '' PIPE CHLD").await, both);
}
