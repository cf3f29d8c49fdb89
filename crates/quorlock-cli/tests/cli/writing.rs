//! `quorlock init`.

use quorlock_testkit::{Servers, until};

use crate::pty::OnTerminal;
use crate::settings::open_to_all;
use crate::support::{Ended, Quorlock, kill_all, servers, servers_with_password, servers_without_password};

/// The servers are new: they vote once clients of this `max_ttl` cannot hold what they may have lost.
const SHORT: &str = "1s";

async fn votes(servers: &Servers) {
    until("servers that vote", async || {
        let doctor = Quorlock::new(["doctor", "--max-ttl", SHORT]).on(servers);
        doctor.env("QUORLOCK_RESTART_GUARD", "on").end().await.code == Some(0)
    })
    .await;
}

async fn init(servers: &Servers, words: &[&str]) -> (Ended, Option<(String, u32)>) {
    let init = Quorlock::new([&["init", "--max-ttl", SHORT], words].concat()).on(servers);
    init.env("QUORLOCK_RESTART_GUARD", "on").start().end_and_file("quorlock.toml").await
}

#[tokio::test]
async fn it_writes_a_file_that_the_next_command_reads() {
    let Some(servers) = servers_without_password(3).await else { return };
    votes(&servers).await;
    let (ended, file) = init(&servers, &["--key-prefix", "locks:"]).await;
    let ended = ended.expect(0);
    assert!(ended.stderr.contains("wrote quorlock.toml"), "{}", ended.stderr);
    let (text, mode) = file.expect("a file");
    assert_eq!(mode, 0o644);
    assert!(text.contains("key-prefix = \"locks:\"\n") && text.contains("\n#ttl = \"30s\"\n"), "{text}");
    let next = Quorlock::new(["run", "job", "--", "echo", "locked"]).file("quorlock.toml", &text);
    let next = next.env("QUORLOCK_RESTART_GUARD", "off").end().await.expect(0);
    assert_eq!(next.stdout, "locked\n");
    let again = Quorlock::new(["init"]).file("quorlock.toml", &text).env("QUORLOCK_RESTART_GUARD", "off");
    again.end().await.expect(64).says("quorlock.toml exists");
}

/// A limit of the size of files stands for a full disk.
#[tokio::test]
async fn a_file_that_cannot_be_written_in_full_is_not_left_behind() {
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
    let init = Quorlock::new(["init", "--no-check", "--nodes", "redis://a"]);
    let running = init.through_all("sh", &["-c", script]).start();
    let (ended, file) = running.end_and_file("quorlock.toml").await;
    ended.expect(78);
    assert_eq!(file, None, "an empty file is read in the place of /etc/quorlock.toml");
}

#[tokio::test]
async fn it_names_the_file_where_the_next_command_would_not_read_it() {
    let init = |words: &[&str]| {
        Quorlock::new([&["init", "--no-check", "--nodes", "redis://a,redis://b,redis://c"], words].concat())
    };
    let usual = init(&[]).end().await.expect(0);
    assert!(usual.stderr.ends_with("; try `quorlock run my-job -- echo hello`\n"), "{usual:?}");
    let for_all = init(&[]);
    open_to_all(for_all.path(""));
    let for_all = for_all.end().await.expect(0);
    assert_eq!(for_all.stderr.matches("its folder is writable by all users").count(), 1, "{for_all:?}");
    let variable = init(&[]).env("QUORLOCK_CONFIG", "/dev/null").end().await.expect(0);
    for ended in [for_all, variable] {
        let next = "try `quorlock run --config quorlock.toml my-job -- echo hello`: here it is read only";
        assert!(ended.stderr.contains(next), "{ended:?}");
    }
    init(&["--file", "my job.toml"]).end().await.expect(0).says("run --config 'my job.toml' my-job");
}

#[tokio::test]
async fn a_file_that_is_to_be_read_is_not_the_one_to_write() {
    let Some(servers) = servers(3).await else { return };
    let ended = Quorlock::new(["init", "--config", "new.toml"]).on(&servers).end().await.expect(64);
    assert!(ended.stderr.contains("--file new.toml"), "{ended:?}");
}

#[tokio::test]
async fn servers_that_were_just_started_are_waited_for_and_no_variable_turns_their_guard_off() {
    let Some(servers) = servers(3).await else { return };
    let words = ["init", "--max-ttl", "10s"];
    let running = Quorlock::new(words).on(&servers).env("QUORLOCK_RESTART_GUARD", "off").start();
    let (ended, file) = running.end_and_file("quorlock.toml").await;
    let (ended, (text, _)) = (ended.expect(0), file.unwrap());
    assert!(ended.stderr.contains("QUORLOCK_RESTART_GUARD=off is neither used nor written"), "{ended:?}");
    assert_eq!(ended.stderr.matches("waiting: the nodes were started recently").count(), 1, "{ended:?}");
    assert!(text.contains("\nnodes = ") && text.contains("\n#restart-guard = \"on\"\n"), "{text}");

    // In an earlier file it is a decision for all programs, and the check tells of it.
    let file = format!("nodes = {:?}\nrestart-guard = 'off'\n", servers.urls());
    let kept = Quorlock::new(["init", "--file", "-", "--no-check", "-q"]).file("quorlock.toml", &file);
    assert!(kept.end().await.expect(0).stdout.contains("\nrestart-guard = \"off\"\n"));
}

