//! Bugs of other programs that run a command under a lock, as tests of ours. Each comment names the program and its
//! issue, which `docs/comparison.md` lists.

use std::fs;

use nix::sys::signal::Signal;
use quorlock_testkit::{Proxy, Servers, Way, until};

use crate::support::{Quorlock, Running, is_gone, keys, run, servers};

/// Waits, as other programs do for a signal, without starting anything.
const STAYS: &str = "echo $$; exec sleep 1000";

async fn started(servers: &Servers, options: &[&str], script: &str) -> (Running, String) {
    let running = run(servers, options, script).start();
    let pid = running.lines(1).await.remove(0);
    (running, pid)
}

async fn gone(pid: &str) {
    until("the end of the command", async || is_gone(pid)).await;
}

// consul lock: 1 for every failure. nomad var lock: the same. flock: 1 for a lock that is held, as
// many commands use themselves.
#[tokio::test]
async fn no_failure_looks_like_another_nor_like_the_commands_own() {
    let Some(servers) = servers(3).await else { return };
    let (_holder, _) = started(&servers, &[], STAYS).await;
    run(&servers, &["-n"], "exit 1").end().await.expect(75);
    let other = |command: &str| Quorlock::new(["run", "-n", "other", "--", command]).on(&servers).end();
    other("false").await.expect(1);
    other("there-is-no-such-command").await.expect(127);
    other("/").await.expect(126);
    Quorlock::new(["run", "other", "--", "true"]).end().await.expect(78);
    Quorlock::new(["run", "other"]).on(&servers).end().await.expect(64);
    servers.iter().take(2).for_each(quorlock_testkit::Server::kill);
    other("true").await.expect(69);
}

// consul lock: 0 whatever the command says, and with -child-exit-code 2 whatever it says (#2999).
#[tokio::test]
async fn the_commands_own_code_is_passed_on_whatever_it_is() {
    let Some(servers) = servers(3).await else { return };
    for code in [0, 1, 2, 64, 75, 125, 255] {
        run(&servers, &[], &format!("exit {code}")).end().await.expect(code);
    }
}

// etcdctl lock: 255 for every signal.
#[tokio::test]
async fn a_command_that_a_signal_ended_is_128_and_the_signal() {
    let Some(servers) = servers(3).await else { return };
    for (name, number) in [("HUP", 1), ("INT", 2), ("ABRT", 6), ("KILL", 9), ("PIPE", 13), ("TERM", 15)] {
        run(&servers, &[], &format!("kill -{name} $$")).end().await.expect(128 + number);
    }
}

// consul lock #4439: signals are ignored until the lock is acquired. etcdctl lock: they are caught,
// and end nothing.
#[tokio::test]
async fn a_signal_ends_the_wait_for_a_lock() {
    let Some(servers) = servers(3).await else { return };
    let (_holder, _) = started(&servers, &[], STAYS).await;
    for (signal, code) in
        [(Signal::SIGHUP, 129), (Signal::SIGINT, 130), (Signal::SIGQUIT, 131), (Signal::SIGTERM, 143)]
    {
        let waiter = run(&servers, &["-w", "forever", "-vv"], "echo ran").start();
        until("the wait", async || waiter.stderr().contains("not acquired")).await;
        waiter.signal(signal);
        assert_eq!(waiter.end().await.expect(code).stdout, "");
    }
}

// consul lock #800: a new command is started while everything is being shut down.
#[tokio::test]
async fn a_terminated_waiter_leaves_no_command_running() {
    let Some(servers) = servers(3).await else { return };
    for first in ["the waiter", "the holder", "the waiter", "the holder"] {
        let (holder, held) = started(&servers, &[], STAYS).await;
        let waiter = run(&servers, &["-w", "forever", "-vv"], STAYS).start();
        until("the wait", async || waiter.stderr().contains("not acquired")).await;
        // Both together: the lock becomes free while the waiter gets SIGTERM.
        let order = if first == "the waiter" { [&waiter, &holder] } else { [&holder, &waiter] };
        for running in order {
            running.signal(Signal::SIGTERM);
        }
        holder.end().await.expect(143);
        let ended = waiter.end().await.expect(143);
        assert!(is_gone(&held));
        assert!(ended.stdout.lines().all(is_gone), "a command was started and stays: {ended:?}");
        assert_eq!(keys(&servers).await, [""; 0], "a lock was left behind");
    }
}

// consul lock #797, #3754, #4643: SIGTERM does not reach the command. #1210, #2489: SIGQUIT and
// SIGHUP end consul, and the command stays without its lock. It passes on the interrupt only, and
// etcdctl lock nothing.
#[tokio::test]
async fn each_signal_that_asks_to_end_ends_the_command_and_its_lock() {
    let Some(servers) = servers(3).await else { return };
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGQUIT, 131),
        (Signal::SIGHUP, 129),
        (Signal::SIGUSR1, 138),
        (Signal::SIGUSR2, 140),
    ] {
        let (running, pid) = started(&servers, &[], STAYS).await;
        running.signal(signal);
        running.end().await.expect(code);
        assert!(is_gone(&pid), "{signal} has left the command running");
        assert_eq!(keys(&servers).await, [""; 0], "{signal} has left the lock behind");
    }
}

