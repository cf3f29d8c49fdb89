//! Servers that crash, hang or keep rows locked; cut connections; several clients.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use mysql_async::prelude::Queryable as _;
use quorlock::protocol::{Claim, FencingToken};
use quorlock::{
    Coordinator, RestartGuard,
    node::{Node, NodeErrorKind, Request, Response, Seams, Vote, ask},
};
use quorlock_mysql::{MysqlKind, MysqlNode};
use quorlock_testkit::{Proxy, until};

use crate::reconnects::pause_longer_each_time;
use crate::requests::{acquire, acquisition, cancel, claim, inspect, is_held_by, release};
use crate::server::Server;

pub(crate) fn node(server: &Server) -> MysqlNode {
    MysqlNode::new(&server.url(), &Seams::default()).unwrap()
}

/// Asks until there is an answer: a busy machine may not give the first in time.
async fn answered(node: &dyn Node, request: Request) -> Response {
    let mut answer = None;
    let asked = async || {
        answer = ask(node, request.clone()).await.ok();
        answer.is_some()
    };
    until("an answer", asked).await;
    answer.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_clients_gets_a_key_and_numbers_grow() {
    let Some(server) = Server::start(&[]).await else { return };
    let nodes: Vec<_> = (0..6).map(|_| node(&server)).collect();
    let mut last = FencingToken::ZERO;
    for round in 0..50 {
        let claims: Vec<_> = nodes.iter().map(|_| claim("orders/1")).collect();
        let asked = nodes.iter().zip(&claims).map(|(node, claim)| answered(node, acquisition(claim)));
        let answers = join_all(asked).await;
        let granted: Vec<_> = (0..6).filter(|place| answers[*place].vote == Vote::Granted).collect();
        assert_eq!(granted.len(), 1, "round {round}: {answers:?}");
        let number = answers[granted[0]].fencing_token.unwrap();
        assert!(number > last, "{number} was drawn after {last}");
        last = number;
        assert_ne!(release(&nodes[granted[0]], &claims[granted[0]]).await, Vote::Free);
    }
}

/// Requests for several keys in any order, from several clients at the same time: each claim gets all or
/// nothing.
#[tokio::test(flavor = "multi_thread")]
async fn no_two_overlapping_sets_of_keys_are_held_together() {
    let Some(server) = Server::start(&[]).await else { return };
    let nodes: Vec<_> = (0..4).map(|_| node(&server)).collect();
    for round in 0..25 {
        let set = |first: usize| -> Arc<Claim> {
            let keys = ["a", "b", "c", "d"].map(|key| format!("{round}/{key}"));
            let beside: Arc<[Arc<str>]> = Arc::new([keys[(first + 1) % 4].as_str().into()]);
            Arc::new(Claim::clone(&claim(&keys[first])).and(beside))
        };
        let claims: Vec<_> = (0..4).map(set).collect();
        let asked = nodes.iter().zip(&claims).map(|(node, claim)| answered(node, acquisition(claim)));
        let votes: Vec<_> = join_all(asked).await.into_iter().map(|answer| answer.vote).collect();
        let held = |place: usize| votes[place % 4] == Vote::Granted;
        assert!((0..4).any(held), "round {round}: {votes:?}");
        for place in 0..4 {
            assert!(!(held(place) && held(place + 1)), "round {round}: {votes:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_survive_a_kill_of_the_server() {
    let Some(server) = Server::start(&[]).await else { return };
    let node = node(&server);
    let (holder, cancelled, other) = (claim("a"), claim("b"), claim("a"));
    let first = acquire(&node, &holder).await.unwrap();
    cancel(&node, &cancelled).await.unwrap();
    server.kill();
    let down = acquire(&node, &other).await.unwrap_err();
    assert_eq!(down.kind(), NodeErrorKind::Unreachable, "{down:#}");
    server.restart_with_data().await.unwrap();
    until("the node answers again", async || acquire(&node, &claim("c")).await.is_ok()).await;
    let refused = acquire(&node, &other).await.unwrap();
    assert!(is_held_by(&refused, &holder), "{refused:?}");
    assert_eq!(refused.fencing_token, first.fencing_token);
    assert_eq!(refused.identity.id, first.identity.id, "a server that lost nothing continues its history");
    assert_eq!(acquire(&node, &cancelled).await.unwrap().vote, Vote::Free);
}

/// A request whose client is gone is executed by the server, and then undone by a cancellation.
#[tokio::test(flavor = "multi_thread")]
async fn late_writes_of_a_cut_connection_are_undone() {
    let Some(server) = Server::start(&[]).await else { return };
    let direct = node(&server);
    let proxy = Proxy::start(server.address()).await.unwrap();
    let through = server.url().replace(&server.port().to_string(), &proxy.address().port().to_string());
    let cut = MysqlNode::new(&through, &Seams::default()).unwrap();
    // The row exists, and another transaction keeps it locked.
    let (before, late) = (claim("a"), claim("a"));
    acquire(&direct, &before).await.unwrap();
    release(&direct, &before).await;
    cut.ready().await.unwrap();
    let mut other = server.other().await;
    other.query_drop("BEGIN").await.unwrap();
    other.query_drop("SELECT * FROM quorlock_locks WHERE name = 'a' FOR UPDATE").await.unwrap();
    let ask = || {
        let (cut, late) = (cut.clone(), Arc::clone(&late));
        tokio::spawn(async move { acquire(&cut, &late).await })
    };
    let mut asked = ask();
    until("the statement waits for the row", async || {
        // On a busy machine it may have given up before anyone looked.
        if asked.is_finished() {
            asked = ask();
        }
        // INNODB_TRX is a cached copy that is not refreshed if it is read more often than every 0.1 s.
        let waits =
            "SELECT 1 FROM information_schema.PROCESSLIST WHERE user = 'locks' AND info LIKE 'UPDATE%'";
        !server.sql(waits).await.is_empty()
    })
    .await;
    proxy.cut();
    let error = asked.await.unwrap().unwrap_err();
    assert!(error.may_have_acted(), "{error:#}");
    let taken_back = cancel(&direct, &late);
    other.query_drop("COMMIT").await.unwrap();
    taken_back.await.unwrap();
    assert_eq!(inspect(&direct, "a").await.unwrap().vote, Vote::Free);
    until("the node connects again", async || cut.ready().await.is_ok()).await;
    assert_eq!(acquire(&cut, &late).await.unwrap().vote, Vote::Free, "there is a tombstone");
}

/// A decision from before a cancellation cannot be written after it: the row has another nonce.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_invalidates_every_earlier_read_of_the_row() {
    let Some(server) = Server::start(&[]).await else { return };
    let node = node(&server);
    let late = claim("a");
    let nonce = "SELECT nonce FROM locks.quorlock_locks WHERE name = 'a'";
    acquire(&node, &claim("a")).await.unwrap();
    let before: u64 = mysql_async::from_row(server.sql(nonce).await.remove(0));
    cancel(&node, &late).await.unwrap();
    let after: u64 = mysql_async::from_row(server.sql(nonce).await.remove(0));
    assert_ne!(before, after);
    cancel(&node, &late).await.unwrap();
    let again: u64 = mysql_async::from_row(server.sql(nonce).await.remove(0));
    assert_ne!(after, again, "a second one as well");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_locked_by_another_transaction_is_a_failure() {
    let Some(server) = Server::start(&[]).await else { return };
    let node = node(&server);
    let (first, both) = (claim("a"), claim("a"));
    acquire(&node, &first).await.unwrap();
    release(&node, &first).await;
    let mut other = server.other().await;
    other.query_drop("BEGIN").await.unwrap();
    other.query_drop("SELECT * FROM quorlock_locks WHERE name = 'a' FOR UPDATE").await.unwrap();
    let several = Arc::new(Claim::clone(&both).and(Arc::new(["b".into()])));
    for request in [&first, &several] {
        let error = acquire(&node, request).await.unwrap_err();
        // On a busy machine the statement's time may be over first.
        let is_refused = matches!(error.kind(), NodeErrorKind::Busy | NodeErrorKind::TimedOut);
        assert!(is_refused, "{error:#}");
        assert!(!error.may_have_acted() && !error.is_permanent(), "{error:#}");
    }
    if !server.is_mysql() {
        // Before the coordinator has stopped listening.
        let coordinator = Coordinator::builder().kind(MysqlKind::new()).nodes([server.url()]);
        let coordinator = coordinator.restart_guard(RestartGuard::Off).build().unwrap();
        for ttl in [30, 2].map(Duration::from_secs) {
            until("the error says why", async || {
                let error = coordinator.lock("a").ttl(ttl).try_acquire().await.unwrap_err();
                format!("{error:#}").contains("another transaction")
            })
            .await;
        }
    }
    other.query_drop("COMMIT").await.unwrap();
    assert_eq!(inspect(&node, "a").await.unwrap().vote, Vote::Free);
    assert_eq!(inspect(&node, "b").await.unwrap().vote, Vote::Free);
    assert_eq!(acquire(&node, &several).await.unwrap().vote, Vote::Granted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_server_is_abandoned_in_time_and_found_again() {
    let Some(server) = Server::start(&[]).await else { return };
    let node = node(&server);
    node.ready().await.unwrap();
    acquire(&node, &claim("a")).await.unwrap();
    server.freeze().unwrap();
    let error = acquire(&node, &claim("b")).await.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::Unreachable, "{error:#}");
    server.thaw().unwrap();
    until("the node answers again", async || acquire(&node, &claim("c")).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_unused_locks_are_deleted() {
    let Some(server) = Server::start(&[]).await else { return };
    let node = node(&server);
    let plainly = |key: String| {
        let claim = claim(&key);
        Request::Acquire { claim, ttl: Duration::from_millis(100), fence_hint: None }
    };
    for number in 0..100 {
        answered(&node, plainly(format!("old/{number:03}"))).await;
    }
    let count = "SELECT COUNT(*) FROM locks.quorlock_locks WHERE name LIKE 'old/%'";
    until("all rows are deleted", async || {
        answered(&node, plainly("new".to_owned())).await;
        let left: u64 = mysql_async::from_row(server.sql(count).await.remove(0));
        left == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_each_connection_is_dialled_with_growing_pauses() {
    let Some(server) = Server::start(&[]).await else { return };
    let proxy = Proxy::start(server.address()).await.unwrap();
    let through = server.url().replace(&server.port().to_string(), &proxy.address().port().to_string());
    pause_longer_each_time(&MysqlNode::new(&through, &Seams::default()).unwrap(), proxy, 25).await;
}
