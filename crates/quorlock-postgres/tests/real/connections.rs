//! The connections of a PostgreSQL node: when they are opened, and the order of requests over several of them.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use quorlock::protocol::Claim;
use quorlock::{
    node::{Node, NodeError, Request, Responder, SharedRequest, Vote},
    runtime::{Clock as _, SystemClock},
};
use quorlock_testkit::until;

use crate::reconnects::pause_longer_each_time;
use crate::requests::{TTL, acquire, claim, inspect, release};
use crate::support::{Server, backends, node, server};

/// Returns how many connections the nodes of a server have.
async fn connections(server: &Server) -> usize {
    backends(&server.client().await).await.len()
}

/// Sends requests for many keys at the same time, until the server has this number of connections.
async fn load_until(server: &Server, node: &dyn Node, expected: usize) {
    until("there are enough connections", async || {
        let claims: Vec<_> = (0..64).map(|number| claim(&format!("crowd/{number}"))).collect();
        let asked = claims.iter().map(|claim| acquire(node, claim));
        assert!(join_all(asked).await.into_iter().all(|vote| vote.unwrap().vote == Vote::Granted));
        let released = claims.iter().map(|claim| release(node, claim));
        assert!(join_all(released).await.into_iter().all(|vote| vote == Vote::Granted));
        connections(server).await >= expected
    })
    .await;
}

#[tokio::test]
async fn a_node_opens_connections_for_concurrent_requests_only() {
    let Some(server) = server() else { return };
    let node = node(&server.url("&connections=5"));
    for number in 0..50 {
        assert_eq!(acquire(&*node, &claim(&format!("one/{number}"))).await.unwrap().vote, Vote::Granted);
    }
    assert_eq!(connections(&server).await, 1);
    load_until(&server, &*node, 5).await;
    load_until(&server, &*node, 5).await;
    assert_eq!(connections(&server).await, 5);
}

#[tokio::test]
async fn a_node_does_without_a_refused_connection() {
    let Some(server) = server() else { return };
    let client = server.client().await;
    // The role needs the objects of the schema, which the first node creates.
    inspect(&*server.node(), "a").await.unwrap();
    client
        .batch_execute(
            "CREATE ROLE app LOGIN CONNECTION LIMIT 2; GRANT USAGE ON SCHEMA quorlock TO app;
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA quorlock TO app",
        )
        .await
        .unwrap();
    until("the first node has gone", async || connections(&server).await == 0).await;
    let node = node(&server.url("").replace("postgres@", "app@"));
    // None of these requests is refused.
    load_until(&server, &*node, 2).await;
    load_until(&server, &*node, 2).await;
    assert_eq!(connections(&server).await, 2);
}

/// Eight keys, enough to belong to different connections if there are several.
fn keys() -> Vec<Arc<str>> {
    (0..8).map(|number| format!("key/{number}").into()).collect()
}

#[tokio::test]
async fn clients_that_want_overlapping_keys_get_them_without_a_deadlock() {
    let Some(server) = server() else { return };
    let nodes = [server.node(), server.node(), server.node()];
    let (keys, clock) = (keys(), SystemClock::default());
    load_until(&server, &*nodes[0], 4).await;
    load_until(&server, &*nodes[1], 8).await;
    let works = nodes.iter().enumerate().map(|(place, node)| {
        let mut others = keys.clone();
        others.rotate_left(place * 3);
        async move {
            for _ in 0..30 {
                let all = Arc::new(Claim::clone(&claim(&others[0])).and(others[1..].into()));
                let end = clock.now() + TTL;
                while acquire(&**node, &all).await.unwrap().vote != Vote::Granted {
                    assert!(clock.now() < end);
                }
                release(&**node, &all).await;
            }
        }
    });
    join_all(works).await;
}

#[tokio::test]
async fn a_server_that_ends_each_connection_is_dialled_with_growing_pauses() {
    let Some(server) = server() else { return };
    let (proxy, url) = server.behind_proxy().await;
    pause_longer_each_time(&*node(&url), proxy, 12).await;
}

/// As a server that is stopped: its system accepts connections for it.
#[tokio::test]
async fn no_more_than_so_many_requests_wait_for_a_server_that_is_silent() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let node = node(&format!("postgres://app@{address}/x"));
    let (refused, request) = (Arc::new(AtomicUsize::new(0)), SharedRequest::from(Request::inspect("a")));
    for _ in 0..100_010 {
        let refused = Arc::clone(&refused);
        let count = move |answer| {
            if matches!(answer, Err(NodeError::Overloaded { .. })) {
                refused.fetch_add(1, Ordering::SeqCst);
            }
        };
        node.ask(request.clone(), Responder::from_fn(count));
    }
    assert_eq!(refused.load(Ordering::SeqCst), 10);
}