// consul lock #2022: kills the shell, and what the shell had started runs on without the lock.
// nomad var lock: its help warns of that.
#[tokio::test]
async fn what_a_shell_has_started_ends_with_it() {
    let Some(servers) = servers(3).await else { return };
    let script = "sleep 1000 & echo $!; wait";
    let (running, grandchild) = started(&servers, &[], script).await;
    running.signal(Signal::SIGTERM);
    running.end().await.expect(143);
    gone(&grandchild).await;
    // And when the lock is lost.
    let (running, grandchild) = started(&servers, &["-t", "3s"], script).await;
    servers.iter().take(2).for_each(quorlock_testkit::Server::kill);
    running.end().await.expect(76);
    gone(&grandchild).await;
}

// consul lock #9788: SIGTERM arrives 90 s later, while consul waits for its servers.
#[tokio::test]
async fn a_signal_is_forwarded_while_no_node_answers() {
    let Some(servers) = servers(3).await else { return };
    let (running, pid) = started(&servers, &["-t", "3s", "-vv"], STAYS).await;
    for server in servers.iter() {
        server.freeze().unwrap();
    }
    until("a renewal in vain", async || running.stderr().contains("renewal not confirmed")).await;
    running.signal(Signal::SIGTERM);
    // Its own end, and not that of its lock, which would be 76.
    running.end().await.expect(143);
    assert!(is_gone(&pid));
    for server in servers.iter() {
        server.thaw().unwrap();
    }
    until("clean servers", async || keys(&servers).await.is_empty()).await;
}

