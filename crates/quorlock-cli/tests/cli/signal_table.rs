//! The table of all signals in `docs/run.md`.

use std::process::Command;

use nix::sys::signal::Signal;
use quorlock_testkit::until;

use crate::support::{Running, each, is_gone, keys, run, servers, started, state};

/// Returns the numbers of the signals in the row of the table that begins so.
fn row(what: &str) -> Vec<i32> {
    let page = include_str!("../../../../docs/run.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")).filter(|line| line.contains(" | "));
    let (names, _) = rows
        .filter_map(|line| line.split_once(" | "))
        .find(|(_, documented)| documented.starts_with(what))
        .unwrap_or_else(|| panic!("no row of {what}"));
    names.split(", ").filter_map(number).collect()
}

fn number(name: &str) -> Option<i32> {
    match name {
        "RTMIN to RTMAX" => None,
        name => {
            Some(format!("SIG{name}").parse::<Signal>().unwrap_or_else(|_| panic!("{name} is a signal"))
                as i32)
        }
    }
}

/// Also signals that have no name.
fn send(number: i32, to: &Running) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{number} {}", to.pid())]).status().unwrap();
    assert!(sent.success(), "signal {number} was not sent");
}

#[tokio::test]
async fn the_table_of_signals_has_each_once_and_what_happens() {
    let Some(servers) = servers(3).await else { return };
    let (forwarded, ignored) = (row("forwarded"), row("nothing"));
    let crashes = row("`quorlock` ends");
    let mut all = [&forwarded[..], &ignored, &crashes, &row("`quorlock` stops")].concat();
    all.sort_unstable();
    assert_eq!(all, (1..32).collect::<Vec<_>>(), "each signal is in one row");

    // They are requests to end, which have tests of their own.
    let requests = [Signal::SIGINT as i32, Signal::SIGTERM as i32];
    let sent: Vec<_> =
        forwarded.iter().copied().filter(|number| !requests.contains(number)).chain([34, 64]).collect();
    let trap = |number: &i32| format!("trap 'echo got:{number}' {number}");
    let traps = sent.iter().map(trap).collect::<Vec<_>>().join("\n");
    let words = sent.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    // What the shell waits for ignores them: a stopped one would not end.
    let script = format!("trap '' {words}\nsleep 1000 &\n{traps}\necho started\nwhile :; do wait; done");
    let running = run(&servers, &[], &script).prints(1).await;
    for number in &sent {
        send(*number, &running);
        let got = format!("got:{number}\n");
        until(&got, async || running.stdout().contains(&got)).await;
    }
    for number in &ignored {
        send(*number, &running);
        // The standard library's handler of these two stays for one signal. Both at the same time would end `quorlock`.
        if [Signal::SIGBUS as i32, Signal::SIGSEGV as i32].contains(number) {
            let handled = async || !is_caught(*number, &running.pid());
            until("the signal is handled", handled).await;
        }
    }
    assert_eq!(keys(&servers[..1]).await, ["job"], "the lock is kept");
    let ended = running.ends_by(Signal::SIGTERM).await.expect(143);
    assert_eq!(ended.stdout.lines().count(), 1 + sent.len(), "{ended:?}");

    for number in crashes {
        let running = run(&servers, &[], "ulimit -c 0; echo $$; exec sleep 1000").start();
        let command = running.lines(1).await.remove(0);
        send(number, &running);
        until("the end of the command", async || is_gone(&command)).await;
        let ended = running.end().await;
        assert_eq!(ended.signal, Some(number), "{ended:#?}");
        // The lock would expire with its TTL.
        each(&servers, &["DEL", "job"]).await;
    }
}

#[tokio::test]
async fn a_stop_from_a_program_stops_the_command_alone() {
    let Some(servers) = servers(3).await else { return };
    for signal in [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU] {
        let (running, command) = started(&servers, &[]).await;
        running.signal(signal);
        let stopped = async || state(&command) == 'T';
        until("a command that is stopped", stopped).await;
        running.signal(Signal::SIGCONT);
        until("it goes on", async || state(&command) == 'S').await;
        assert_ne!(state(&running.pid()), 'T', "{signal}");
        running.ends_by(Signal::SIGTERM).await.expect(143);
    }
}

/// Whether a process has a handler for a signal.
fn is_caught(number: i32, pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    caught >> (number - 1) & 1 == 1
}
