//! Tests of scripts that the contract suite does not reach: they are run once for a connection, or between
//! two replies.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::server::Server;
use super::{
    HintLog, LONG, acquire, cancel, claim, contend, enqueue_at, plain, release, renew, vote, write_back,
};
use crate::node::{HintListener, Node, Request, Vote, ask};
use crate::redis::error::RIGHTS;
use crate::redis::start::ToNote;
use crate::redis::{RedisNode, promotion, scripts};
use crate::runtime::clock::{Clock, SystemClock};
use quorlock_protocol::{
    Claim, FenceHint, FencingToken, InboxId, NextWaiter, OfferTerms, Token, WaiterId, fence_counter,
    intents_key, readers_key, turn_key, want_mark,
};
use quorlock_testkit::until;

/// The claim of a reader.
fn reader(random: u128) -> Arc<Claim> {
    Arc::new(Claim::clone(&claim("orders/42", random)).shared())
}

/// A claim of several locks.
fn several(first: &str, random: u128, others: &[&str]) -> Arc<Claim> {
    Arc::new(Claim::clone(&claim(first, random)).and(others.iter().copied().map(Arc::from).collect()))
}

/// A clock that was set back causes a note from the future, which would make a fresh master old.
#[tokio::test]
async fn i17_a_note_from_the_future_is_ignored() {
    let Some(server) = Server::start(&[]) else { return };
    let words = promotion::request("the-gate", "abc", "f00");
    let master_since = || server.cli(&words.each_ref().map(String::as_str)).parse::<u64>().unwrap();
    let now = || u64::try_from(SystemClock.wall().as_millis()).unwrap();
    server.cli(&["set", "the-gate", &format!("abc:f00 {}", now() + 3_600_000)]);
    assert_eq!(master_since(), 0);
    let noted: u64 = server.cli(&["get", "the-gate"]).rsplit(' ').next().unwrap().parse().unwrap();
    assert!(noted <= now(), "it is recorded again");
    server.cli(&["set", "the-gate", &format!("abc:f00 {}", now() - 3_600_000)]);
    assert!(master_since() >= 3_600_000, "one from the past counts");
    server.cli(&["set", "the-gate", &format!("abc:f11 {}", now() - 3_600_000)]);
    assert_eq!(master_since(), 0, "of another promotion");
}

/// A client that has met the process, but not seen the loss, may be the last to leave a note.
#[tokio::test]
async fn i51_a_history_begins_no_earlier_than_noted_before() {
    let Some(server) = Server::start(&[]) else { return };
    let now = || u64::try_from(SystemClock.wall().as_millis()).unwrap();
    let leave = |run_id: &str, age, is_anew: bool, ours| {
        let note = ToNote { age: Duration::from_secs(age), set_back: !is_anew, is_anew };
        let words = note.words("the-gate:reign", run_id, Duration::from_secs(ours));
        let mut words: Vec<_> = words.iter().map(String::as_str).collect();
        words.insert(0, "eval");
        let left = server.cli(&words);
        assert_eq!(server.cli(&["get", "the-gate:start"]), left);
        let (began, rest) = left.strip_prefix(&format!("{run_id} ")).unwrap().split_once(' ').unwrap();
        (now() - began.parse::<u64>().unwrap(), rest.to_owned())
    };
    let (age, rest) = leave("abc", 60, true, 1_000);
    assert!((60_000..70_000).contains(&age) && rest == "940000 anew", "{age} {rest}");
    let (age, rest) = leave("abc", 600, false, 5_000);
    assert!((60_000..70_000).contains(&age) && rest == "940000 set-back anew", "{age} {rest}");
    let (age, rest) = leave("abc", 10, true, 5_000);
    assert!((10_000..20_000).contains(&age) && rest == "4990000 anew set-back", "a later loss: {age} {rest}");
    let (age, rest) = leave("abd", 600, false, 5_000);
    assert!((600_000..610_000).contains(&age) && rest == "4400000 set-back", "another process: {age} {rest}");
    server.cli(&["set", "the-gate:start", &format!("abd {} 7 anew", now() + 3_600_000)]);
    let (age, rest) = leave("abd", 0, true, 5_000);
    assert!(age < 10_000 && rest == "5000000 anew", "the clock was set back: {age} {rest}");
}

/// Between the two steps of an acquisition, its key may have expired and be held by another client.
#[tokio::test]
async fn f1_no_number_is_issued_for_a_missing_token() {
    let Some(server) = Server::start(&[]) else { return };
    let (ours, counter) = (claim("orders/42", 1), fence_counter("", "orders/42"));
    let token = str::from_utf8(ours.token().as_bytes()).unwrap();
    let now = SystemClock.wall().as_micros();
    let hint = now.to_string();
    let fence_hint =
        || server.cli(&["eval", scripts::DRAW.text(), "1", "orders/42", token, &counter, &hint, "0"]);
    assert_eq!(fence_hint(), "free");
    server.cli(&["set", "orders/42", "another client", "px", "60000"]);
    assert!(fence_hint().starts_with("held\nanother client\n"), "{}", fence_hint());
    assert_eq!(server.cli(&["exists", &counter]), "0", "no number was issued");
    server.cli(&["set", "orders/42", token, "px", "60000"]);
    assert_eq!(fence_hint(), format!("granted\n{}", now + 1));
}

