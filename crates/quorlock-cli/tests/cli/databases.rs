//! `quorlock` on databases: the demonstration, status, doctor and metrics.

use std::os::unix::fs::PermissionsExt as _;

use quorlock_testkit::{Database, Engine, eventually, patience};

use crate::metrics::{address, scrape};
use crate::support::{Quorlock, STAYS, found};

fn engines() -> impl Iterator<Item = Engine> {
    [Engine::postgres(), Engine::mariadb()].into_iter().filter_map(found)
}

/// Starts one new node of each kind of database that is installed.
async fn nodes() -> (Vec<Database>, tempfile::TempDir, Vec<String>) {
    let mut databases = Vec::new();
    for engine in engines() {
        databases.push(engine.start().await.unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let mut urls: Vec<String> = databases.iter().map(Database::url).collect();
    urls.push(format!("sqlite://{}/locks.db", folder.path().display()));
    (databases, folder, urls)
}

fn quorlock(words: &[&str], url: &str) -> Quorlock {
    Quorlock::new(words).at(url)
}

#[tokio::test]
async fn the_story_ends_with_databases() {
    for (word, name, engine) in
        [("postgres", "PostgreSQL", Engine::postgres()), ("mariadb", "MariaDB", Engine::mariadb())]
    {
        let Some(_) = found(engine) else { continue };
        let ended = Quorlock::new(["demo", "--servers", word]).end().await.expect(0);
        for expected in [
            &format!("5 servers are up: {name} "),
            "still has her lock",
            "she has lost it",
            "remember a lock that has expired",
            "Ben has the lock",
        ] {
            assert!(ended.stdout.contains(expected), "the story lacks `{expected}`: {ended:?}");
        }
        assert_eq!(ended.stderr, "");
    }
}

#[tokio::test]
async fn a_command_gets_databases_that_end_with_it() {
    for (word, engine) in [("postgres", Engine::postgres()), ("mariadb", Engine::mariadb())] {
        let Some(_) = found(engine) else { continue };
        let script = "quorlock run job -- sh -c 'echo \"$QUORLOCK_NODES $QUORLOCK_FENCE\"'; exit 7";
        let ended =
            Quorlock::new(["demo", "--servers", word, "--", "sh", "-c", script]).end().await.expect(7);
        let (nodes, fence) = ended.stdout.trim_end().rsplit_once(' ').unwrap();
        assert!(fence.parse::<u64>().is_ok_and(|fence| fence > 0), "{ended:?}");
        let ports = nodes.split(',').map(|url| url.rsplit_once(':').unwrap().1.split('/').next().unwrap());
        for port in ports {
            let reached = std::net::TcpStream::connect(format!("127.0.0.1:{port}"));
            assert!(reached.is_err(), "a server at {port} has outlived the demonstration");
        }
    }
}

#[tokio::test]
async fn a_database_is_listed_before_its_first_lock_and_not_while_it_hangs() {
    let (databases, _folder, urls) = nodes().await;
    for url in &urls {
        let fresh = quorlock(&["list"], url).end().await.expect(0);
        assert_eq!(fresh.stdout, "no lock is held\n", "{url}");
    }
    for database in &databases {
        database.freeze().unwrap();
        quorlock(&["list"], &database.url()).end().await.expect(69).says("could not be listed");
        database.thaw().unwrap();
    }
}

#[tokio::test]
async fn status_doctor_and_metrics_know_the_nodes_of_databases() {
    let (_databases, _folder, urls) = nodes().await;
    for url in &urls {
        let words = ["-v", "run", "--metrics", "0", "--label", "nightly report", "job", "--", "sh", "-c"];
        let running = quorlock(&[&words[..], &[STAYS]].concat(), url).prints(1).await;

        let metrics = address(&running).await;
        let (held, up) = ("quorlock_held{resource=\"job\"} 1", "quorlock_node_up{");
        eventually("the metrics", patience(), async || {
            let text = scrape(&metrics, "/metrics");
            let is_up = text.lines().any(|line| line.starts_with(up) && line.ends_with(" 1"));
            text.contains(held) && is_up && text.contains("quorlock_acquire_duration_seconds_bucket")
        })
        .await
        .unwrap_or_else(|error| panic!("{url}: {error}: {}", scrape(&metrics, "/metrics")));

        let status = quorlock(&["status", "job"], url).end().await.expect(0);
        status.shows("`job` is held by").shows("nightly report");
        let shown = quorlock(&["status", "--json", "job"], url).end().await.expect(0);
        let shown = shown.json();
        assert_eq!(shown["nodes"].as_array().map(Vec::len), Some(1), "{url}: {shown}");

        let waiter = quorlock(&["run", "-w", "forever", "job", "--", "true"], url).start();
        let queues = !url.starts_with("sqlite:");
        eventually("the lock and its waiter in the list", patience(), async || {
            // On a busy machine a database may not answer in time.
            let list = quorlock(&["list", "--json", "j"], url).end().await;
            list.stdout.contains("nightly report") && (!queues || list.stdout.contains("\"waiters\":1"))
        })
        .await
        .unwrap_or_else(|error| panic!("{url}: {error}"));
        let other = quorlock(&["list", "--json", "k"], url).end().await.expect(0);
        assert_eq!(other.stdout, "", "{url}");
        let top = quorlock(&["top", "--json", "--iterations", "1"], url).end().await.expect(0);
        assert!(top.stdout.contains("\"resource\":\"job\""), "{url}: {top:?}");
        drop(waiter);

        let examined = quorlock(&["doctor", "--json"], url).end().await;
        let report = examined.json();
        assert_eq!(report["nodes"][0]["vote"], "yes", "{url}: {examined:?}");
        let waits = quorlock(&["run", "--wait", "0", "job", "--", "true"], url).end().await.expect(75);
        assert!(waits.stderr.contains("nightly report"), "it says who holds it: {waits:?}");
        drop(running);
    }
}

#[tokio::test]
async fn nobody_else_gets_into_the_servers() {
    for engine in engines() {
        let database = engine.start().await.unwrap();
        let mode = std::fs::metadata(database.folder()).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "others can enter the folder of {engine}: {mode:o}");
        let url = database.url();
        quorlock(&["status", "job"], &url).end().await.expect(0);
        let without = url.replace(&format!(":{}@", engine.password()), "@");
        let wrong = url.replace(engine.password(), "wrong");
        let root = without.replace("locks@", "root@");
        assert_ne!(without, url);
        for url in [&without, &wrong, &root] {
            let refused = quorlock(&["status", "job"], url).end().await.expect(69);
            assert!(refused.stdout.contains("unknown"), "{url}: {refused:?}");
        }
        let cmdline = std::fs::read(format!("/proc/{}/cmdline", database.pid().unwrap())).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&cmdline).contains(engine.password()), "all users can read it");
    }
    // Masters as well.
    let script = "echo \"$QUORLOCK_NODES\"; exec quorlock doctor --nodes $(echo \"$QUORLOCK_NODES\" | sed 's/:[0-9a-f]*@//g')";
    let ended = Quorlock::new(["demo", "--", "sh", "-c", script]).end().await.expect(69);
    let nodes = ended.stdout.lines().next().unwrap();
    for url in nodes.split(',') {
        let password = url.strip_prefix("redis://:").and_then(|rest| rest.split_once('@')).unwrap().0;
        assert_eq!(password.len(), 32, "{url}");
    }
    assert!(ended.stdout.contains("it requires a password"), "{ended:?}");
}
