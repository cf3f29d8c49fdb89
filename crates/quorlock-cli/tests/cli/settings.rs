//! The sources of settings, and the errors for invalid ones: exit code 78.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use quorlock_testkit::until;

use crate::shown::VERBS;
use crate::support::{Quorlock, STAYS, bare, json, run, servers, servers_with_password, skips, with_mounts};

pub(crate) fn open_to_all(path: impl AsRef<Path>) {
    fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
}

/// Where no server is.
pub(crate) const NOWHERE: &str = "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3";

/// Settings of these nodes, which are new and so need no restart guard.
fn file_of(nodes: &str) -> String {
    format!("nodes = '{nodes}'\nrestart-guard = 'off'\n")
}

fn job() -> Quorlock {
    Quorlock::new(["run", "-n", "job", "--", "true"])
}

#[tokio::test]
async fn without_nodes_it_lists_their_sources() {
    let refused = job().end().await.expect(78);
    for place in [
        "--nodes",
        "QUORLOCK_NODES",
        "--config",
        "./quorlock.toml",
        ".config/quorlock/quorlock.toml",
        "/etc/quorlock.toml",
    ] {
        assert!(refused.stderr.contains(place), "{place} is not named: {refused:?}");
    }
    job().env("QUORLOCK_NODES", "").end().await.expect(78);
    for none in ["", " , "] {
        let empty = Quorlock::new(["run", "-n", "job", "--nodes", none, "--", "true"]);
        empty.env("QUORLOCK_NODES", "redis://192.0.2.1").end().await.expect(64).says("it names no node");
    }
}

#[tokio::test]
async fn an_empty_variable_is_as_good_as_none_and_one_with_commas_alone_is_refused() {
    let Some(servers) = servers(3).await else { return };
    let file = file_of(&servers.urls().join(","));
    job().file("quorlock.toml", &file).env("QUORLOCK_NODES", " ").end().await.expect(0);
    let refused = job().file("quorlock.toml", &file).env("QUORLOCK_NODES", " , ").end().await.expect(78);
    assert!(refused.stderr.contains("QUORLOCK_NODES names no node"), "{refused:?}");
}

#[tokio::test]
async fn what_run_gives_its_command_is_known_to_a_quorlock_in_it() {
    let Some(servers) = servers(3).await else { return };
    let nested = format!("env | grep -c ^QUORLOCK_ && exec {} status job", env!("CARGO_BIN_EXE_quorlock"));
    let ran = run(&servers, &["--permits", "2"], &nested).end().await.expect(0);
    assert_eq!(ran.stderr, "", "no variable is unknown");
    let count: usize = ran.stdout.lines().next().unwrap().parse().unwrap();
    assert!(count >= 8, "nodes, guard, and six for the command: {ran:?}");
}

#[tokio::test]
async fn a_server_that_is_listed_by_two_names_is_noticed() {
    let Some(servers) = servers(2).await else { return };
    let twin = servers[0].url().replace("127.0.0.1", "localhost");
    let nodes = [servers.urls(), vec![twin]].concat().join(",");
    let running = run(&servers, &[], STAYS).env("QUORLOCK_NODES", &nodes).start();
    until("a warning", async || running.stderr().contains(" are one server")).await;
    assert!(running.stderr().contains("remove one of the addresses"), "{}", running.stderr());
}

#[tokio::test]
async fn the_file_in_the_folder_is_read_and_flags_go_before_it() {
    let Some(servers) = servers(3).await else { return };
    let file = file_of(&servers.urls().join(",")) + "ttl = '9s'\n";
    let words = ["run", "job", "-c", "echo $QUORLOCK_TTL_MS"];
    let by_file = Quorlock::new(words).file("quorlock.toml", &file).end().await.expect(0);
    assert_eq!(by_file.stdout, "9000\n");
    let by_env = Quorlock::new(words).file("quorlock.toml", &file).env("QUORLOCK_TTL", "8s").end().await;
    assert_eq!(by_env.expect(0).stdout, "8000\n");
    let words = ["run", "-t", "7s", "job", "-c", "echo $QUORLOCK_TTL_MS"];
    let by_flag = Quorlock::new(words).file("quorlock.toml", &file).env("QUORLOCK_TTL", "8s").end().await;
    assert_eq!(by_flag.expect(0).stdout, "7000\n");
}