/// A child would wait for ever for one that another thread of its parent was about to make.
#[test]
fn each_script_is_made_before_a_fork() {
    scripts::make_all();
    let text = include_str!("../scripts.rs");
    let (_, made) = text.split_once("pub fn all()").unwrap();
    let (made, _) = made.split_once("\nimpl Script").unwrap();
    let names: Vec<_> =
        text.split("static ").filter_map(|rest| rest.split_once(": LazyLock<Script>")).collect();
    assert!(names.len() > 30, "{}", names.len());
    for (name, _) in names {
        assert!(made.contains(&format!("&{name},")), "{name} is made at its first use only");
    }
    // Only those of `all` are sent to members.
    let without: Vec<_> = scripts::all().into_iter().filter(|script| !script.is_made_for_members()).collect();
    assert!(without.is_empty(), "made at their first use only: {without:?}");
}

/// A waiter that learns that the lock is free may win by other nodes, and then nothing changes the key here: servers that
/// delete by a command of their own run no script that would end it.
#[tokio::test]
async fn a_waiter_of_a_free_lock_leaves_nothing_tracked() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.hearing().await;
    let tracked = || tracked_by(&server);
    let before = tracked();
    let [first, second] = [1, 2].map(WaiterId::new);
    assert_eq!(vote(&node, enqueue_at("orders/42", first, LONG)).await, Vote::Free);
    assert_eq!(tracked(), before, "it is its turn");
    assert!(matches!(vote(&node, enqueue_at("orders/42", second, LONG)).await, Vote::Queued(_)));
    assert_ne!(tracked(), before, "it waits for a change");
    assert_eq!(
        vote(&node, Request::LeaveQueue { key: "orders/42".into(), waiter: second }).await,
        Vote::Granted
    );
    assert_eq!(tracked(), before, "it waits no longer");
    let [first, second, third] = [(3, 30), (4, 20), (5, 10)].map(|(id, seconds)| waits(id, seconds));
    assert!(matches!(vote(&node, first).await, Vote::Queued(_)));
    let of_first = tracked();
    for waiter in [&second, &third] {
        assert!(matches!(vote(&node, waiter.clone()).await, Vote::Queued(_)));
    }
    assert_eq!(tracked(), of_first + 2, "the turns of the others");
    server.cli(&["set", &format!("{}:told", want_mark("orders/42")), "1", "px", "6000"]);
    assert_eq!(vote(&node, second).await, Vote::Free);
    assert_eq!(tracked(), of_first, "neither its turn nor the lock, but the turn of the third");
}

/// The request of a waiter that has waited for this long.
fn waits(id: u64, seconds: u64) -> Request {
    Request::enqueue("orders/42".into(), WaiterId::new(id), Duration::from_secs(seconds), LONG, LONG)
}

#[tokio::test]
async fn w5_a_lock_is_reserved_for_one_turn_and_twice_as_long_for_those_ahead() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    let [first, second, third] = [(1, 30), (2, 20), (3, 10)];
    let ask = async |(id, seconds)| vote(&node, waits(id, seconds)).await;
    let holder = claim("orders/42", 1);
    assert_eq!(vote(&node, acquire(&holder)).await, Vote::Granted);
    for (waiter, ahead) in [first, second, third].into_iter().zip(0..) {
        let Vote::Queued(queued) = ask(waiter).await else { panic!("it is held") };
        assert_eq!(
            (queued.ahead, queued.holding.is_some()),
            (ahead, ahead < 2),
            "the first two learn the holder"
        );
    }
    let turn = format!("{}:told", want_mark("orders/42"));
    let notified = |seconds: u64| {
        let then = (clock_of(&server) / 1000 - seconds * 1000).to_string();
        server.cli(&["set", &turn, &then, "px", "6000"]);
        then
    };
    notified(150);
    server.cli(&["set", "orders/42", "x", "px", "60000"]);
    assert!(matches!(ask(third).await, Vote::Queued(_)), "another program holds it");
    server.cli(&["del", "orders/42"]);
    for (waiter, seconds, is_free) in
        [(third, 90, false), (second, 90, false), (first, 30, false), (first, 90, true), (third, 150, true)]
    {
        let then = notified(seconds);
        let vote = ask(waiter).await;
        assert_eq!(vote == Vote::Free, is_free, "{waiter:?} {seconds} s after the last turn began: {vote:?}");
        assert_eq!(server.cli(&["get", &turn]) != then, is_free, "a new turn");
        let left = server.left(&turn);
        assert!((1..=6_000).contains(&left), "{left}");
    }
}