#[tokio::test]
async fn on_a_terminal_the_wait_is_counted_down_and_no_check_skips_it() {
    let Some(servers) = servers(3).await else { return };
    // Longer than the test: it does not end by itself.
    let words = ["--max-ttl", "1h", "--file", "-"];
    let nodes = servers.urls().join(",");
    let init = Quorlock::new([&["init"], &words[..]].concat()).env("QUORLOCK_NODES", &nodes);
    let terminal = OnTerminal::start(init);
    terminal.shows_times("enough of them vote in ", 2).await;
    drop(terminal);
    let forced = Quorlock::new([&["init", "--no-check"], &words[..]].concat()).env("QUORLOCK_NODES", &nodes);
    let forced = forced.end().await.expect(0);
    assert!(!forced.stderr.contains("waiting:"), "{forced:?}");
}

#[tokio::test]
async fn it_prints_the_file_and_reports_in_json() {
    let Some(servers) = servers(3).await else { return };
    votes(&servers).await;
    let (printed, file) = init(&servers, &["--file", "-", "-q"]).await;
    assert!(file.is_none());
    assert!(printed.expect(0).stdout.contains("\nnodes = [\"redis://"));
    for (words, checked) in [(&["--json"][..], "checked"), (&["--json", "--no-check"], "unchecked")] {
        let (ended, _) = init(&servers, words).await;
        let event = ended.expect(0).json();
        assert_eq!((&event["written"], &event["file"]), (&true.into(), &"quorlock.toml".into()), "{event}");
        assert_eq!(event["event"], checked, "{event}");
    }
}

#[tokio::test]
async fn without_a_quorum_it_writes_nothing() {
    let Some(servers) = servers(3).await else { return };
    kill_all(&servers[..2]);
    let (ended, file) = init(&servers, &[]).await;
    let ended = ended.expect(69);
    assert!(file.is_none() && ended.stderr.contains("nothing is written"), "{}", ended.stderr);
    let (ended, file) = init(&servers, &["--force"]).await;
    ended.expect(69);
    assert!(file.is_none(), "--force is about the file, not about the nodes");
    let (ended, file) = init(&servers, &["--no-check"]).await;
    ended.expect(0);
    assert!(file.is_some());
}

#[tokio::test]
async fn a_password_in_an_address_is_for_the_owner_only() {
    let Some(servers) = servers_with_password(3, "secret").await else { return };
    let urls: Vec<String> =
        servers.iter().map(|server| format!("redis://:secret@127.0.0.1:{}", server.port())).collect();
    let (ended, file) = init(&servers, &["--no-check", "--nodes", &urls.join(",")]).await;
    ended.expect(0);
    assert_eq!(file.expect("a file").1, 0o600);
    // A file that others could read before is written over.
    let init = ["init", "--force", "--no-check", "--nodes", &urls.join(",")];
    let running = Quorlock::new(init).file("quorlock.toml", "ttl = '10s'\n").start();
    let (ended, file) = running.end_and_file("quorlock.toml").await;
    ended.expect(0);
    assert_eq!(file.unwrap().1, 0o600);
    // A user alone is no secret.
    let urls: Vec<String> =
        servers.iter().map(|server| format!("redis://default@127.0.0.1:{}", server.port())).collect();
    let init = ["init", "--force", "--no-check", "--nodes", &urls.join(",")];
    let running = Quorlock::new(init).env("QUORLOCK_PASSWORD", "secret").start();
    let (ended, file) = running.end_and_file("quorlock.toml").await;
    ended.expect(0);
    assert_eq!(file.unwrap().1, 0o644);
}

/// The file that the packages install.
const OF_PACKAGE: &str = include_str!("../../src/config/quorlock.toml");

#[tokio::test]
async fn the_file_of_the_package_is_filled_in_without_force() {
    let own = OF_PACKAGE.replace("#drift = 0.01\n", "# Ours: ask Ann first.\n");
    for (before, kept) in [(OF_PACKAGE, "#drift = 0.01\n"), (&own, "# Ours: ask Ann first.\n")] {
        let words = ["init", "--no-check", "--nodes", "redis://a,redis://b,redis://c", "--drift", "0.02"];
        let running = Quorlock::new(words).file("quorlock.toml", before).start();
        let (ended, file) = running.end_and_file("quorlock.toml").await;
        ended.expect(0);
        let (text, _) = file.unwrap();
        assert!(
            text.contains("\nnodes = [\"redis://a\",") && text.matches("\ndrift = 0.02\n").count() == 1,
            "{text}"
        );
        assert_eq!(text.contains(kept), before == own, "{text}");
        let set = Quorlock::new(["init", "--no-check", "--nodes", "redis://d"]).file("quorlock.toml", &text);
        assert!(set.end().await.expect(64).stderr.contains("exists"), "it sets something now");
    }
}
