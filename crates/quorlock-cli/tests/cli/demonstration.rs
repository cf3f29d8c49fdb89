//! `quorlock demo`.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use quorlock_testkit::until;
use regex::Regex;

use crate::phases::{TICKS, await_stopped};
use crate::pty::OnTerminal;
use crate::support::{Ended, Quorlock, servers};

fn assert_story(ended: &Ended) {
    for word in [
        "she has it after",
        "refused",
        "still has her lock",
        "she has lost it",
        "Ben has the lock",
        "restart guard",
    ] {
        assert!(ended.stdout.contains(word), "the story lacks `{word}`: {ended:?}");
    }
    assert!(!ended.stdout.contains('\x1b'), "no colours in a file");
    assert_eq!(ended.stderr, "");
}

#[tokio::test]
async fn the_story_ends_with_real_servers() {
    if servers(0).await.is_none() {
        return;
    }
    let ended = Quorlock::new(["demo"]).end().await.expect(0);
    assert!(ended.stdout.contains("-server "), "it says which servers: {ended:?}");
    assert_story(&ended);
    let picture = include_str!("../../../../docs/pictures/demo.svg");
    let (_, shown) = picture.split_once("$ quorlock demo</tspan></text>\n").expect("the command");
    let shown = Regex::new("<[^>]*>").unwrap().replace_all(shown, "");
    let shown = shown.replace("&#x27;", "'").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    assert_eq!(
        story_of(&shown),
        story_of(&ended.stdout),
        "`scripts/pictures demo` draws docs/pictures/demo.svg again"
    );
}

/// A story without what differs from one to the next, and without the states of the nodes, which the picture draws.
fn story_of(story: &str) -> String {
    let masks = [
        (r"(?m)^ *[✔✘] .*\n", ""),
        (r"(?m)(she is notified that she has lost it).*$", "$1"),
        (r", waited .*", ""),
        (r"\S+-server \S+ \(.*\)", "SERVER"),
        (r"\S+:\d+ (anna|ben)", "$1"),
        (r"\d+(\.\d+)? ?(s|ms|us|µs)\b", "TIME"),
        // Seconds of one digit are padded.
        (r"(?m)^ TIME", "TIME"),
    ];
    let masked = masks.iter().fold(story.to_owned(), |story, (pattern, mask)| {
        Regex::new(pattern).unwrap().replace_all(&story, *mask).into_owned()
    });
    masked.trim().to_owned()
}

#[tokio::test]
async fn the_story_ends_with_the_built_in_server() {
    let ended = Quorlock::new(["demo"]).env("QUORLOCK_SERVER", "builtin").end().await.expect(0);
    assert!(ended.stdout.contains("built-in"), "it says which servers: {ended:?}");
    assert_story(&ended);
}

#[test]
fn a_listener_who_leaves_does_not_make_it_panic() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_quorlock"))
        .arg("demo")
        .env("QUORLOCK_SERVER", "builtin")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(demo.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let ended = demo.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(141), "as SIGPIPE would");
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}

#[tokio::test]
async fn a_command_of_ones_own_finds_servers_and_program_and_gives_its_exit_code() {
    let script = "quorlock run job -- sh -c 'echo \"$QUORLOCK_RESOURCE $QUORLOCK_FENCE\"'; exit 7";
    // Settings of the folder are of other nodes.
    let of_others = "nodes = ['redis://a', 'redis://b', 'redis://c']\nquorum = 2\nusername = 'me'\n";
    for kind in ["builtin", ""] {
        let demo = Quorlock::new(["demo", "--", "sh", "-c", script]).env("QUORLOCK_SERVER", kind);
        let demo = demo.file("quorlock.toml", of_others).env("QUORLOCK_USERNAME", "me");
        let ended = demo.end().await.expect(7);
        let fence = ended.stdout.trim_end().strip_prefix("job ").map(str::parse::<u64>);
        assert!(matches!(fence, Some(Ok(1..))), "nothing but what the command says: {ended:?}");
        assert_eq!(ended.stderr, "");
    }
    // A program may use the library, which waits for new servers.
    let other = Quorlock::new(["demo", "--", "env", "true"]).env("QUORLOCK_SERVER", "builtin");
    other.end().await.expect(0).says("waits 30 s for its first lock");
    let ended = Quorlock::new(["demo", "--", "no-such-program"]).end().await.expect(127);
    assert!(ended.stderr.contains("no-such-program was not found"), "{ended:?}");
}

#[tokio::test]
async fn a_command_that_is_asked_to_end_still_has_its_servers() {
    let script =
        "sleep 1000 & trap 'kill $!; quorlock run job -- echo cleaned up; exit 5' TERM; echo ready; wait";
    let demo = Quorlock::new(["demo", "--", "sh", "-c", script]).prints(1).await;
    assert_eq!(demo.ends_by(Signal::SIGTERM).await.expect(5).stdout, "ready\ncleaned up\n");
}

