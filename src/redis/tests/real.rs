//! Tests with a real server on the loopback interface.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::server::Server;
use super::{
    HintLog, LONG, Log, acquire, cancel, claim, contend, enqueue, enqueue_at, hangs, inspect, plain, refuses,
    release, renew, spawn_ask, transfer, vote, write_back,
};
use crate::node::{Collect, HintListener, Node, NodeError, Request, Responder, Vote, ask};
use crate::redis::error::RIGHTS;
use quorlock_protocol::{Claim, FencingToken, WaiterId, gate, lists_note, turn_key, want_mark};
use quorlock_testkit::until;

#[tokio::test]
async fn a_health_check_reads_the_lists_of_nodes_and_leaves_none() {
    let Some(server) = Server::start(&[]) else { return };
    let key = lists_note(&gate(""));
    let lists = async || server.node().examine("a-probe".into()).await.unwrap().node_lists;
    assert_eq!(lists().await, []);
    server.cli(&["ZADD", &key, "1000", "aaaaaaaa bbbbbbbb", "99999999999999", "cccccccc"]);
    let read = lists().await;
    assert!(
        read.len() == 1 && &*read[0].nodes == "aaaaaaaa bbbbbbbb",
        "{read:?}: the other is of the future"
    );
    assert!(read[0].recorded > LONG, "{read:?}");
    assert_eq!(server.cli(&["ZCARD", &key]), "2");
}

#[tokio::test]
async fn a_health_check_says_that_a_server_is_in_a_long_script() {
    let Some(server) = Server::start(&["--lua-time-limit", "50"]) else { return };
    let mut client = std::process::Command::new("redis-cli");
    let port = server.port.to_string();
    let mut script = client.args(["-p", &port, "EVAL", "while true do end", "0"]).spawn().unwrap();
    until("a long script", async || server.cli(&["PING"]).starts_with("BUSY")).await;
    let facts = server.node().examine("a-probe".into()).await.unwrap();
    server.cli(&["SCRIPT", "KILL"]);
    script.wait().unwrap();
    let failure = format!("{:#}", facts.failure.unwrap().error);
    assert!(failure.contains("busy running a slow script") && failure.contains("`SCRIPT KILL`"), "{failure}");
}

#[tokio::test]
async fn a_megabyte_of_another_program_is_truncated() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    server.cli(&["setrange", "orders/42", "1000000", "x"]);
    let ours = claim("orders/42", 1);
    for request in [acquire(&ours), renew(&ours), write_back(&ours), inspect()] {
        let Vote::Held(holding) = vote(&node, request).await else { panic!("it is held") };
        assert_eq!(holding.token.as_bytes().len(), 4096, "more than any token of ours");
    }
}

#[tokio::test]
async fn an_error_of_one_request_does_not_affect_others() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    server.cli(&["lpush", "a-list", "x"]);
    let (good, bad) = (claim("orders/42", 1), claim("a-list", 1));
    // Both wait for the first connection, and so are sent in one write.
    let (good, bad) = futures::join!(ask(&node, acquire(&good)), ask(&node, release(&bad)));
    assert_eq!(good.unwrap().vote, Vote::Granted);
    let error = bad.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("`a-list` holds something"), "{error}");
}

