//! Names, labels and server texts that rule the terminal, forge rows or hide what is meant, in the output of each verb.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use quorlock::protocol::log_key;
use serde_json::Value;

use crate::support::{Ended, Quorlock, Running, events, servers};

/// What must not be shown as it is, and how it is shown to people and in JSON.
const NASTY: [(&str, &str, &str); 12] = [
    ("\nFORGED held by nobody", r"\nFORGED", r"\nFORGED"),
    ("\r", r"\r", r"\r"),
    ("\u{1b}[2J", r"\u{1b}[2J", r"\u001b[2J"),
    ("\u{7}", r"\u{7}", r"\u0007"),
    ("\u{7f}", r"\u{7f}", r"\u007f"),
    ("\u{9b}1m", r"\u{9b}1m", r"\u009b1m"),
    ("\u{202e}", r"\u{202e}", r"\u202e"),
    ("\u{2066}", r"\u{2066}", r"\u2066"),
    ("\u{200b}", r"\u{200b}", r"\u200b"),
    ("\u{feff}", r"\u{feff}", r"\ufeff"),
    ("\u{2028}", r"\u{2028}", r"\u2028"),
    ("\u{e0041}", r"\u{e0041}", r"\udb40\udc41"),
];

/// A name, or a label, with all of them.
fn nasty(begin: &str) -> String {
    NASTY.iter().fold(begin.to_owned(), |name, (part, ..)| name + part) + "end"
}

/// Checks that output hides nothing, whatever it is about.
#[track_caller]
fn hides_nothing(output: &str, whose: &str) {
    for line in output.lines() {
        let letters: String = NASTY.iter().map(|(letters, ..)| *letters).collect();
        let hidden = |letter: &char| letter.is_control() || !letter.is_ascii() && letters.contains(*letter);
        assert_eq!(line.chars().find(hidden), None, "{whose}: {line:?}");
        assert!(!line.trim_start().starts_with("FORGED"), "{whose}: {output}");
    }
}

/// Checks both outputs, and returns them together.
#[track_caller]
fn checked(ended: &Ended, whose: &str) -> String {
    let output = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!output.is_empty(), "{whose} says nothing: {ended:?}");
    hides_nothing(&output, whose);
    output
}

/// Checks the output for people, which shows each part of the name.
#[track_caller]
fn shown(ended: &Ended, whose: &str) {
    let output = checked(ended, whose);
    for (_, escaped, _) in NASTY {
        assert!(output.contains(escaped), "{whose} does not show {escaped}: {output}");
    }
}

/// Checks JSON, and that one of its values is the name itself.
#[track_caller]
fn in_json(ended: &Ended, name: &str, whose: &str) {
    let output = checked(ended, whose);
    for (_, _, escaped) in NASTY {
        assert!(output.contains(escaped), "{whose} does not show {escaped}: {output}");
    }
    assert!(
        events(&output).iter().any(|value| has(value, name)),
        "{whose} does not say which is meant: {output}"
    );
}