/// Its connection may be the one that has released the lock, which is not notified of its own changes.
#[tokio::test]
async fn w5_a_waiter_that_was_notified_of_its_turn_has_it_when_it_asks_but_once() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    let [first, second] = [(1, 30), (2, 20)];
    let ask = async |(id, seconds)| vote(&node, waits(id, seconds)).await;
    let holder = claim("orders/42", 1);
    assert_eq!(vote(&node, acquire(&holder)).await, Vote::Granted);
    for waiter in [first, second] {
        assert!(matches!(ask(waiter).await, Vote::Queued(_)));
    }
    assert_eq!(vote(&node, release(&holder)).await, Vote::Notified);
    assert!(matches!(ask(second).await, Vote::Queued(_)), "it is the turn of the first");
    let turn = format!("{}:told", want_mark("orders/42"));
    let before = server.cli(&["get", &turn]);
    assert_eq!(ask(first).await, Vote::Free);
    let after = server.cli(&["get", &turn]);
    assert!(
        !after.is_empty() && before.starts_with(&format!("{after} ")),
        "the turn goes on: {before}, {after}"
    );
    assert!(matches!(ask(first).await, Vote::Queued(_)));
}

#[tokio::test]
async fn o9_that_another_program_was_seen_is_forgotten() {
    let Some(server) = Server::start(&[]) else { return };
    let mut request = enqueue_at("orders/42", WaiterId::new(1), LONG);
    let Request::Enqueue { others_seen, .. } = &mut request else { unreachable!() };
    *others_seen = true;
    vote(&server.node(), request).await;
    let seen = format!("{}:others", want_mark("orders/42"));
    assert!(server.left(&seen) > 0, "it would stay forever");
}

/// Returns how many keys the server tracks for clients.
fn tracked_by(server: &Server) -> u32 {
    let stats = server.cli(&["info", "stats"]);
    let keys = stats.lines().find_map(|line| line.strip_prefix("tracking_total_keys:"));
    keys.map_or(0, |keys| keys.trim().parse().unwrap())
}

/// A missing key that a request has read may never change, and would be tracked forever.
#[tokio::test]
async fn a_request_for_a_missing_lock_leaves_nothing_tracked() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.hearing().await;
    let before = tracked_by(&server);
    let shared = Arc::new(Claim::clone(&claim("shared", 2)).shared());
    let several = several("{a}1", 3, &["{a}2", "{a}3"]);
    for ours in [claim("orders/42", 1), shared, several] {
        // After the cancellation a renewal stores nothing.
        for request in [release(&ours), write_back(&ours), cancel(&ours), renew(&ours)] {
            assert_eq!(vote(&node, request.clone()).await, Vote::Free, "{request:?}");
            assert_eq!(tracked_by(&server), before, "{request:?}");
        }
        let left = server.left(&ours.tombstone());
        assert!(left > 0, "its tombstone would stay forever: {left}");
    }
    assert!(matches!(vote(&node, Request::ReadLog { key: "orders/42".into() }).await, Vote::Log(_)));
    assert_eq!(tracked_by(&server), before, "there is no log");
    let (key, waiter) = (Arc::from("shared"), WaiterId::new(1));
    let announced = Request::AnnounceWriter { key: Arc::clone(&key), waiter, patience: LONG };
    assert_eq!(vote(&node, announced).await, Vote::Granted);
    assert_eq!(vote(&node, Request::WithdrawWriter { key, waiter }).await, Vote::Granted);
    assert_eq!(tracked_by(&server), before, "no reader is to be notified");
}

/// The refusal gives none of the locks, so that no release follows.
#[tokio::test]
async fn a_refused_claim_of_several_leaves_only_the_lock_that_is_held_tracked() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.hearing().await;
    assert_eq!(vote(&server.node(), acquire(&claim("{a}9", 1))).await, Vote::Granted);
    let before = tracked_by(&server);
    for first in ["{a}1", "{a}2", "{a}3"] {
        let ours = several(first, 2, &["{a}9", "{a}99"]);
        for request in [acquire(&ours), renew(&ours)] {
            assert!(matches!(vote(&node, request.clone()).await, Vote::Held(_)), "{request:?}");
            assert_eq!(tracked_by(&server), before + 1, "{request:?}");
        }
    }
}