#[tokio::test]
async fn ctrl_c_is_for_the_command_and_not_for_its_servers() {
    if servers(0).await.is_none() {
        return;
    }
    // Redis looks ten times a second whether it was told to end, so the clean-up takes longer than that.
    let script = "trap 'quorlock bench -q --duration 500ms --tasks 1 >/dev/null; \
                  quorlock run job -- echo cleaned up; kill $!; exit 5' INT; sleep 1000 & echo ready; wait";
    let mut terminal = OnTerminal::start(Quorlock::new(["demo", "--", "sh", "-c", script]));
    terminal.shows("ready").await;
    terminal.types("\x03");
    assert_eq!(terminal.end().await, Some(5), "{}", terminal.screen());
    terminal.shows("cleaned up").await;
}

#[tokio::test]
async fn ctrl_z_stops_the_command_and_gives_the_terminal_to_the_shell_until_fg() {
    let mut shell = OnTerminal::shell(Quorlock::new(["demo"])).await;
    shell.types("\"$QUORLOCK\" demo -- sh -c 'echo up:$$:; exec sleep 1000'\n");
    shell.shows_times("up:", 2).await;
    shell.types("\x1a");
    shell.shows("Stopped").await;
    shell.types("echo the shell is $((40 + 2))\n");
    shell.shows("the shell is 42").await;
    let group = number_after(&shell.screen(), "\nup:");
    shell.types("fg\n");
    // Before that, Ctrl-C would be for the shell.
    shell.is_lent_to(group).await;
    shell.types("\x03");
    shell.types("echo code $?\n");
    shell.shows("code 130").await;
}

/// The number that follows `words` on the screen.
fn number_after(screen: &str, words: &str) -> i32 {
    let rest = screen.split_once(words).map(|(_, rest)| rest).unwrap_or_default();
    rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).expect("a number")
}

#[tokio::test]
async fn it_stops_and_continues_with_its_command() {
    // Ctrl-Z comes to us, and not to the command, before the terminal is lent to it.
    let demo = Quorlock::new(["demo", "--", "sh", "-c", TICKS]).env("QUORLOCK_SERVER", "builtin").start();
    let command = demo.lines(3).await.remove(0);
    for _ in 0..3 {
        demo.signal(Signal::SIGTSTP);
        await_stopped(&demo.pid(), true).await;
        await_stopped(&command, true).await;
        demo.signal(Signal::SIGCONT);
        await_stopped(&command, false).await;
        await_stopped(&demo.pid(), false).await;
        let lines = demo.stdout().lines().count();
        demo.lines(lines + 3).await;
    }
    demo.ends_by(Signal::SIGTERM).await.expect(143);
}

#[tokio::test]
async fn the_prompt_of_a_demo_shell_says_so() {
    let demo = Quorlock::new(["demo", "--", "sh"]).env("QUORLOCK_SERVER", "builtin");
    let mut shell = OnTerminal::start(demo);
    shell.shows("(quorlock demo) $ ").await;
    shell.types("exit 3\n");
    assert_eq!(shell.end().await, Some(3), "{}", shell.screen());
}

#[tokio::test]
async fn the_exports_of_kept_servers_can_be_sourced_from_a_file() {
    let demo = Quorlock::new(["demo", "--keep"]).env("QUORLOCK_SERVER", "builtin").prints(3).await;
    let script = format!(". {}; exec \"$0\" run job -- echo locked", demo.path("stdout").display());
    let ended = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_quorlock")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "locked\n", "{ended:?}");
}

#[tokio::test]
async fn servers_that_are_kept_can_be_used_by_others_until_a_signal_comes() {
    let demo = Quorlock::new(["demo", "--keep"]).env("QUORLOCK_USERNAME", "me").start();
    let mut other = Quorlock::new(["run", "job", "--", "echo", "locked"]).env("QUORLOCK_USERNAME", "me");
    for export in demo.lines(4).await {
        let (name, value) = export.strip_prefix("export ").and_then(|pair| pair.split_once('=')).unwrap();
        other = other.env(name, value);
    }
    assert_eq!(other.end().await.expect(0).stdout, "locked\n");
    demo.ends_by(Signal::SIGTERM).await.expect(0);
}

#[tokio::test]
async fn a_check_up_of_the_built_in_servers_finds_what_is_true_of_them_and_nothing_else() {
    let demo = Quorlock::new(["demo", "--keep"]).env("QUORLOCK_SERVER", "builtin").start();
    let mut doctor = Quorlock::new(["doctor", "--json"]);
    for export in demo.lines(3).await {
        let (name, value) = export.strip_prefix("export ").and_then(|pair| pair.split_once('=')).unwrap();
        doctor = doctor.env(name, value);
    }
    let expected = "switch the restart guard off, because the servers are new";
    until("what the settings mean", async || demo.stderr().contains(expected)).await;
    // The settings of the demonstration have the guard off, which is not safe elsewhere.
    let examined = doctor.end().await.expect(79);
    let report = examined.json();
    let findings = report["findings"].as_array().unwrap().iter();
    let mut found: Vec<&str> = findings.map(|finding| finding["finding"].as_str().unwrap()).collect();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, ["loopback", "not-persistent", "restarted"], "{examined:?}");
    let votes = report["nodes"].as_array().unwrap().iter().filter(|node| node["vote"] == "yes");
    assert_eq!(votes.count(), 5, "{examined:?}");
    demo.ends_by(Signal::SIGTERM).await.expect(0);
}