fn has(value: &Value, name: &str) -> bool {
    match value {
        Value::String(text) => text == name,
        Value::Array(all) => all.iter().any(|value| has(value, name)),
        Value::Object(all) => all.values().any(|value| has(value, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

async fn hold(servers: &quorlock_testkit::Servers, words: &[&str]) -> Running {
    Quorlock::new([&["hold", "--until-eof", "never"], words].concat()).on(servers).prints(1).await
}

#[tokio::test]
async fn a_nasty_name_is_shown_by_each_verb_and_means_itself_in_json() {
    let Some(servers) = servers(3).await else { return };
    let (name, label) = (nasty("job"), nasty("owner"));
    let (name, label) = (name.as_str(), label.as_str());
    let holder = hold(&servers, &["--label", label, name]).await;
    let _waiter = Quorlock::new(["run", "--label", label, name, "--", "true"]).on(&servers).start();
    hides_nothing(&holder.stdout(), "hold");
    let held = hold(&servers, &["--json", &nasty("told")]).await;
    hides_nothing(&held.stdout(), "hold --json");

    for words in [
        &["list"][..],
        &["list", name],
        &["top", "--iterations", "1"],
        &["status", name],
        &["log", &nasty("unlogged")],
        &["run", "-n", name, "--", "true"],
        &["elect", name, "--", name],
        &["hold", "-n", name],
        &["wait", "-w", "0s", name],
        &["release", "--token", "another", name],
        &["release", "--force", name],
        &["run", "-vv", "-n", name, "--", "true"],
        &["status", "--config", &format!("{name}.toml"), "job"],
        &["run", "job", "--", name],
        &["status", "job", &format!("--{name}")],
        &["run", "--ttl", name, "job", "--", "true"],
        &["list", &nasty("none")],
    ] {
        shown(&Quorlock::new(words).on(&servers).end().await, words[0]);
    }
    for words in [
        &["list", "--json"][..],
        &["top", "--iterations", "1", "--json"],
        &["status", "--json", name],
        &["release", "--token", "another", "--json", name],
        &["run", "--json", &nasty("other"), "--", "true"],
        &["wait", "--json", &nasty("free")],
    ] {
        let meant = words.iter().map(|word| (*word).to_owned()).find(|word| word.contains('\n'));
        let ended = Quorlock::new(words).on(&servers).end().await;
        in_json(&ended, &meant.unwrap_or_else(|| name.to_owned()), &words.join(" "));
    }
    for words in [
        &["run", "-n", "--json", name, "--", "true"][..],
        &["release", "--force", "--json", name],
        &["status", "--json", "--config", &format!("{name}.toml"), "job"],
        &["run", "--json", "--permits", "2", name, "--", "true"],
        &["run", "-n", "--json", "--also", &nasty("more"), name, "--", "true"],
    ] {
        checked(&Quorlock::new(words).on(&servers).end().await, &words.join(" "));
    }
    let watched = Quorlock::new(["status", "--watch=100ms", name]).on(&servers).start();
    hides_nothing(&watched.lines(1).await.join("\n"), "status --watch");
    let taken = Quorlock::new(["release", "--force", "--yes", name]).on(&servers).end().await.expect(0);
    shown(&taken, "release --force --yes");
}

#[tokio::test]
async fn the_token_of_another_program_is_shown_safely() {
    let Some(servers) = servers(3).await else { return };
    for server in servers.iter() {
        server.command(&["SET", "job", &nasty(""), "PX", "60000"]).await.unwrap();
        let logged = format!("1 0000000000000007 e 0 1 1 released {}", nasty("owner"));
        server.command(&["ZADD", &log_key("job"), "1", &logged]).await.unwrap();
    }
    for words in [
        &["list"][..],
        &["list", "--json"],
        &["status", "job"],
        &["status", "--json", "job"],
        &["log", "job"],
        &["log", "--json", "job"],
        &["run", "-n", "job", "--", "true"],
        &["release", "--force", "--yes", "job"],
    ] {
        let output = checked(&Quorlock::new(words).on(&servers).end().await, words[0]);
        assert!(output.contains(r"\nFORGED") || output.contains("another program"), "{output}");
    }
}

/// Starts a server that answers everything with this error, until the test ends; returns its address.
fn server_that_says(error: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let answer = format!("-ERR {error}\r\n");
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, answer) = (client.unwrap(), answer.clone());
            thread::spawn(move || {
                let mut question = [0; 4096];
                while let Ok(read @ 1..) = client.read(&mut question) {
                    // One for each command.
                    let commands = question[..read]
                        .split(|byte| *byte == b'\n')
                        .filter(|line| line.first() == Some(&b'*'));
                    if client.write_all(answer.repeat(commands.count()).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn what_a_server_says_is_shown_safely() {
    // An answer is one line.
    let url = server_that_says(&nasty("no").replace(['\n', '\r'], " "));
    for words in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["status", "job"],
        &["status", "--json", "job"],
        &["list"],
        &["log", "job"],
        &["log", "--json", "job"],
        &["top", "--iterations", "1"],
        &["bench", "--duration", "100ms"],
        &["bench", "--duration", "100ms", "--json"],
        &["init", "--force"],
        &["run", "-n", "job", "--", "true"],
        &["run", "-n", "-v", "job", "--", "true"],
        &["run", "-n", "--json", "job", "--", "true"],
        &["release", "--force", "job"],
    ] {
        let output = checked(&Quorlock::new(words).env("QUORLOCK_NODES", &url).end().await, &words.join(" "));
        // These do not quote it.
        let quotes = !matches!(words[0], "list" | "top");
        assert!(!quotes || output.contains(r"\u{202e}"), "{words:?}: {output}");
    }
}

#[tokio::test]
async fn a_command_sees_the_name_itself() {
    let Some(servers) = servers(1).await else { return };
    let name = nasty("job");
    let words = ["run", &name, "--", "sh", "-c", "printf %s \"$QUORLOCK_RESOURCE\""];
    assert_eq!(Quorlock::new(words).on(&servers).end().await.expect(0).stdout, name);
}