/// Observers of the process would learn of the next holder by chance. Before Redis 7.2 that is the price of the test above.
#[tokio::test]
async fn a_refused_claim_of_several_ends_no_tracking_of_the_others_and_writes_nothing_to_them() {
    let Some(server) = Server::start(&[]) else { return };
    let version = server.cli(&["eval", "return redis.REDIS_VERSION_NUM or 0", "0"]).parse::<u32>().unwrap();
    if version < 0x70200 {
        return println!("skipped: before Redis 7.2 each read tracks all keys of a script");
    }
    let node = server.hearing().await;
    assert_eq!(vote(&server.node(), acquire(&claim("{a}9", 1))).await, Vote::Granted);
    for key in ["{a}1", "{a}9", "{a}99"] {
        vote(&node, Request::inspect(key)).await;
    }
    let before = tracked_by(&server);
    let changes = || {
        let stats = server.cli(&["info", "persistence"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        line.unwrap().trim().parse::<u32>().unwrap()
    };
    let ours = several("{a}1", 2, &["{a}9", "{a}99"]);
    for (request, writes) in [(acquire(&ours), 1), (renew(&ours), 0)] {
        let written = changes();
        assert!(matches!(vote(&node, request.clone()).await, Vote::Held(_)), "{request:?}");
        assert_eq!(tracked_by(&server), before, "{request:?}");
        assert!(changes() <= written + writes, "only the mark of the lock that is held: {request:?}");
    }
}

/// Otherwise no hold would be logged for as long as the clock was ahead.
#[tokio::test]
async fn a_log_goes_on_after_the_clock_of_the_server_was_set_back() {
    let Some(server) = Server::start(&[]) else { return };
    let ahead = (clock_of(&server) + 3_600_000_000).to_string();
    for entry in ["1", "2"] {
        server.cli(&["zadd", "the-log", &ahead, entry]);
    }
    for entry in ["3", "4"] {
        let logged =
            server.cli(&["eval", scripts::LOG_HOLD.text(), "1", "r", "the-log", entry, "2", "60000"]);
        assert_eq!(logged, "granted");
    }
    assert_eq!(server.cli(&["zrange", "the-log", "0", "-1"]), "3\n4");
}

/// As [`a_log_goes_on_after_the_clock_of_the_server_was_set_back`].
#[tokio::test]
async fn a_list_of_nodes_is_recorded_after_the_clock_of_the_server_was_set_back() {
    let Some(server) = Server::start(&[]) else { return };
    let ahead = (clock_of(&server) / 1000 + 3_600_000).to_string();
    for list in 0..16 {
        server.cli(&["zadd", "lists", &ahead, &format!("a{list}")]);
    }
    let lists = server.cli(&["eval", scripts::NODE_LISTS.text(), "1", "lists", "ours", "60000"]);
    assert_eq!(lists.split('\n').collect::<Vec<_>>(), ["ours", "0"]);
}

/// A release by one command, which deletes the lock if it is ours, ends the turn as one by a script does.
#[tokio::test]
async fn without_a_waiter_no_turn_is_reserved_after_any_release() {
    let Some(server) = Server::start(&[]) else { return };
    let mark = want_mark("orders/42");
    let turn = format!("{mark}:told");
    let notify = || server.cli(&["eval", scripts::LEAVE_QUEUE.text(), "2", "orders/42", &mark, "", &mark]);
    server.cli(&["set", &turn, "1", "px", "60000"]);
    server.cli(&["set", "orders/42", "x", "px", "60000"]);
    assert_eq!((notify(), server.cli(&["exists", &turn])), ("free".into(), "1".into()), "it is held again");
    server.cli(&["del", "orders/42"]);
    let leave = [
        "eval",
        scripts::LEAVE_QUEUE.text(),
        "2",
        "orders/42",
        &turn_key("orders/42", WaiterId::new(1)),
        "1",
        &mark,
    ];
    assert_eq!(
        (server.cli(&leave), server.cli(&["exists", &turn])),
        ("free".into(), "1".into()),
        "it was no release"
    );
    assert_eq!((notify(), server.cli(&["exists", &turn])), ("free".into(), "0".into()));
}

/// The clock of the server, in microseconds.
fn clock_of(server: &Server) -> u64 {
    let time = server.cli(&["time"]);
    let (seconds, micros) = time.split_once('\n').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
}

#[tokio::test]
async fn f7_a_hint_within_the_lead_counts_and_the_clock_of_the_server_takes_the_place_of_another() {
    let Some(server) = Server::start(&[]) else { return };
    let (ours, counter) = (claim("orders/42", 1), fence_counter("", "orders/42"));
    let token = str::from_utf8(ours.token().as_bytes()).unwrap();
    server.cli(&["set", "orders/42", token, "px", "60000"]);
    let draw = |hint: u64, lead: &str| {
        let hint = hint.to_string();
        let output =
            server.cli(&["eval", scripts::DRAW.text(), "1", "orders/42", token, &counter, &hint, lead]);
        output.strip_prefix("granted\n").unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(draw(0, "0"), 1, "the first number");
    let hint = clock_of(&server) + 30_000_000;
    assert_eq!(draw(hint, "60000000"), hint + 1);
    server.cli(&["del", &counter]);
    let before = clock_of(&server);
    let drawn = draw(before + 120_000_000, "60000000");
    assert!(before < drawn && drawn <= clock_of(&server) + 1, "{before}, {drawn}");
}

/// Otherwise an inspection would return what other locks of the slot have raised the counter to since.
#[tokio::test]
async fn a_number_is_noted_unless_its_token_has_it_and_the_last_notes_are_kept() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    let noted = || server.cli(&["zcard", &fence_counter("", "{a}0")]);
    let fence_hint = FenceHint::at(SystemClock.wall(), Some(FencingToken::ZERO), LONG);
    let usual = Claim::new("{a}0".into(), Token::numbered(1, fence_hint.usual(), "tests:1"));
    let request = Request::Acquire { claim: usual.into(), ttl: LONG, fence_hint: Some(fence_hint) };
    assert_eq!(ask(&node, request).await.unwrap().fencing_token, Some(fence_hint.usual()));
    assert_eq!(noted(), "1", "nothing but the counter");
    let mut drawn = Vec::new();
    for random in 2..22_u8 {
        let token = Token::numbered(random.into(), FencingToken::new(1).unwrap(), "tests:1");
        let ours = Arc::new(Claim::new(format!("{{a}}{random}").into(), token));
        let answer = ask(&node, contend(&ours)).await.unwrap();
        drawn.push((ours.key().to_owned(), answer.fencing_token));
    }
    assert_eq!(noted(), "8");
    for (key, number) in &drawn[drawn.len() - 7..] {
        assert_eq!(ask(&node, Request::inspect(key.as_str())).await.unwrap().fencing_token, *number, "{key}");
    }
}

#[tokio::test]
async fn f4_a_write_back_of_an_expired_share_or_by_no_reader_changes_nothing() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    let [mine, theirs] = [1, 2].map(reader);
    assert_eq!(vote(&node, acquire(&theirs)).await, Vote::Granted);
    let (ttl, fence_hint) = (Duration::from_millis(50), None);
    let request = Request::Acquire { claim: Arc::clone(&mine), ttl, fence_hint };
    assert_eq!(vote(&node, request).await, Vote::Granted);
    until("the share has expired", async || vote(&node, write_back(&mine)).await == Vote::Free).await;
    let refused = async |ours| {
        let answer = ask(&node, write_back(ours)).await.unwrap();
        let Vote::Held(holding) = answer.vote else { panic!("{:?}", answer.vote) };
        assert_eq!((answer.fencing_token, holding.depth), (None, None));
        holding.token
    };
    let stranger = claim("orders/42", 3);
    assert!(refused(&stranger).await.is_marker());
    assert_eq!(vote(&node, release(&theirs)).await, Vote::Granted);
    let writer = claim("orders/42", 4);
    assert_eq!(vote(&node, acquire(&writer)).await, Vote::Granted);
    assert_eq!(refused(&mine).await, *writer.token());
}

#[tokio::test]
async fn a_transfer_asked_again_prolongs_and_says_if_the_lock_was_free() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    let asked = async |from: u128, to: u128, ttl| {
        let [from, to] = [from, to].map(|random| claim("orders/42", random));
        ask(&node, Request::Transfer { from, to, ttl, fence_hint: None }).await.unwrap()
    };
    let answer = asked(1, 2, LONG / 10).await;
    assert_eq!((answer.vote, answer.fencing_token), (Vote::Restored, None));
    let answer = asked(1, 2, LONG).await;
    assert_eq!((answer.vote, answer.fencing_token), (Vote::Granted, None));
    let left = server.left("orders/42");
    assert!(left > 30_000, "{left}");
    let answer = asked(3, 4, LONG).await;
    assert!(matches!(answer.vote, Vote::Held(_)) && answer.fencing_token.is_none(), "{answer:?}");
}

