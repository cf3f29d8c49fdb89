//! `quorlock list` and `quorlock top`.

use nix::sys::signal::Signal;
use quorlock_testkit::{Server, Servers, eventually, patience, until};
use serde_json::Value;

use crate::support::{
    Ended, Quorlock, Running, each, freeze, has_waiter, json, kill_all, run, servers, status, thaw,
};

async fn hold(servers: &Servers, options: &[&str], name: &str) -> Running {
    let words = [&["hold", "--until-eof", "never"], options, &[name]].concat();
    let holder = Quorlock::new(words).on(servers).prints(4).await;
    // A quorum has it; the others may get it a moment later.
    until("the lock at each node", async || {
        let prefix: &[&str] = if options.contains(&"--key-prefix") { options } else { &[] };
        let words = [&["status", "--json"], prefix, &[name]].concat();
        let seen = Quorlock::new(words).on(servers).end().await;
        seen.stdout.matches("\"state\":\"held\"").count() > servers.len()
    })
    .await;
    holder
}

async fn list(servers: &Servers, words: &[&str]) -> Ended {
    Quorlock::new([&["list"], words].concat()).on(servers).end().await
}

fn names(ended: &Ended) -> Vec<String> {
    ended.events().iter().map(|lock| lock["resource"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn it_lists_the_held_locks_with_holder_and_waiters_and_nothing_else() {
    let Some(servers) = servers(3).await else { return };
    let none = list(&servers, &[]).await.expect(0);
    assert_eq!(none.stdout, "no lock is held\n");
    let _holders = [
        hold(&servers, &["--label", "the first"], "cron/b").await,
        hold(&servers, &[], "cron/a*[").await,
        hold(&servers, &[], "other").await,
    ];
    let _waiter = Quorlock::new(["run", "cron/b", "--", "true"]).on(&servers).start();
    // Other data: on one node, on each another, and of another type.
    for (number, server) in servers.iter().enumerate() {
        server.command(&["SET", "cron/data", &number.to_string(), "PX", "60000"]).await.unwrap();
        server.command(&["HSET", "cron/hash", "a", "b"]).await.unwrap();
    }
    servers.iter().next().unwrap().command(&["SET", "cron/one", "a", "PX", "60000"]).await.unwrap();

    until("a waiter", async || list(&servers, &[]).await.stdout.contains("  1 ")).await;
    let all = list(&servers, &["--json"]).await.expect(0);
    assert_eq!(names(&all), ["cron/a*[", "cron/b", "other"], "{all:?}");
    let lock = &all.events()[1];
    assert!(lock["holder"].as_str().unwrap().ends_with(" the first"), "{lock}");
    assert_eq!((&lock["state"], &lock["waiters"]), (&"held".into(), &1.into()), "{lock}");
    assert!(lock["since"].as_str().unwrap().starts_with("20"), "{lock}");
    assert!(lock["remaining_ms"].as_u64().unwrap() > 0 && lock["fencing_token"].is_u64(), "{lock}");

    assert_eq!(names(&list(&servers, &["--json", "cron/"]).await.expect(0)), ["cron/a*[", "cron/b"]);
    assert_eq!(names(&list(&servers, &["--json", "cron/a*["]).await.expect(0)), ["cron/a*["]);
    assert_eq!(names(&list(&servers, &["--json", "--limit", "1"]).await.expect(0)), ["cron/a*["]);
    list(&servers, &["--limit", "2"]).await.expect(0).shows("the first 2 locks; there are more");
    let table = list(&servers, &["cron/"]).await.expect(0);
    assert!(
        table.stdout.contains("cron/b") && table.stdout.ends_with("\n2 locks are held\n"),
        "{}",
        table.stdout
    );
    assert!(!table.stdout.contains("other"), "{}", table.stdout);

    let top = Quorlock::new(["top", "--json", "--iterations", "2", "--interval", "100ms"]).on(&servers);
    let top = top.end().await.expect(0);
    for picture in top.events() {
        let locks = picture["locks"].as_array().unwrap();
        assert_eq!(locks[0]["resource"], "cron/b", "the longest wait comes first: {picture}");
        assert_eq!(locks.len(), 3, "{picture}");
    }
    let drawn = Quorlock::new(["top", "--iterations", "1"]).on(&servers).end().await.expect(0);
    assert!(drawn.stdout.contains("shown with waiters: 1"), "{}", drawn.stdout);
}

#[tokio::test]
async fn behind_a_thousand_locks_the_one_with_a_waiter_comes_first_also_when_it_comes_later() {
    let Some(servers) = servers(3).await else { return };
    let fill = "for n = 1, 1500 do redis.call('SET', 'a/' .. n, 'token', 'PX', 600000) end";
    each(&servers, &["EVAL", fill, "0"]).await;
    let _holders = [hold(&servers, &[], "y").await, hold(&servers, &[], "z").await];
    let _waiter = Quorlock::new(["run", "-w", "forever", "y", "--", "true"]).on(&servers).start();
    has_waiter(&servers, "y").await;
    let top = Quorlock::new(["top", "--json", "--interval", "100ms"]).on(&servers).start();
    let first = json(&top.lines(1).await[0]);
    assert_eq!((&first["locks"][0]["resource"], &first["locks"][0]["waiters"]), (&"y".into(), &1.into()));
    assert_eq!(first["locks"].as_array().unwrap().len(), 1000);
    let _another = Quorlock::new(["run", "-w", "forever", "z", "--", "true"]).on(&servers).start();
    until("the next waiter", async || {
        // The last line may still be written.
        let stdout = top.stdout();
        let last = stdout.rsplit_once('\n').and_then(|(whole, _)| whole.lines().last());
        let last = last.and_then(|line| serde_json::from_str::<Value>(line).ok());
        last.is_some_and(|last| last["locks"][1]["resource"] == "z" && last["locks"][1]["waiters"] == 1)
    })
    .await;
}

#[tokio::test]
async fn names_are_listed_without_the_prefix_of_their_keys() {
    let Some(servers) = servers(3).await else { return };
    let _holder = hold(&servers, &["--key-prefix", "locks:"], "a").await;
    let _other = hold(&servers, &[], "b").await;
    assert_eq!(names(&list(&servers, &["--json", "--key-prefix", "locks:"]).await.expect(0)), ["a"]);
    assert_eq!(names(&list(&servers, &["--json"]).await.expect(0)), ["b", "locks:a"]);
}

#[tokio::test]
async fn a_slot_that_has_had_its_run_is_listed_as_retained() {
    let Some(servers) = servers(3).await else { return };
    run(&servers, &["--at-least", "1h"], "true").end().await.expect(0);
    until("the retained lock", async || {
        let all = list(&servers, &["--json"]).await;
        all.stdout.contains("\"state\":\"retained\"") && all.stdout.contains(" ran at ")
    })
    .await;
}

#[tokio::test]
async fn a_key_without_an_expiry_is_shown_to_stay_for_ever() {
    let Some(servers) = servers(3).await else { return };
    each(&servers, &["SET", "job", "token of another program"]).await;
    let listed = list(&servers, &["--json"]).await.expect(0).events();
    let status = status(&servers, "job").await;
    for left in [&listed[0]["remaining_ms"], &status["holder"]["remaining_ms"]] {
        assert!(left.is_null(), "{listed:?} {status}");
    }
    assert!(status["nodes"][0].get("remaining_ms").is_some_and(Value::is_null), "{status}");
    for words in [&["list"][..], &["top", "--iterations", "1"], &["status", "job"]] {
        let shown = Quorlock::new(words).on(&servers).end().await.expect(0).stdout;
        assert!(shown.split_whitespace().any(|word| word == "never"), "{shown}");
    }
    let refused = Quorlock::new(["run", "--json", "-n", "job", "--", "true"]).on(&servers).end().await;
    assert!(!refused.stderr.contains("\"remaining_ms\":0"), "{refused:?}");
}

#[tokio::test]
async fn who_has_stopped_waiting_is_not_counted() {
    let Some(servers) = servers(3).await else { return };
    let _holder = hold(&servers, &[], "held").await;
    let waiter = Quorlock::new(["run", "held", "--", "true"]).on(&servers).start();
    let waiters = async || list(&servers, &["--json"]).await.events()[0]["waiters"].as_u64();
    until("a waiter", async || waiters().await == Some(1)).await;
    waiter.ends_by(Signal::SIGTERM).await.expect(143);
    assert_eq!(waiters().await, Some(0), "it was interrupted");
}

#[tokio::test]
async fn a_user_without_the_right_to_scan_is_told_so() {
    let Some(servers) = servers(1).await else { return };
    each(&servers, &["ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all", "-scan"]).await;
    let url = format!("redis://{}", servers[0].address());
    let list =
        Quorlock::new(["list", "--username", "ann", "--nodes", &url]).env("QUORLOCK_PASSWORD", "secret");
    list.end().await.expect(69).says("+scan");
}

#[tokio::test]
async fn a_minority_of_nodes_may_be_down_and_a_majority_may_not() {
    let Some(servers) = servers(3).await else { return };
    let _holder = hold(&servers, &[], "job").await;
    kill_all(&servers[..1]);
    let most = list(&servers, &["--json"]).await.expect(0);
    assert_eq!(names(&most), ["job"]);
    assert!(most.stderr.contains("could not be listed"), "{}", most.stderr);
    servers.iter().skip(1).take(1).for_each(Server::kill);
    list(&servers, &["--json"]).await.expect(69).says("held locks may be missing");
    let table = list(&servers, &[]).await.expect(69).stdout;
    assert!(
        !table.contains("no lock is held") && table.contains("1 of 3 nodes could be listed, 2 needed"),
        "{table}"
    );
    Quorlock::new(["top", "--iterations", "1"]).on(&servers).end().await.expect(69);
}

#[tokio::test]
async fn while_too_many_nodes_hang_no_lock_is_called_free() {
    let Some(servers) = servers(3).await else { return };
    let _holder = hold(&servers, &[], "job").await;
    let top = Quorlock::new(["top", "--json", "--interval", "100ms"]).on(&servers).start();
    let seen = async |wanted: &str| {
        let seen = eventually(wanted, patience(), async || {
            top.stdout().lines().last().unwrap_or_default().contains(wanted)
        });
        seen.await
            .unwrap_or_else(|error| panic!("{error}: {}", top.stdout().lines().last().unwrap_or_default()));
    };
    seen("\"current\":true,\"unknown\":0,\"locks\":[{\"resource\":\"job\"").await;
    freeze(&servers[..2]);
    for options in [&[][..], &["--limit", "5", "j"]] {
        let hung = list(&servers, options).await.expect(69);
        assert!(hung.stdout.starts_with("unknown whether a lock is held"), "{hung:?}");
        assert!(hung.stdout.contains("too few nodes answered about `job`"), "{hung:?}");
    }
    let hung = list(&servers, &["--json"]).await.expect(69);
    assert_eq!(hung.stdout, "{\"resource\":\"job\",\"state\":\"unknown\"}\n", "{hung:?}");
    seen("\"current\":false,\"unknown\":1,\"locks\":[]").await;
    thaw(&servers[..2]);
    seen("\"current\":true,\"unknown\":0").await;
}
