//! `quorlock status`.

use quorlock_testkit::{Resp, until};

use crate::support::{Quorlock, kill_all, run, servers};

#[tokio::test]
async fn a_free_lock_is_called_free() {
    let Some(servers) = servers(3).await else { return };
    let text = Quorlock::new(["status", "job"]).on(&servers).end().await.expect(0);
    assert!(text.stdout.ends_with("`job` is free\n"), "{text:?}");
    assert!(
        servers.iter().all(|server| text.stdout.contains(&format!(" 127.0.0.1:{} ", server.port()))),
        "each node has its line; {text:?}"
    );
}

#[tokio::test]
async fn a_held_lock_is_shown_with_its_holder_and_without_its_token() {
    let Some(servers) = servers(3).await else { return };
    let holder = run(
        &servers,
        &["--label", "nightly report"],
        "echo $QUORLOCK_TOKEN; echo $QUORLOCK_FENCE; exec sleep 1000",
    )
    .start();
    let shown = holder.lines(2).await;
    let secret = shown[0].split(' ').next().unwrap_or_default();
    let fencing_token = &shown[1];

    // The third node may answer after the other two have decided.
    let status = || Quorlock::new(["status", "job"]).on(&servers).end();
    until("all three nodes have it", async || {
        status().await.expect(0).stdout.contains("nightly report on 3 of 3 nodes")
    })
    .await;
    let text = status().await.expect(0);
    assert!(text.stdout.ends_with(&format!(", with fencing token {fencing_token}\n")), "{text:?}");
    let json = Quorlock::new(["status", "job", "--json"]).on(&servers).end().await.expect(0);
    let value = json.json();
    assert_eq!(value["state"], "held");
    assert_eq!(value["holder"]["nodes"], 3);
    assert_eq!(value["holder"]["fencing_token"].to_string(), *fencing_token);
    assert_eq!(value["nodes"][0]["fencing_token"].to_string(), *fencing_token);
    assert_eq!(value["nodes"].as_array().map(Vec::len), Some(3));
    assert!(value["nodes"][0]["remaining_ms"].as_u64().is_some_and(|left| left <= 30_000), "{json:?}");
    for output in [&text.stdout, &text.stderr, &json.stdout, &json.stderr] {
        assert!(!output.contains(secret), "the token, which releases the lock, is shown: {output}");
    }
}

#[tokio::test]
async fn dead_nodes_are_shown_and_too_many_of_them_are_69() {
    let Some(servers) = servers(3).await else { return };
    servers[0].kill();
    let one = Quorlock::new(["status", "job"]).on(&servers).end().await.expect(0);
    assert!(one.stdout.contains("unreachable") && one.stdout.ends_with("is free\n"), "{one:?}");
    servers[1].kill();
    let two = Quorlock::new(["status", "job"]).on(&servers).end().await.expect(69);
    assert!(two.stdout.contains("1 of 3 nodes answered, 2 needed"), "{two:?}");
    let json = Quorlock::new(["status", "job", "--json"]).on(&servers).end().await.expect(69);
    assert!(json.stdout.contains(r#""state":"unknown""#), "{json:?}");
}

#[tokio::test]
async fn hung_nodes_are_told_from_dead_ones() {
    let Some(servers) = servers(3).await else { return };
    servers[0].freeze().unwrap();
    servers[1].kill();
    let looked = Quorlock::new(["status", "job"]).on(&servers).end().await.expect(69);
    for (server, why) in [(0, "it accepts connections and does not answer: "), (1, "unreachable: ")] {
        let line = format!("127.0.0.1:{}: {why}", servers[server].port());
        assert!(looked.stdout.contains(&line), "{line}: {looked:?}");
    }
    servers[0].thaw().unwrap();
}

#[tokio::test]
async fn a_silent_node_that_could_decide_makes_it_unclear() {
    let Some(servers) = servers(3).await else { return };
    servers[0].command(&["SET", "job", "of another program", "PX", "60000"]).await.unwrap();
    let free = Quorlock::new(["status", "job"]).on(&servers).end().await.expect(0);
    assert!(free.stdout.contains("is free: another program"), "{free:?}");
    servers[1].kill();
    Quorlock::new(["status", "job"]).on(&servers).end().await.expect(69).shows("may be free or held");
}

#[tokio::test]
async fn i12_what_restarted_servers_do_not_store_may_be_held() {
    let Some(servers) = servers(3).await else { return };
    let look = |options: &[&str]| {
        let status = Quorlock::new([&["status"], options, &["job"]].concat());
        status.on(&servers).env("QUORLOCK_RESTART_GUARD", "on")
    };
    let shown = look(&[]).end().await.expect(69).shows("free, no vote for ");
    let why = "`job` may be free or held, no quorum: 3 of 3 nodes answered, 3 of them restarted or first used too recently";
    assert!(shown.stdout.contains(why), "{shown:?}");
    let json = look(&["--json"]).end().await.expect(69);
    let shown = json.json();
    assert_eq!(shown["state"], "unknown");
    for left in [&shown["locked_no_sooner_than_ms"], &shown["nodes"][0]["no_vote_for_ms"]] {
        assert!((1..=31_000).contains(&left.as_u64().unwrap()), "{shown}");
    }
    look(&[]).env("QUORLOCK_RESTART_GUARD", "off").end().await.expect(0);
    let wait = Quorlock::new(["wait", "-w", "0s", "job"]).on(&servers).env("QUORLOCK_RESTART_GUARD", "on");
    wait.end().await.expect(69).says("too recently to vote");
}

#[tokio::test]
async fn no_line_of_the_table_is_a_sentence() {
    let Some(servers) = servers(3).await else { return };
    kill_all(&servers[..2]);
    let shown = Quorlock::new(["status", "job"]).on(&servers).end().await.expect(69);
    let table: Vec<&str> = shown.stdout.lines().take(4).collect();
    assert!(table.iter().all(|line| line.len() < 80), "{shown:?}");
    assert!(shown.stdout.contains("unreachable"), "the reasons follow the table: {shown:?}");
}

/// What other clients would be warned of for a month: rule I-37.
#[tokio::test]
async fn commands_that_take_no_lock_leave_no_note_of_their_settings() {
    let Some(servers) = servers(3).await else { return };
    for words in [
        &["status", "job"][..],
        &["wait", "-w", "1s", "job"],
        &["release", "--force", "-y", "job"],
        &["list"],
    ] {
        let words = [words, &["--max-ttl", "2min"]].concat();
        Quorlock::new(words).on(&servers).end().await;
    }
    for server in servers.iter() {
        let notes = server.command(&["KEYS", "*max-ttl*"]).await.unwrap();
        assert_eq!(notes, Resp::List(Vec::new()));
    }
}

#[tokio::test]
async fn a_lock_that_no_client_holds_and_none_can_acquire_is_waited_for_and_said_to_be_passed_on() {
    let Some(servers) = servers(3).await else { return };
    for (server, token) in servers.iter().zip(["1", "2", "3"]) {
        server.command(&["SET", "split", token, "PX", "600000"]).await.unwrap();
    }
    Quorlock::new(["status", "split"]).on(&servers).end().await.shows("too few nodes are free to grant it");
    Quorlock::new(["wait", "--wait", "0", "split"]).on(&servers).end().await.expect(75);
}
