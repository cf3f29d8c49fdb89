//! Where settings come from, and what is said of those that cannot work: exit code 78.

use crate::support::{Quorlock, servers};

fn job() -> Quorlock {
    Quorlock::new(["run", "-n", "job", "--", "true"])
}

#[tokio::test]
async fn without_nodes_it_says_where_they_may_stand() {
    let refused = job().end().await.expect(78);
    for place in
        ["--nodes", "QUORLOCK_NODES", "--config", "./quorlock.toml", ".config/quorlock/quorlock.toml"]
    {
        assert!(refused.stderr.contains(place), "{place} is not named: {refused:?}");
    }
    job().env("QUORLOCK_NODES", "").end().await.expect(78);
}

#[tokio::test]
async fn the_file_in_the_folder_is_read_and_flags_go_before_it() {
    let Some(servers) = servers(3).await else { return };
    let urls = servers.urls().join(",");
    let file = format!("nodes = '{urls}'\nttl = '9s'\nrestart-guard = 'off'\n");
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
async fn a_variable_is_overruled_by_any_flag_and_says_nothing_when_empty() {
    let Some(servers) = servers(3).await else { return };
    let job = || job().on(&servers);
    job().env("QUORLOCK_WAIT", "5s").env("QUORLOCK_TTL", "").end().await.expect(0);
    let refused = job().env("QUORLOCK_NODE_LIMIT", "soon").end().await.expect(78);
    assert!(refused.stderr.contains("QUORLOCK_NODE_LIMIT"), "{refused:?}");
}

#[tokio::test]
async fn a_named_file_must_be_there_and_must_be_understood() {
    let missing = job().env("QUORLOCK_CONFIG", "nowhere.toml").end().await.expect(78);
    assert!(missing.stderr.contains("nowhere.toml"), "{missing:?}");
    let unknown = job().file("quorlock.toml", "node = 'redis://a'").end().await.expect(78);
    assert!(unknown.stderr.contains("no setting `node`; there are nodes,"), "{unknown:?}");
}

#[tokio::test]
async fn what_the_library_refuses_is_a_matter_of_settings() {
    let nodes = "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3";
    for (name, value, word) in [
        ("QUORLOCK_TTL", "60s", "max_ttl"),
        ("QUORLOCK_DRIFT", "0.7", "drift"),
        ("QUORLOCK_NODES", "http://a", "scheme"),
        ("QUORLOCK_NODES", "redis://a,redis://a", "twice"),
    ] {
        let refused = job().env("QUORLOCK_NODES", nodes).env(name, value).end().await.expect(78);
        assert!(refused.stderr.contains(word), "{name}={value}: {refused:?}");
    }
}

#[tokio::test]
async fn errors_are_json_where_json_was_asked_for() {
    let refused = Quorlock::new(["run", "--json", "job", "--", "true"]).end().await.expect(78);
    let event: serde_json::Value = serde_json::from_str(&refused.stderr).expect("a line of JSON");
    assert_eq!(event["exit_code"], 78);
}
