//! The order of execution: requests of several keys over several connections, and a connection after its
//! predecessor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorlock::node::{ConnectionState, Node, NodeError, Request, Response, StatusListener, Vote, ask};
use quorlock::protocol::{Claim, Token};
use quorlock_testkit::until;
use tokio_postgres::Client;

use crate::support::{Server, backends, node, server};

const TTL: Duration = Duration::from_secs(60);

/// A node with two connections, a key of each, and the backends that serve them.
struct Two<'a> {
    server: &'a Server,
    node: Arc<dyn Node>,
    keys: [Arc<str>; 2],
    processes: [i32; 2],
    client: Client,
}

impl Two<'_> {
    async fn of(server: &Server) -> Two<'_> {
        let (node, client) = (node(&server.url("&connections=2")), server.client().await);
        let inspect = async |key: &str| ask(&*node, Request::inspect(key)).await;
        inspect("key").await.unwrap();
        // The second is opened when the first has many unanswered requests.
        let first = *backends(&client).await.first().unwrap();
        server.stop_backend(first).unwrap();
        let asked: Vec<_> = (0..8).map(|_| inspect("key")).collect();
        let both = async || backends(&client).await.len() == 2;
        futures::join!(futures::future::join_all(asked), async {
            until("the second is opened", both).await;
            server.continue_backend(first).unwrap();
        });
        let mut found: Vec<(Arc<str>, i32)> = Vec::new();
        let mut names = (0..).map(|number| format!("key/{number}"));
        until("each carries requests", async || {
            let key = names.next().unwrap();
            inspect(&key).await.unwrap();
            let asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'quorlock'
                AND query LIKE '%inspect(%' ORDER BY state_change DESC LIMIT 1";
            let process: i32 = client.query_one(asked, &[]).await.unwrap().get(0);
            // Once the second carries requests, each key stays where it is.
            let other = process != first;
            if other && found.is_empty() || !other && found.len() == 1 {
                found.push((key.into(), process));
            }
            found.len() == 2
        })
        .await;
        let [one, other] = <[_; 2]>::try_from(found).unwrap();
        Two { server, node, keys: [one.0, other.0], processes: [one.1, other.1], client }
    }

    async fn acquire(&self, number: u128, keys: Vec<&Arc<str>>) -> Result<Response, NodeError> {
        let (first, rest) = keys.split_first().unwrap();
        let claim = Claim::new(Arc::clone(first), Token::new(number, "test"));
        let rest: Vec<Arc<str>> = rest.iter().copied().cloned().collect();
        let claim = Arc::new(if rest.is_empty() { claim } else { claim.and(rest.into()) });
        ask(&*self.node, Request::Acquire { claim, ttl: TTL, fence_hint: None }).await
    }

    /// Gives the server time to do other work, then continues the backend of this connection.
    async fn go_on(&self, line: usize) {
        for _ in 0..20 {
            self.client.batch_execute("SELECT 1").await.unwrap();
        }
        self.server.continue_backend(self.processes[line]).unwrap();
    }

    fn stop(&self, line: usize) {
        self.server.stop_backend(self.processes[line]).unwrap();
    }
}

fn is_held(response: &Response) -> bool {
    matches!(response.vote, Vote::Held(_))
}

#[tokio::test]
async fn a_request_of_several_keys_waits_for_earlier_requests() {
    let Some(server) = server() else { return };
    let two = Two::of(&server).await;
    let [one, other] = &two.keys;
    two.stop(1);
    // Each is sent when it is polled first, in this order.
    let (before, both, ()) =
        futures::join!(two.acquire(1, vec![other]), two.acquire(2, vec![one, other]), two.go_on(1));
    let (before, both) = (before.unwrap(), both.unwrap());
    assert_eq!(before.vote, Vote::Granted, "it was asked first");
    assert!(is_held(&both), "{both:?}");
}

#[tokio::test]
async fn later_requests_wait_for_a_request_of_several_keys() {
    let Some(server) = server() else { return };
    let two = Two::of(&server).await;
    let [one, other] = &two.keys;
    two.stop(0);
    let (both, after, ()) =
        futures::join!(two.acquire(1, vec![one, other]), two.acquire(2, vec![other]), two.go_on(0));
    let (both, after) = (both.unwrap(), after.unwrap());
    assert_eq!(both.vote, Vote::Granted, "it was asked first");
    assert!(is_held(&after), "{after:?}");
}

