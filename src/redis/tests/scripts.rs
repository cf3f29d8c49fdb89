//! Tests of scripts that the contract suite does not reach: they are run once for a connection, or between
//! two replies.

use std::sync::Arc;

use super::server::Server;
use super::{HintLog, LONG, claim, enqueue_at, vote};
use crate::node::{Node, Request, Vote};
use crate::redis::promotion;
use crate::redis::scripts;
use crate::runtime::clock::{Clock, SystemClock};
use quorlock_protocol::{WaiterId, fence_counter};

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

/// A waiter that is told that the lock is free may win by other nodes, and then nothing changes the key here: servers that
/// delete by a command of their own run no script that would end it.
#[tokio::test]
async fn a_waiter_of_a_free_lock_leaves_nothing_tracked() {
    let Some(server) = Server::start(&[]) else { return };
    let node = server.node();
    node.listen(Arc::new(HintLog::default()));
    node.ready().await.unwrap();
    let tracked = || {
        let stats = server.cli(&["info", "stats"]);
        stats
            .lines()
            .find_map(|line| line.strip_prefix("tracking_total_keys:"))
            .map(|keys| keys.trim().to_owned())
    };
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
}