const INBOX: InboxId = InboxId::new(7);

/// A client that listens on the inbox, of a server that can prove its messages.
struct Ear {
    listening: Child,
    heard: BufReader<ChildStdout>,
}

impl Ear {
    async fn open(server: &Server) -> Ear {
        server.cli(&["set", &InboxId::secret_key(""), "a secret"]);
        let (port, channel) = (server.port.to_string(), INBOX.channel(""));
        let mut listening = Command::new("redis-cli");
        listening.args(["-p", &port, "subscribe", &channel]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut listening = listening.spawn().unwrap();
        let heard = BufReader::new(listening.stdout.take().unwrap());
        let ear = Ear { listening, heard };
        let listens = async || server.cli(&["pubsub", "numsub", &channel]).ends_with('1');
        until("it listens", listens).await;
        ear
    }

    /// Returns the lines that it has heard since the last call.
    fn heard(&mut self, server: &Server) -> Vec<String> {
        server.cli(&["publish", &INBOX.channel(""), "the end"]);
        let lines = (&mut self.heard).lines().map(Result::unwrap);
        lines.take_while(|line| line != "the end").collect()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        drop(self.listening.kill());
        drop(self.listening.wait());
    }
}

fn terms(token: &Token) -> Arc<OfferTerms> {
    let (life, token) = (Duration::from_secs(3_000), token.clone());
    Arc::new(OfferTerms { inbox: INBOX, prefix_len: 0, life, fenced: false, token })
}

/// The same for one that accepts an offer.
fn waits_for_offer(id: u64, seconds: u64) -> Request {
    let mut request = waits(id, seconds);
    let Request::Enqueue { terms: accepted, .. } = &mut request else { unreachable!() };
    *accepted = Some(terms(&Token::new(id.into(), "tests:1")));
    request
}

/// Who is next is found by taking out the first two.
#[tokio::test]
async fn w3_saying_who_is_next_leaves_the_queue_as_it_is() {
    let Some(server) = Server::start(&[]) else { return };
    let (node, _ear) = (server.node(), Ear::open(&server).await);
    let order = format!("{}:order", want_mark("orders/42"));
    let mut random = 100;
    assert_eq!(vote(&node, acquire(&claim("orders/42", random))).await, Vote::Granted);
    let mut is_left = async |waiters: &[u64]| {
        assert_eq!(vote(&node, release(&claim("orders/42", random))).await, Vote::Notified);
        let names: Vec<_> = waiters.iter().map(|id| WaiterId::new(*id).to_string()).collect();
        assert_eq!(server.cli(&["zrange", &order, "0", "-1"]), names.join("\n"));
        for key in [&order, &format!("{}:told", want_mark("orders/42")), &want_mark("orders/42")] {
            let left = server.left(key);
            assert!((1..=6_000).contains(&left), "{key}: {left}");
        }
        random += 1;
        assert_eq!(vote(&node, acquire(&claim("orders/42", random))).await, Vote::Granted);
    };
    for request in [waits_for_offer(1, 40), waits_for_offer(2, 30), waits(3, 20), waits_for_offer(4, 10)] {
        assert!(matches!(vote(&node, request).await, Vote::Queued(_)));
    }
    is_left(&[2, 3, 4]).await;
    // A message that cannot be proved is not sent.
    server.cli(&["del", &InboxId::secret_key("")]);
    is_left(&[3, 4]).await;
    is_left(&[4]).await;
    assert!(matches!(vote(&node, waits(5, 5)).await, Vote::Queued(_)));
    is_left(&[5]).await;
}

/// An offer counts from its waiter's last request, and would expire soon.
#[tokio::test]
async fn the_second_is_asked_to_ask_again_after_an_eighth_of_the_life_of_an_offer() {
    let Some(server) = Server::start(&[]) else { return };
    let (node, mut ear) = (server.node(), Ear::open(&server).await);
    for (random, seconds, warned) in [(100, 350, false), (101, 400, true)] {
        let holder = claim("orders/42", random);
        assert_eq!(vote(&node, acquire(&holder)).await, Vote::Granted);
        for request in [waits_for_offer(1, 30), waits_for_offer(2, 20), waits_for_offer(3, 10)] {
            assert!(matches!(vote(&node, request).await, Vote::Queued(_)));
        }
        let turn = turn_key("orders/42", WaiterId::new(3));
        let entry = server.cli(&["get", &turn]);
        let (_, entry) = entry.split_once(' ').unwrap();
        let asked = clock_of(&server) / 1000 - seconds * 1000;
        server.cli(&["set", &turn, &format!("{asked} {entry}"), "px", "60000"]);
        ear.heard(&server);
        assert_eq!(vote(&node, release(&holder)).await, Vote::Notified);
        let heard = ear.heard(&server);
        let is_warning = |line: &String| line.ends_with(" s 00000000000000000000000000000003");
        assert_eq!(heard.iter().any(is_warning), warned, "{seconds} s: {heard:?}");
    }
}

#[tokio::test]
async fn o1_an_offer_that_cannot_be_heard_or_was_withdrawn_is_a_release() {
    let Some(server) = Server::start(&[]) else { return };
    let (node, _ear) = (server.node(), Ear::open(&server).await);
    let rights = RIGHTS.split(' ').chain(["resetchannels"]);
    server.cli(&["acl", "setuser", "anna", "on", ">pw", "~*"].into_iter().chain(rights).collect::<Vec<_>>());
    let mute = server.node_of("anna:pw@");
    let offered = async |to: &RedisNode, random| {
        let (holder, next) = (claim("orders/42", random), claim("orders/42", random + 1));
        assert_eq!(vote(&node, acquire(&holder)).await, Vote::Granted);
        let next = NextWaiter { waiter: WaiterId::new(1), terms: OfferTerms::clone(&terms(next.token())) };
        let request = Request::Offer { claim: holder, next: next.into(), queued: true, fence_hint: None };
        (vote(to, request).await, server.cli(&["exists", "orders/42"]))
    };
    let a_release = (Vote::Granted, "0".to_owned());
    assert_eq!(offered(&mute, 1).await, a_release, "it may not publish there");
    assert_eq!(vote(&node, cancel(&claim("orders/42", 12))).await, Vote::Free);
    assert_eq!(offered(&node, 11).await, a_release, "the next token was withdrawn");
    assert_eq!(vote(&node, acquire(&claim("orders/42", 21))).await, Vote::Granted);
    assert!(matches!(vote(&node, waits_for_offer(1, 10)).await, Vote::Queued(_)));
    assert_eq!(offered(&node, 21).await, (Vote::Notified, "1".to_owned()));
    assert_eq!(server.cli(&["exists", &turn_key("orders/42", WaiterId::new(1))]), "0");
    assert_eq!(vote(&node, release(&claim("orders/42", 22))).await, Vote::ReleasedContended);
    server.cli(&["del", &InboxId::secret_key(""), &want_mark("orders/42")]);
    assert_eq!(offered(&node, 31).await, a_release, "its message would prove nothing");
}

#[tokio::test]
async fn a_lock_is_released_also_where_its_mark_may_not_be_accessed() {
    let Some(server) = Server::start(&[]) else { return };
    let ours = claim("orders/42", 1);
    let token = str::from_utf8(ours.token().as_bytes()).unwrap();
    server.cli(&["acl", "setuser", "anna", "on", ">pw", "+@all", "~orders/42"]);
    server.cli(&["set", "orders/42", token, "px", "60000"]);
    let login = ["--user", "anna", "--pass", "pw", "--no-auth-warning"];
    let call = ["eval", scripts::RELEASE.text(), "1", "orders/42", token, &want_mark("orders/42")];
    assert_eq!(server.cli(&[&login[..], &call].concat()), "granted");
    assert_eq!(server.cli(&["exists", "orders/42"]), "0");
}

#[tokio::test]
async fn a_lock_without_a_number_is_taken_once_and_not_after_its_cancellation() {
    let Some(server) = Server::start(&[]) else { return };
    let [ours, theirs] = [1, 2].map(|random| claim("orders/42", random));
    let take = |ours: &Claim| {
        let token = str::from_utf8(ours.token().as_bytes()).unwrap();
        server.cli(&["eval", scripts::TAKE.text(), "1", "orders/42", token, "60000", &ours.tombstone()])
    };
    assert_eq!(take(&ours), "granted");
    let left = server.left("orders/42");
    assert!((30_000..=60_000).contains(&left), "{left}");
    assert!(take(&theirs).starts_with("held\n00000000000000000000000000000001"), "{}", take(&theirs));
    server.cli(&["del", "orders/42"]);
    server.cli(&["set", &ours.tombstone(), "1"]);
    assert_eq!(take(&ours), "free");
    assert_eq!(server.cli(&["exists", "orders/42"]), "0");
}

#[tokio::test]
async fn a_refused_reader_learns_the_number_and_leaves_its_mark_for_some_seconds() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    let drawn = ask(&node, contend(&claim("orders/42", 1))).await.unwrap().fencing_token;
    let reader = reader(2);
    for (request, number) in [(acquire(&reader), drawn), (plain(&reader), None)] {
        let answer = ask(&node, request).await.unwrap();
        assert!(matches!(answer.vote, Vote::Held(_)), "{answer:?}");
        assert_eq!(answer.fencing_token, number);
        let left = server.left(&want_mark("orders/42"));
        assert!((1_000..=6_000).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn a_write_back_of_several_changes_no_lock_of_another() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    let several = several("{a}1", 1, &["{a}2"]);
    server.cli(&["set", "{a}2", "x", "px", "60000"]);
    assert_eq!(vote(&node, write_back(&several)).await, Vote::Free);
    assert_eq!(server.cli(&["get", "{a}2"]), "x");
}

#[tokio::test]
async fn s2_a_share_ends_at_its_own_time_by_the_servers_clock() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    let [mine, theirs] = [1, 2].map(reader);
    let readers = readers_key("orders/42");
    let token = str::from_utf8(mine.token().as_bytes()).unwrap();
    let ends = || server.cli(&["zscore", &readers, token]).parse::<u64>().unwrap();
    let ttl = u64::try_from(LONG.as_millis()).unwrap();
    assert_eq!(vote(&node, acquire(&theirs)).await, Vote::Granted);
    // The second time, its earlier share has expired.
    for _ in 0..2 {
        let before = clock_of(&server) / 1000;
        let answer = ask(&node, plain(&mine)).await.unwrap();
        assert_eq!((answer.vote, answer.fencing_token), (Vote::Granted, None));
        let (ends, after) = (ends(), clock_of(&server) / 1000);
        assert!((before + ttl..=after + ttl).contains(&ends), "{before}, {ends}, {after}");
        assert!(server.left(&readers) > 0, "it would stay forever");
        server.cli(&["zadd", &readers, "2", token]);
    }
    assert_eq!(vote(&node, renew(&mine)).await, Vote::Restored);
    assert_eq!(vote(&node, release(&mine)).await, Vote::Granted);
    assert!(server.left(&readers) > 0, "it would stay forever");
    // The last whose share has not expired frees the lock.
    assert_eq!(vote(&node, acquire(&mine)).await, Vote::Granted);
    let theirs = str::from_utf8(theirs.token().as_bytes()).unwrap();
    server.cli(&["zadd", &readers, "2", theirs]);
    assert!(matches!(vote(&node, waits(1, 10)).await, Vote::Queued(_)));
    assert_eq!(vote(&node, release(&mine)).await, Vote::Notified);
}

#[tokio::test]
async fn s5_a_reader_behind_a_writer_learns_the_number_and_does_not_end_the_intent() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    let [first, refused] = [1, 2].map(reader);
    let drawn = ask(&node, acquire(&first)).await.unwrap().fencing_token;
    let (key, waiter) = (Arc::from("orders/42"), WaiterId::new(1));
    let announced = Request::AnnounceWriter { key, waiter, patience: LONG };
    assert_eq!(vote(&node, announced).await, Vote::Granted);
    let left = || server.left(&intents_key("orders/42"));
    assert!((30_000..=60_000).contains(&left()), "{}", left());
    for (request, number) in [(acquire(&refused), drawn), (plain(&refused), None)] {
        let answer = ask(&node, request).await.unwrap();
        assert_eq!((answer.vote, answer.fencing_token), (Vote::NotYourTurn, number));
        assert!((30_000..=60_000).contains(&left()), "{}", left());
    }
    let (hearing, hints) = (server.node(), Arc::new(HintLog::default()));
    hearing.listen(Arc::clone(&hints) as Arc<dyn HintListener>);
    assert_eq!(vote(&hearing, plain(&refused)).await, Vote::NotYourTurn);
    hints.heard();
    assert_eq!(vote(&node, Request::WithdrawWriter { key: "orders/42".into(), waiter }).await, Vote::Granted);
    until("it is notified", async || hints.heard().contains(&"orders/42".to_owned())).await;
}