#[tokio::test]
async fn a_thousand_requests_are_answered_in_order() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    drop(node.ready().await);
    let log = Arc::new(Log::default());
    for index in 0..1_000 {
        node.ask(inspect().into(), Responder::new(Arc::clone(&log) as Arc<dyn Collect>, index));
    }
    // A request asked last is answered last.
    assert_eq!(vote(&node, inspect()).await, Vote::Free);
    assert_eq!(log.granted(), (0..1_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_unwanted_vote_is_not_sent() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    let log = Arc::new(Log { unwanted: true.into(), ..Log::default() });
    node.ask(acquire(&claim("orders/42", 1)).into(), Responder::new(Arc::clone(&log) as Arc<dyn Collect>, 0));
    assert_eq!(vote(&node, inspect()).await, Vote::Free);
    assert_eq!(log.answers.lock().unwrap().as_slice(), [(0, Err(NodeError::NotAsked))]);
}

#[tokio::test]
async fn the_end_of_an_idle_connection_is_noticed_with_either_protocol() {
    for options in [&[][..], &["--rename-command", "HELLO", ""]] {
        let Some(server) = Server::start(options) else { return };
        let node = server.node();
        assert_eq!(vote(&node, inspect()).await, Vote::Free);
        server.kill();
        // No requests are sent while it is down; the state of the node shows it.
        until("the end is noticed", async || refuses(&node, &inspect())).await;
        let error = ask(&node, inspect()).await.unwrap_err();
        assert!(matches!(error, NodeError::Unreachable { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn an_unfit_server_is_retried_until_it_is_fit() {
    let Some(server) = Server::start(&["--replicaof", "127.0.0.1", "1"]) else { return };
    let node = server.node();
    let error = ask(&node, inspect()).await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("replica"), "{error}");
    server.cli(&["replicaof", "no", "one"]);
    until("it votes", async || ask(&node, inspect()).await.is_ok()).await;
}

#[tokio::test]
async fn the_permissions_in_the_error_are_sufficient() {
    let Some(server) = Server::start(&[]) else { return };
    let mut line = vec!["acl", "setuser", "anna", "on", ">pw", "~orders/*"];
    line.extend(RIGHTS.split(' '));
    server.cli(&line);
    let node = server.node_of("anna:pw@");
    // The counters are below the prefix.
    let claim = |key: &str, random: u128| Arc::new(Claim::clone(&claim(key, random)).below("orders/".len()));
    let ours = claim("orders/42", 1);
    node.listen(Arc::new(HintLog::default()));
    let (key, waiter) = (Arc::<str>::from("orders/42"), WaiterId::new(1));
    let shared = Arc::new(claim("orders/42", 4).as_ref().clone().shared());
    for request in [
        acquire(&ours),
        enqueue(waiter),
        Request::LeaveQueue { key: key.clone(), waiter },
        transfer(&ours, &claim("orders/42", 3)),
        renew(&ours),
        write_back(&ours),
        release(&ours),
        plain(&ours),
        plain(&claim("orders/42", 2)),
        cancel(&ours),
        renew(&claim("orders/42", 2)),
        Request::Inspect { key: key.clone(), prefix_len: "orders/".len() },
        Request::AnnounceWriter { key: key.clone(), waiter, patience: Duration::from_secs(1) },
        Request::WithdrawWriter { key, waiter },
        acquire(&shared),
        renew(&shared),
        write_back(&shared),
        release(&shared),
        cancel(&shared),
    ] {
        vote(&node, request).await;
    }
    let error = ask(&node, acquire(&claim("other", 1))).await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("may not access the key `other`"), "{error}");
    server.cli(&["acl", "setuser", "anna", "-zadd"]);
    let error = ask(&node, acquire(&claim("orders/43", 1))).await.unwrap_err();
    let named = ["may not run ZADD; grant", "may not run a command of the script"];
    assert!(named.iter().any(|words| error.to_string().contains(words)), "not EVAL itself: {error}");
}

#[tokio::test]
async fn a_refused_key_and_no_other_is_tracked_also_after_a_reconnect() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    let hints = Arc::new(HintLog::default());
    node.listen(Arc::clone(&hints) as Arc<dyn HintListener>);
    let pushes_own = server.cli(&["info", "server"]).contains("redis_version:6.0.");
    for heard in ["Subscribed", "Unsubscribed Subscribed"] {
        until("it votes", async || ask(&node, release(&claim("another", 9))).await.is_ok()).await;
        server.cli(&["set", "orders/42", "x", "px", "60000"]);
        assert!(matches!(vote(&node, acquire(&claim("orders/42", 1))).await, Vote::Held(_)));
        // Redis 6.0 also notifies a client of changes by its own scripts.
        let own = |word: &String| {
            ["held", "another"].contains(&&**word)
                || ["r/", "restored/", "held{"].iter().any(|prefix| word.starts_with(prefix))
        };
        let words: Vec<_> = hints.heard().into_iter().filter(|word| !pushes_own || !own(word)).collect();
        assert_eq!(words.join(" "), heard);
        server.cli(&["del", "orders/42"]);
        let mut hinted = Vec::new();
        until("the change is pushed", async || {
            hinted.extend(hints.heard());
            !hinted.is_empty()
        })
        .await;
        assert_eq!(hinted, ["orders/42"]);
        let tracked = || {
            let info = server.cli(&["info", "stats"]);
            info.lines().find(|line| line.starts_with("tracking_total_keys")).map(str::to_owned)
        };
        let before = tracked();
        for random in 10..210 {
            let [ours, next] =
                [random, random + 1_000].map(|random| claim(&format!("r/{}", random % 1_000), random));
            let acquire = if random % 2 == 0 { acquire(&ours) } else { contend(&ours) };
            assert_eq!(vote(&node, acquire).await, Vote::Granted);
            assert_eq!(vote(&node, transfer(&ours, &next)).await, Vote::Granted);
            assert_eq!(vote(&node, write_back(&next)).await, Vote::Granted);
            // This changes no counter: the server would go on tracking it.
            let lower = Request::WriteBack { claim: Arc::clone(&next), fencing_token: FencingToken::ZERO };
            assert_ne!(vote(&node, lower).await, Vote::Granted);
            assert_eq!(vote(&node, release(&next)).await, Vote::Granted);
            let restored = claim(&format!("restored/{random}"), random);
            assert_eq!(vote(&node, renew(&restored)).await, Vote::Restored);
            assert_eq!(vote(&node, release(&restored)).await, Vote::Granted);
        }
        assert_eq!(tracked(), before, "the server remembers keys that were granted");
        let ours = claim("held", 7);
        assert_eq!(vote(&node, acquire(&ours)).await, Vote::Granted);
        for random in 300..500 {
            let refused = claim("held", random);
            for request in [acquire(&refused), transfer(&refused, &refused), write_back(&refused)] {
                assert!(matches!(vote(&node, request).await, Vote::Held(_)));
            }
            assert_eq!(vote(&node, renew(&ours)).await, Vote::Granted);
        }
        for number in 0..200 {
            let waiter = WaiterId::new(number);
            assert!(matches!(vote(&node, enqueue_at("held", waiter, LONG)).await, Vote::Queued(_)));
            let leave = Request::LeaveQueue { key: "held".into(), waiter };
            assert_eq!(vote(&node, leave).await, Vote::Granted);
        }
        assert_eq!(vote(&node, release(&ours)).await, Vote::ReleasedContended);
        assert_eq!(tracked(), before, "the server remembers tombstones, marks or places in a queue");
        server.kill();
        server.restart();
        until("its end is noticed", async || ask(&node, release(&claim("another", 9))).await.is_ok()).await;
    }
}

/// A server notifies no client of its own changes, so there are two.
#[tokio::test]
async fn w3_a_release_notifies_only_the_first_waiter() {
    let Some(server) = Server::start(&[]) else { return };
    let (holder, waiters) = (server.node(), server.node());
    let hints = Arc::new(HintLog::default());
    waiters.listen(Arc::clone(&hints) as Arc<dyn HintListener>);
    let names = [1, 2, 3, 4].map(WaiterId::new);
    let turns = names.map(|waiter| turn_key("orders/42", waiter));
    let mut ours = claim("orders/42", 1);
    assert_eq!(vote(&holder, acquire(&ours)).await, Vote::Granted);
    for waiter in names {
        assert!(matches!(vote(&waiters, enqueue(waiter)).await, Vote::Queued(_)));
    }
    hints.heard();
    for (turn, random) in turns.iter().zip(2..) {
        assert_eq!(vote(&holder, release(&ours)).await, Vote::Notified);
        let mut hinted = Vec::new();
        until("the first is notified", async || {
            hinted.extend(hints.heard());
            hinted.contains(turn)
        })
        .await;
        // The first two are notified of each change of the lock as well.
        hinted.retain(|key| key != "orders/42");
        assert_eq!(hinted, std::slice::from_ref(turn), "and no other waiter");
        ours = claim("orders/42", random);
        assert_eq!(vote(&holder, acquire(&ours)).await, Vote::Granted);
    }
    assert!(matches!(vote(&holder, release(&ours)).await, Vote::Granted | Vote::ReleasedContended));
}

/// Otherwise ten thousand killed waiters would be dropped by the one script that meets them first.
#[tokio::test]
async fn w7_a_script_drops_at_most_32_dead_waiters() {
    let Some(server) = Server::start(&[]) else { return };
    let (holder, next) = (server.node(), server.node());
    let mut ours = claim("orders/42", 1);
    assert_eq!(vote(&holder, acquire(&ours)).await, Vote::Granted);
    assert!(matches!(vote(&next, enqueue(WaiterId::new(1))).await, Vote::Queued(_)));
    // Waiters whose keys have expired, ahead of all others.
    let order = format!("{}:order", want_mark("orders/42"));
    for thousand in 0..10 {
        let dead: Vec<String> = (0..1_000).map(|number| format!("{}", thousand * 1_000 + number)).collect();
        let pairs = dead.iter().flat_map(|name| ["1", name.as_str()]);
        server.cli(&["zadd", &order].into_iter().chain(pairs).collect::<Vec<_>>());
    }
    let left = || server.cli(&["zcard", &order]).parse::<u32>().unwrap();
    for random in 2..12 {
        let before = left();
        assert_eq!(vote(&holder, release(&ours)).await, Vote::Notified);
        assert_eq!(before - left(), 32);
        ours = claim("orders/42", random);
        assert_eq!(vote(&holder, acquire(&ours)).await, Vote::Granted);
    }
    assert_eq!(vote(&holder, release(&ours)).await, Vote::Notified);
    // A live waiter asks again, and gets its turn in the end.
    let mut asked = 0;
    while vote(&next, enqueue_at("orders/42", WaiterId::new(1), Duration::ZERO)).await != Vote::Free {
        asked += 1;
        assert!(asked < 10_000 / 32 + 2, "it never gets its turn");
    }
}

#[tokio::test]
async fn scripts_that_a_server_has_lost_are_sent_again() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    for random in 1..4 {
        let ours = claim("orders/42", random);
        assert_eq!(vote(&node, acquire(&ours)).await, Vote::Granted);
        server.cli(&["script", "flush"]);
        assert_eq!(vote(&node, renew(&ours)).await, Vote::Granted);
        server.cli(&["script", "flush"]);
        assert_eq!(vote(&node, release(&ours)).await, Vote::Granted);
        server.cli(&["script", "flush"]);
    }
    let stats = server.cli(&["info", "commandstats"]);
    assert!(stats.contains("cmdstat_evalsha:calls="), "they are called by their hashes: {stats}");
}

#[tokio::test]
async fn a_vote_with_a_lost_script_does_not_follow_its_release() {
    let Some(server) = Server::start(&[]) else { return };
    let node = Arc::new(server.node());
    let ours = claim("orders/42", 1);
    assert_eq!(vote(&node, contend(&ours)).await, Vote::Granted);
    assert_eq!(vote(&node, release(&ours)).await, Vote::Granted);
    server.cli(&["script", "flush"]);
    // Another client has loaded the script of the release again, but not that of the vote.
    server.cli(&["script", "load", super::super::scripts::RELEASE.text()]);
    server.freeze();
    let attempt = Arc::new(Log::default());
    node.ask(contend(&ours).into(), Responder::new(Arc::clone(&attempt) as Arc<dyn Collect>, 0));
    let released = spawn_ask(&node, release(&ours));
    until("both are in flight", async || hangs(&node)).await;
    // The attempt was given up before the release was asked.
    attempt.unwanted.store(true, Ordering::Relaxed);
    server.thaw();
    assert_eq!(released.await.unwrap().unwrap().vote, Vote::Free);
    until("the vote is answered", async || !attempt.answers.lock().unwrap().is_empty()).await;
    assert_eq!(attempt.answers.lock().unwrap().as_slice(), [(0, Err(NodeError::NotAsked))]);
    assert_eq!(vote(&node, inspect()).await, Vote::Free, "nothing is left behind");
}