#[tokio::test]
async fn a_connection_waits_for_its_predecessor_within_a_bound() {
    if server().is_none() {
        return;
    }
    let server = Server::start(&["log_statement=all"]);
    let (proxy, url) = server.behind_proxy().await;
    let node = node(&url);
    ask(&*node, Request::inspect("a")).await.unwrap();
    let client = server.client().await;
    let predecessor = *backends(&client).await.first().unwrap();
    server.stop_backend(predecessor).unwrap();
    proxy.cut();
    until("its successor votes, though it is stopped", async || {
        ask(&*node, Request::inspect("a")).await.is_ok()
    })
    .await;
    let log = std::fs::read_to_string(server.log()).unwrap();
    let (_, since) = log.split_once("pg_terminate_backend(pid)").expect("the predecessor is ended");
    let (waited, _) = since.split_once("known_since").expect("the successor has begun");
    let looks = waited.matches("pg_terminate_backend(pid)").count();
    assert!(looks > 1, "it looks until it has ended: {waited}");
    server.continue_backend(predecessor).unwrap();
    until("the predecessor ends", async || !backends(&client).await.contains(&predecessor)).await;
}

/// Counts how often the connection was lost.
#[derive(Debug, Default)]
struct Losses(AtomicUsize);

impl StatusListener for Losses {
    fn on_status(&self, contact: ConnectionState) {
        if matches!(contact, ConnectionState::Lost(_)) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// As a caller asks that gives its attempt up in the moment in which the connection ends.
#[tokio::test]
async fn i5_what_leaves_no_tombstone_is_not_sent_while_the_predecessor_may_execute_more() {
    let Some(server) = server() else { return };
    let (proxy, url) = server.behind_proxy().await;
    let (node, client) = (node(&url), server.client().await);
    ask(&*node, Request::inspect("a")).await.unwrap();
    // What is asked when an older connection has ended waits for the next.
    client.batch_execute("SELECT pg_sleep(1.1)").await.unwrap();
    let losses = Arc::new(Losses::default());
    node.observe(Arc::clone(&losses) as Arc<dyn StatusListener>);
    let predecessor = *backends(&client).await.first().unwrap();
    server.stop_backend(predecessor).unwrap();
    proxy.cut();
    until("the loss", async || losses.0.load(Ordering::Relaxed) > 0).await;
    let claim = Arc::new(Claim::new("key".into(), Token::new(1, "test")));
    let release = Request::Release { claim: Arc::clone(&claim) };
    let cancel = |linger| Request::Cancel { claim: Arc::clone(&claim), linger };
    let taking_back = [release, cancel(Duration::ZERO), cancel(TTL)].map(|request| ask(&*node, request));
    let answers = futures::future::join_all(taking_back).await;
    server.continue_backend(predecessor).unwrap();
    let [release, cancel, with_tombstone] = &answers[..] else { panic!("{answers:?}") };
    for answer in [release, cancel] {
        let unknown = matches!(answer, Err(NodeError::Disconnected { .. }));
        assert!(unknown, "so that it is cancelled: {answer:?}");
    }
    assert_eq!(with_tombstone.as_ref().unwrap().vote, Vote::Free);
}

#[tokio::test]
async fn a_new_connection_waits_for_earlier_requests_on_the_others() {
    let Some(server) = server() else { return };
    let (node, client) = (node(&server.url("&connections=2")), server.client().await);
    ask(&*node, Request::inspect("key")).await.unwrap();
    let first = *backends(&client).await.first().unwrap();
    let acquire = |number: u128, key: usize| {
        let claim = Arc::new(Claim::new(format!("key/{key}").into(), Token::new(number, "test")));
        let node = Arc::clone(&node);
        async move { ask(&*node, Request::Acquire { claim, ttl: TTL, fence_hint: None }).await }
    };
    server.stop_backend(first).unwrap();
    let before = futures::future::join_all((0..16).map(|key| acquire(1, key)));
    let (before, after) = futures::join!(before, async {
        until("the second is opened", async || backends(&client).await.len() == 2).await;
        let mut after = Vec::new();
        // The node uses it some moments later.
        for key in 0..16 {
            client.batch_execute("SELECT pg_sleep(0.01)").await.unwrap();
            after.push(tokio::spawn(acquire(2, key)));
        }
        client.batch_execute("SELECT pg_sleep(0.05)").await.unwrap();
        server.continue_backend(first).unwrap();
        futures::future::join_all(after).await
    });
    assert!(before.iter().all(|vote| vote.as_ref().unwrap().vote == Vote::Granted), "{before:?}");
    assert!(after.into_iter().all(|vote| is_held(&vote.unwrap().unwrap())), "they were asked later");
}