#[tokio::test]
async fn a_reader_that_cannot_be_stored_leaves_no_marker() {
    let Some(server) = Server::start(&[]) else { return };
    server.cli(&["acl", "setuser", "anna", "on", ">pw", "+@all", "-pexpireat", "~*", "&*"]);
    let error = ask(&server.node_of("anna:pw@"), acquire(&reader(1))).await.unwrap_err();
    assert!(error.is_permanent(), "{error}");
    assert_eq!(server.cli(&["exists", "orders/42"]), "0");
}

#[tokio::test]
async fn a_refused_claim_of_several_learns_the_number_and_leaves_its_mark_for_some_seconds() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    let [holder, other] = [1, 2].map(|random| several("{a}1", random, &["{a}2"]));
    let answer = ask(&node, plain(&holder)).await.unwrap();
    assert_eq!((answer.vote, answer.fencing_token), (Vote::Granted, None));
    let drawn = ask(&node, acquire(&holder)).await.unwrap().fencing_token;
    assert!(drawn.is_some());
    for (request, number) in [(acquire(&other), drawn), (plain(&other), None)] {
        let answer = ask(&node, request).await.unwrap();
        assert!(matches!(answer.vote, Vote::Held(_)), "{answer:?}");
        assert_eq!(answer.fencing_token, number);
        let left = server.left(&want_mark("{a}1"));
        assert!((1_000..=6_000).contains(&left), "{left}");
    }
    server.cli(&["del", "{a}1", "{a}2"]);
    let request = Request::Renew { claim: Arc::clone(&holder), ttl: LONG, fencing_token: None };
    assert_eq!(vote(&node, request).await, Vote::Restored);
    server.cli(&["del", "{a}1"]);
    assert_eq!(vote(&node, renew(&holder)).await, Vote::Restored);
    assert_eq!(server.cli(&["keys", "[0-9]*"]), "", "nothing is named like another argument");
}

/// A client that is refused several is not in a queue: the locks are released openly for it.
#[tokio::test]
async fn a_release_of_several_says_the_most_that_it_has_found() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    let [notified, wanted] = ["{a}1", "{a}2"];
    for (second, expected) in [(wanted, Vote::ReleasedContended), ("{a}3", Vote::Notified)] {
        for [first, last] in [[notified, second], [second, notified]] {
            let holder = several(first, 1, &[last]);
            assert_eq!(vote(&node, acquire(&holder)).await, Vote::Granted);
            let waiter = enqueue_at(notified, WaiterId::new(1), LONG);
            assert!(matches!(vote(&node, waiter).await, Vote::Queued(_)));
            if second == wanted {
                server.cli(&["set", &want_mark(wanted), "1", "px", "60000"]);
            }
            assert_eq!(vote(&node, release(&holder)).await, expected, "{first}, {last}");
        }
    }
}