#[tokio::test]
async fn a_file_that_others_can_write_is_not_read_unless_it_is_named() {
    let Some(servers) = servers_with_password(3, "hunter-7").await else { return };
    let file = file_of(&bare(&servers)) + "metrics-file = 'theirs'\n";
    let start = |words: &[&str]| {
        let quorlock = Quorlock::new(words).file("quorlock.toml", &file).env("QUORLOCK_PASSWORD", "hunter-7");
        open_to_all(quorlock.path("quorlock.toml"));
        quorlock
    };
    let refused = start(&["status", "job"]).end().await.expect(78);
    let warned = "quorlock: warning: ./quorlock.toml is not read, because it is writable by all users";
    assert!(refused.stderr.starts_with(warned), "{refused:?}");
    assert!(refused.stderr.contains("--config ./quorlock.toml"), "{refused:?}");
    start(&["status", "--config", "./quorlock.toml", "job"]).end().await.expect(0);

    let json = start(&["status", "--json", "job"]).end().await.expect(78);
    assert!(
        json.stderr.starts_with(r#"{"event":"warning","message":"./quorlock.toml is not read"#),
        "{json:?}"
    );

    // The file at the next place is read instead.
    let own = file_of(&bare(&servers));
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("quorlock")).unwrap();
    fs::write(folder.path().join("quorlock/quorlock.toml"), own).unwrap();
    let instead =
        start(&["run", "job", "--", "true"]).env("XDG_CONFIG_HOME", folder.path().to_str().unwrap());
    let running = instead.start();
    let theirs = running.path("theirs");
    running.end().await.expect(0);
    assert!(!theirs.exists(), "an untrusted file has chosen a file to write");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_systems_file_is_read_last() {
    let Some(servers) = servers(3).await else { return };
    let script = format!(
        "mount -t tmpfs -o mode=755 none /etc && printf '%s' \"nodes = '{}'\nrestart-guard = 'off'\nttl = '9s'\nwait = '1s'\n\" \
         > /etc/quorlock.toml",
        servers.urls().join(",")
    );
    let shows = || Quorlock::new(["run", "job", "-c", "echo $QUORLOCK_TTL_MS"]);
    let Some(by_systems) = with_mounts(shows(), &script).await else { return };
    assert_eq!(by_systems.end().await.expect(0).stdout, "9000\n");
    let own = file_of(&servers.urls().join(",")) + "ttl = '8s'\n";
    let Some(by_own) = with_mounts(shows().file("quorlock.toml", &own), &script).await else { return };
    assert_eq!(by_own.end().await.expect(0).stdout, "8000\n", "one file is read, and not two");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_name_server_that_never_answers_delays_no_exit() {
    let Some(servers) = servers(3).await else { return };
    // Accepts requests, and never answers. Only root may listen there.
    let Ok(_mute) = std::net::UdpSocket::bind(("127.0.0.53", 53)) else {
        return skips("this user may not be a name server");
    };
    // It is given up after a minute, longer than a test waits.
    let script = "mount -t tmpfs -o mode=755 none /etc && printf 'nameserver 127.0.0.53\noptions timeout:30 attempts:2\n' \
                  > /etc/resolv.conf";
    let urls = [&servers.urls()[..2], &["redis://mute.example".to_owned()]].concat().join(",");
    for verb in [&["run", "job", "--", "true"][..], &["status", "job"]] {
        let Some(quorlock) = with_mounts(Quorlock::new(verb).at(&urls), script).await else { return };
        quorlock.end().await.expect(0);
    }
}

#[tokio::test]
async fn a_comma_in_a_password_is_refused_and_neither_half_is_shown() {
    for nodes in ["redis://anna:Qq7Zz9,Ww8Xx@a,redis://b,redis://c", "redis+unix:///run/a?pass=Qq7Zz9,Ww8Xx"]
    {
        let by_variable = job().env("QUORLOCK_NODES", nodes).end().await.expect(78);
        let by_flag = Quorlock::new(["status", "--nodes", nodes, "job"]).end().await.expect(64);
        for refused in [by_variable, by_flag] {
            assert!(refused.stderr.contains("%2C"), "the cure is named: {refused:?}");
            for part in ["anna", "Qq7", "Ww8"] {
                assert!(!refused.stderr.contains(part), "{part} is shown: {refused:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_password_where_a_file_is_to_be_named_is_not_shown() {
    for name in ["QUORLOCK_PASSWORD_FILE", "QUORLOCK_CONFIG"] {
        for password in ["Qq7Zz9", "/Qq7Zz9", "a/Qq7Zz9="] {
            let refused = job().env("QUORLOCK_NODES", NOWHERE).env(name, password).end().await.expect(78);
            assert!(!refused.stderr.contains("Qq7Zz9"), "{name}={password}: {refused:?}");
            assert!(refused.stderr.contains("cannot read"), "{refused:?}");
        }
    }
    let path = job().env("QUORLOCK_NODES", NOWHERE).env("QUORLOCK_PASSWORD_FILE", "/etc/no-such-secret");
    let refused = path.end().await.expect(78);
    assert!(refused.stderr.contains("/etc/no-such-secret"), "a path is shown: {refused:?}");
}

#[tokio::test]
async fn two_variables_for_the_password_are_refused() {
    for other in ["QUORLOCK_PASSWORD_FILE", "QUORLOCK_PASSWORD_COMMAND"] {
        let both =
            job().env("QUORLOCK_NODES", NOWHERE).env("QUORLOCK_PASSWORD", "Qq7Zz9").env(other, "secret");
        let refused = both.file("secret", "Ww8Xx\n").end().await.expect(78);
        let expected =
            format!("the variables QUORLOCK_PASSWORD and {other}: only one of them has the password");
        assert!(refused.stderr.contains(&expected) && !refused.stderr.contains("Qq7Zz9"), "{refused:?}");
    }
}

#[tokio::test]
async fn a_variable_is_overruled_by_any_flag_and_says_nothing_when_empty() {
    let Some(servers) = servers(3).await else { return };
    let job = || job().on(&servers);
    job().env("QUORLOCK_WAIT", "5s").env("QUORLOCK_TTL", "").end().await.expect(0);
    job().env("QUORLOCK_NODE_TIMEOUT", "soon").end().await.expect(78).says("QUORLOCK_NODE_TIMEOUT");
}

#[tokio::test]
async fn a_named_file_must_be_there_and_must_be_understood() {
    job().env("QUORLOCK_CONFIG", "nowhere.toml").end().await.expect(78).says("nowhere.toml");
    let unknown = job().file("quorlock.toml", "node = 'redis://a'").end().await.expect(78);
    assert!(unknown.stderr.contains("no setting `node`; the settings are nodes,"), "{unknown:?}");
}

#[tokio::test]
async fn what_the_library_refuses_is_a_matter_of_settings() {
    for (name, value, word) in [
        ("QUORLOCK_TTL", "60s", "max_ttl"),
        ("QUORLOCK_DRIFT", "0.7", "drift"),
        ("QUORLOCK_NODES", "http://a", "scheme"),
        ("QUORLOCK_NODES", "redis://a,redis://a", "twice"),
    ] {
        let refused = job().env("QUORLOCK_NODES", NOWHERE).env(name, value).end().await.expect(78);
        assert!(refused.stderr.contains(word), "{name}={value}: {refused:?}");
    }
}

#[tokio::test]
async fn errors_are_json_where_json_was_asked_for() {
    let refused = Quorlock::new(["run", "--json", "job", "--", "true"]).end().await.expect(78);
    assert_eq!(json(&refused.stderr)["exit_code"], 78);
    for verb in VERBS.into_iter().chain(["no-such-verb"]) {
        let refused = Quorlock::new([verb, "--bogus=1", "--json"]).end().await.expect(64);
        let event = json(&refused.stderr);
        assert_eq!((&event["event"], &event["exit_code"]), (&"error".into(), &64.into()), "{verb}");
        let message = event["message"].as_str().unwrap();
        assert!(message.contains("--bogus") || message.contains(verb), "{verb}: {message}");
        assert!(!message.contains("Usage") && !message.contains('\n'), "{verb}: {message}");
    }
    let of_the_command =
        Quorlock::new(["run", "--bogus", "job", "--", "curl", "--json"]).end().await.expect(64);
    assert!(of_the_command.stderr.starts_with("error: "), "{of_the_command:?}");
}

#[tokio::test]
async fn what_is_typed_is_64_and_what_a_variable_or_a_file_says_is_78_with_its_place() {
    for (key, value) in [
        ("nodes", "http://a"),
        ("nodes", "redis://a,redis://a"),
        ("nodes", "sqlite:///tmp/a,redis://a,redis://b"),
        ("ttl", "60s"),
        ("ttl", "1ms"),
        ("max-ttl", "1ms"),
        ("max-ttl", "100years"),
        ("node-timeout", "0s"),
        ("drift", "0.7"),
    ] {
        let option = format!("--{key}");
        let job = |words: &[&str]| Quorlock::new([&["run"], words, &["-n", "job", "--", "true"]].concat());
        let known = if key == "nodes" { "" } else { NOWHERE };
        let typed = job(&[&option, value]).env("QUORLOCK_NODES", known).end().await.expect(64);
        assert!(typed.stderr.contains(&format!("quorlock: {option}: ")), "{typed:?}");
        let variable = format!("QUORLOCK_{}", key.replace('-', "_").to_uppercase());
        let by_variable = job(&[]).env("QUORLOCK_NODES", known).env(&variable, value).end().await.expect(78);
        assert!(by_variable.stderr.contains(&format!("the variable {variable}: ")), "{by_variable:?}");
        // Also if its name says nothing about it.
        let text = format!("{key} = '{value}'");
        let by_file = job(&["--config", "ours"]).env("QUORLOCK_NODES", known).file("ours", &text);
        by_file.end().await.expect(78).says(&format!("`{key}` in ours: "));
    }
    let both = Quorlock::new(["run", "-n", "--config", "ours", "--ttl", "20s", "job", "--", "true"])
        .file("ours", &format!("nodes = '{NOWHERE}'\nmax-ttl = '10s'"));
    both.end().await.expect(64).says("--ttl and `max-ttl` in ours: ");
    for words in [&["--max-hold", "0s"][..], &["--permits", "0"], &["--permits", "65"]] {
        let words = [&["run", "-n", "--nodes", NOWHERE], words, &["job", "--", "true"]].concat();
        Quorlock::new(words).end().await.expect(64);
    }
    // What an option names is not there: it may be right tomorrow.
    for (option, path) in [
        ("--config", "no-such-file"),
        ("--password-file", "/etc/no-such-file"),
        ("--metrics-file", "no/file"),
    ] {
        let words = ["run", "-n", option, path, "job", "--", "true"];
        Quorlock::new(words).env("QUORLOCK_NODES", NOWHERE).end().await.expect(78).says(path);
    }
    let metrics = format!("nodes = '{NOWHERE}'\nmetrics-file = 'no/file'");
    job().file("quorlock.toml", &metrics).end().await.expect(78).says("`metrics-file` in ./quorlock.toml: ");
}

#[tokio::test]
async fn a_file_at_a_default_place_that_cannot_be_read_is_named_and_not_taken_for_none() {
    for nodes in ["", NOWHERE] {
        let job = job().env("QUORLOCK_NODES", nodes);
        std::os::unix::fs::symlink("nowhere", job.path("quorlock.toml")).unwrap();
        job.end().await.expect(78).says("./quorlock.toml: it is a link to nowhere");
    }
}

#[tokio::test]
async fn plain_seconds_are_taken_wherever_a_duration_is() {
    let Some(servers) = servers(3).await else { return };
    let file = file_of(&servers.urls().join(",")) + "ttl = 8\nwait = 2.5\n";
    let warns = || Quorlock::new(["run", "job", "-c", "echo $QUORLOCK_TTL_MS"]).file("quorlock.toml", &file);
    assert_eq!(warns().end().await.expect(0).stdout, "8000\n");
    assert_eq!(warns().env("QUORLOCK_TTL", "7").end().await.expect(0).stdout, "7000\n");
}

#[tokio::test]
async fn a_longer_node_timeout_goes_with_a_longer_ttl() {
    let Some(servers) = servers(3).await else { return };
    let settings = ["--node-timeout", "4s", "--max-ttl", "5min"];
    let with =
        |verb: &str, rest: &[&str]| Quorlock::new([&[verb][..], &settings, rest].concat()).on(&servers);
    for verb in ["run", "elect"] {
        with(verb, &["-t", "2min", "job", "--", "true"]).end().await.expect(0);
        with(verb, &["job", "--", "true"]).env("QUORLOCK_TTL", "2min").end().await.expect(0);
        let file = with(verb, &["--config", "ours", "job", "--", "true"]).file("ours", "ttl = '2min'");
        file.end().await.expect(0);
        with(verb, &["job", "--", "true"]).end().await.expect(64).says("a TTL and a max_ttl of 40s or more");
    }
    // These take no lock, and have no TTL of their own.
    for words in [&["wait", "job"][..], &["status", "job"], &["list"], &["release", "job", "--token", "x"]] {
        with(words[0], &words[1..]).end().await.expect(0);
    }
    // A longer one is refused as before, and raises nothing.
    let refused = Quorlock::new(["run", "-t", "2min", "job", "--", "true"]).on(&servers).end().await;
    assert!(refused.expect(64).stderr.contains("max_ttl of 30s"));
}

#[tokio::test]
async fn a_misspelt_variable_warns_and_a_key_is_suggested() {
    let Some(servers) = servers(3).await else { return };
    let ended = job().on(&servers).env("QUORLOCK_TLL", "9s").env("QUORLOCK_HELD", "1").end().await.expect(0);
    assert_eq!(
        ended.stderr,
        "quorlock: warning: there is no setting for the variable QUORLOCK_TLL, which has no effect\n"
    );
    job().file("quorlock.toml", "max_ttl = '9s'").end().await.expect(78).says("did you mean `max-ttl`?");
}

#[tokio::test]
async fn down_nodes_are_reported_once() {
    let Some(servers) = servers(3).await else { return };
    let third = servers[2].bare_url();
    servers[2].kill();
    let ran = job().on(&servers).end().await.expect(0);
    assert!(ran.stderr.lines().all(|line| line.starts_with("quorlock: warning: ")), "{ran:?}");
    servers[1].kill();
    let refused = job().on(&servers).end().await.expect(69);
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
    assert_eq!(refused.stderr.matches(&third).count(), 1, "{refused:?}");
    let status = Quorlock::new(["status", "job"]).on(&servers).end().await.expect(69);
    assert_eq!(status.stderr, "", "the table says it");
}

/// As under `sudo -u` without `-H`, or in a container with `--user`.
#[tokio::test]
async fn the_home_of_another_user_is_no_place_of_settings_if_the_nodes_are_named() {
    let Some(servers) = servers(1).await else { return };
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::set_permissions(&home, Permissions::from_mode(0o000)).unwrap();
    let job = ["run", "-n", "job", "--", "echo", "ran"];
    let quorlock = || Quorlock::unprivileged(&[], home.path(), &job, &folder);
    let known = quorlock().on(&servers).end().await.expect(0);
    assert_eq!((&*known.stdout, &*known.stderr), ("ran\n", ""));
    quorlock().end().await.expect(78).says("quorlock/quorlock.toml");
    fs::set_permissions(&home, Permissions::from_mode(0o755)).unwrap();
}
