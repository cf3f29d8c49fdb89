//! A password opens the nodes, and appears nowhere.

use std::fs;

use quorlock_testkit::{Servers, until};

use crate::support::{Ended, Quorlock, bare, servers_with_password};

const PASSWORD: &str = "Qq7Zz9-open";

fn assert_hidden(ended: &Ended) {
    for output in [&ended.stdout, &ended.stderr] {
        assert!(!output.contains(PASSWORD), "the password is shown: {output}");
    }
}

#[tokio::test]
async fn it_may_come_from_the_address_the_environment_or_a_file() {
    let Some(servers) = servers_with_password(3, PASSWORD).await else { return };
    let bare = bare(&servers);
    let run = || Quorlock::new(["run", "-n", "-vv", "job", "--", "true"]).on(&servers);
    let bare_run = || run().env("QUORLOCK_NODES", &bare);

    assert_hidden(&run().end().await.expect(0));
    assert_hidden(&bare_run().env("QUORLOCK_PASSWORD", PASSWORD).end().await.expect(0));
    let file = bare_run().file("secret", &format!("{PASSWORD}\n")).env("QUORLOCK_PASSWORD_FILE", "secret");
    assert_hidden(&file.end().await.expect(0));
    let settings = format!("nodes = '{bare}'\nrestart-guard = 'off'\npassword-file = 'secret'\n");
    let by_settings = Quorlock::new(["run", "-n", "-vv", "job", "--", "true"])
        .file("quorlock.toml", &settings)
        .file("secret", PASSWORD);
    assert_hidden(&by_settings.end().await.expect(0));

    for words in [&["doctor", "-vv"][..], &["doctor", "--json"]] {
        let doctor = Quorlock::new(words).at(&bare);
        assert_hidden(&doctor.env("QUORLOCK_PASSWORD", PASSWORD).end().await);
    }

    let missing = bare_run().end().await.expect(69);
    assert!(missing.stderr.contains("password"), "the cure is named: {missing:?}");
}

/// Gives the user this password alone, and ends the connections that it has.
async fn replace(servers: &Servers, password: &str) {
    for server in servers.iter() {
        let words = ["ACL", "SETUSER", "locks", "reset", "on", "~*", "&*", "+@all", &format!(">{password}")];
        assert_eq!(server.command(&words).await.unwrap().to_string(), "OK");
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await.unwrap();
    }
}

#[tokio::test]
async fn a_file_and_a_command_are_read_again_when_a_connection_has_ended() {
    let Some(servers) = servers_with_password(3, PASSWORD).await else { return };
    let bare = bare(&servers);
    for option in [["--password-file", "secret"], ["--password-command", "cat secret"]] {
        replace(&servers, "first").await;
        let words = ["run", "--username", "locks", "job", "--", "sh", "-c"];
        let work = "echo in; while [ ! -e enough ]; do sleep 0.1; done";
        let running = Quorlock::new([&words[..1], &option, &words[1..], &[work]].concat())
            .at(&bare)
            .file("secret", "first\n")
            .prints(1)
            .await;
        fs::write(running.path("next"), "second\n").unwrap();
        fs::rename(running.path("next"), running.path("secret")).unwrap();
        replace(&servers, "second").await;
        for server in servers.iter() {
            until("the next connection", async || {
                let clients = server.command(&["CLIENT", "LIST"]).await.unwrap().to_string();
                clients.contains("user=locks")
            })
            .await;
        }
        running.enough().await.expect(0);
    }
}

#[tokio::test]
async fn a_wrong_password_ends_each_wait() {
    let Some(servers) = servers_with_password(3, PASSWORD).await else { return };
    let bare = bare(&servers);
    for line in [
        "wait job",
        "wait -w 0s job",
        "run -w forever job -- true",
        "hold -w forever job",
        "elect job -- true",
    ] {
        let job = Quorlock::new(line.split(' ')).at(&bare);
        let ended = job.env("QUORLOCK_PASSWORD", "another").end().await.expect(69);
        assert!(ended.stderr.contains("nodes are misconfigured"), "{line}: {ended:?}");
    }
}

#[tokio::test]
async fn a_command_that_says_no_password_is_named_and_not_shown() {
    for command in ["exit 3", "echo; echo Qq7Zz9-open", "echo Qq7Zz9-open; exit 1"] {
        let refused = Quorlock::new(["run", "-n", "--password-command", command, "job", "--", "true"])
            .env("QUORLOCK_NODES", "redis://127.0.0.1:1")
            .end()
            .await
            .expect(78);
        assert!(refused.stderr.contains("the password-command"), "{refused:?}");
        assert_hidden(&refused);
    }
    let both = "password-file = 'secret'\npassword-command = 'cat secret'\nnodes = 'redis://127.0.0.1:1'";
    Quorlock::new(["status", "job"]).file("quorlock.toml", both).end().await.expect(78).says("keep the one");
}

#[tokio::test]
async fn no_message_shows_it() {
    let nodes = format!("redis://:{PASSWORD}@127.0.0.1:1,redis://:{PASSWORD}@127.0.0.1:2");
    let with = |words: &[&str]| Quorlock::new(words).env("QUORLOCK_NODES", &nodes);
    for (line, code) in [
        ("run -n -vv job -- true", 69),
        ("run -n --json job -- true", 69),
        ("status -vv job", 69),
        ("status --json job", 69),
        ("doctor -vv", 69),
        ("doctor --json", 69),
        ("run --help", 0),
        ("run", 64),
    ] {
        assert_hidden(&with(&line.split(' ').collect::<Vec<_>>()).end().await.expect(code));
    }
    let malformed = format!("redis://:{PASSWORD}/@127.0.0.1:1");
    assert_hidden(
        &with(&["run", "job", "--", "true"]).env("QUORLOCK_NODES", &malformed).end().await.expect(78),
    );
}

#[tokio::test]
async fn no_process_has_it_among_its_arguments() {
    let Some(servers) = servers_with_password(3, PASSWORD).await else { return };
    let bare = bare(&servers);
    let shows = "tr '\\0' ' ' < /proc/$$/cmdline; tr '\\0' ' ' < /proc/$PPID/cmdline";
    let run = Quorlock::new(["run", "-n", "job", "--", "sh", "-c", shows]).at(&bare);
    let ended = run.env("QUORLOCK_PASSWORD", PASSWORD).end().await.expect(0).shows("run -n job");
    assert_hidden(&ended);
}