// etcdctl lock: the session is not watched while the command runs, which goes on without its lock.
// consul lock: SIGKILL comes 5 s after the loss, which only a pause before the next holder makes
// safe; here there is none.
#[tokio::test]
async fn a_lost_lock_ends_the_command_before_the_next_holder() {
    let Some(servers) = servers(3).await else { return };
    // One client, and no other, is cut off from all nodes.
    let mut proxies = Vec::new();
    for server in servers.iter() {
        proxies.push(Proxy::before(server).await.unwrap());
    }
    let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
    let stubborn = format!("trap '' TERM; {STAYS}");
    let cut_off = run(&servers, &["-t", "2s"], &stubborn).env("QUORLOCK_NODES", &urls.join(",")).start();
    let pid = cut_off.lines(1).await.remove(0);
    let next = run(&servers, &["-w", "forever", "-vv"], &format!("! kill -0 {pid} && echo alone")).start();
    until("the wait", async || next.stderr().contains("not acquired")).await;
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

// consul lock: one error of the server ends the lock, unless -monitor-retry is set.
#[tokio::test]
async fn a_hiccup_of_all_nodes_is_no_loss() {
    let Some(servers) = servers(3).await else { return };
    let (running, pid) = started(&servers, &["-t", "6s", "-vv"], STAYS).await;
    for server in servers.iter() {
        server.freeze().unwrap();
    }
    until("a renewal in vain", async || running.stderr().contains("renewal not confirmed")).await;
    for server in servers.iter() {
        server.thaw().unwrap();
    }
    until("a renewal", async || running.stderr().contains("renewed")).await;
    assert!(!is_gone(&pid), "{}", running.stderr());
    running.signal(Signal::SIGTERM);
    running.end().await.expect(143);
}

// consul lock: no stdin unless asked for (-pass-stdin). etcdctl lock: none at all.
#[tokio::test]
async fn stdin_is_the_commands() {
    let Some(servers) = servers(3).await else { return };
    let ended = run(&servers, &[], "cat").stdin("hello\n").end().await.expect(0);
    assert_eq!(ended.stdout, "hello\n");
}

// etcdctl lock: it can neither ask once nor wait for a limited time.
#[tokio::test]
async fn try_once_and_wait_with_a_timeout() {
    let Some(servers) = servers(3).await else { return };
    let (holder, _) = started(&servers, &[], STAYS).await;
    run(&servers, &["-n"], "echo ran").end().await.expect(75);
    run(&servers, &["-w", "100ms"], "echo ran").end().await.expect(75);
    holder.signal(Signal::SIGTERM);
    holder.end().await.expect(143);
    run(&servers, &["-n"], "true").end().await.expect(0);
}

// etcdctl lock without a command: 1 when its session has expired, as for all else that goes wrong.
#[tokio::test]
async fn a_hold_without_a_command_says_how_it_ended() {
    let Some(servers) = servers(3).await else { return };
    let hold = || Quorlock::new(["hold", "-t", "3s", "job"]).on(&servers).start();
    let holder = hold();
    holder.lines(4).await;
    holder.signal(Signal::SIGTERM);
    holder.end().await.expect(0);
    let holder = hold();
    holder.lines(4).await;
    servers.iter().take(2).for_each(quorlock_testkit::Server::kill);
    holder.end().await.expect(76);
}

// A program that releases on SIGTERM, and not when its command has ended, lets two run at the same time: consul lock
// does on the second signal.
#[tokio::test]
async fn the_lock_stays_for_as_long_as_its_command_takes_to_end() {
    let Some(servers) = servers(3).await else { return };
    let script = "trap 'echo asked' TERM; echo $$; while [ ! -e enough ]; do sleep 0.05; done";
    let (running, _) = started(&servers, &[], script).await;
    running.signal(Signal::SIGTERM);
    running.lines(2).await;
    run(&servers, &["-w", "300ms"], "echo ran").end().await.expect(75);
    std::fs::write(running.path("enough"), "").unwrap();
    running.end().await.expect(0);
    run(&servers, &["-n"], "echo ran").end().await.expect(0);
}

// etcdctl lock: what is inherited wins over its own variables. consul lock: says only that there is
// a lock.
#[tokio::test]
async fn a_lock_within_a_lock_sees_its_own() {
    let Some(servers) = servers(3).await else { return };
    let show = r#"echo "$QUORLOCK_RESOURCE $QUORLOCK_TTL_MS $QUORLOCK_TOKEN $QUORLOCK_FENCE""#;
    let inner = format!("\"$QUORLOCK\" run -t 5s inner -c '{show}'");
    let outer = run(&servers, &["-t", "9s"], &format!("{show}; {inner}; {show}"));
    let ended = outer.env("QUORLOCK", env!("CARGO_BIN_EXE_quorlock")).end().await.expect(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let [before, within, after] = lines[..] else { panic!("three lines: {ended:?}") };
    assert!(before.starts_with("job 9000 "), "{before}");
    assert!(within.starts_with("inner 5000 "), "{within}");
    assert_eq!(before, after, "and the outer one still sees its own");
    let words = |line: &str| line.split(' ').skip(2).map(str::to_owned).collect::<Vec<_>>();
    assert_ne!(words(before).first(), words(within).first(), "each has a token of its own");
    assert!(words(before).iter().all(|word| !word.is_empty()) && words(before).len() >= 3, "{before}");
}

// nomad var lock, flock: a signal ends at the shell.
#[tokio::test]
async fn a_signal_reaches_what_the_command_has_started() {
    let Some(servers) = servers(3).await else { return };
    // As shells do, it waits for what it has started, and passes no signal on.
    let script = "trap : TERM; \
                  sh -c 'trap \"echo got it; exit 0\" TERM; echo started; while :; do sleep 0.05; done'";
    let running = run(&servers, &[], script).start();
    running.lines(1).await;
    running.signal(Signal::SIGTERM);
    let lines = running.lines(2).await;
    assert_eq!(lines.last().map(String::as_str), Some("got it"));
    running.end().await.expect(0);
}

// flock --verbose: writes to stdout, among what the command writes.
#[tokio::test]
async fn stdout_is_the_commands_alone() {
    let Some(servers) = servers(3).await else { return };
    for options in [&["-v"][..], &["-vv"], &["--json"], &["--json", "-vv"]] {
        let ended = run(&servers, options, "echo mine").end().await.expect(0);
        assert_eq!(ended.stdout, "mine\n", "{options:?}");
        assert!(!ended.stderr.is_empty(), "{options:?} has something to say");
    }
}

// consul lock: a shell, unless it is forbidden (#2999).
#[tokio::test]
async fn a_stream_that_was_closed_is_closed_for_the_command() {
    let Some(servers) = servers(3).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    for (closed, expected) in [(">&-", "0 2"), ("<&-", "1 2"), ("2>&- <&-", "1"), ("", "0 1 2")] {
        let open = "for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && echo $n >&9; done";
        let script = format!("exec 9> {}; {open}; true", log.display());
        let shell = format!("exec \"$0\" \"$@\" {closed}");
        run(&servers, &[], &script).through_all("sh", &["-c", &shell]).end().await.expect(0);
        let open = fs::read_to_string(&log).unwrap();
        assert_eq!(open.split_whitespace().collect::<Vec<_>>().join(" "), expected, "closed by {closed:?}");
    }
}

#[tokio::test]
async fn no_shell_runs_unless_asked_for() {
    let Some(servers) = servers(3).await else { return };
    let words = ["run", "job", "--", "echo", "$HOME; exit 3", "*", "--ttl", "-n"];
    let ended = Quorlock::new(words).on(&servers).end().await.expect(0);
    assert_eq!(ended.stdout, "$HOME; exit 3 * --ttl -n\n", "the words arrive as they were written");
}
