//! Tests of acquiring without a script (ADR 4, 5), with a real server.

use std::io;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy, duplex, split};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::server::Server;
use super::{
    LONG, acquire, cancel, claim, contend, enqueue, inspect, plain, release, settings, spawn_ask, vote,
};
use crate::address::Address;
use crate::node::{Node, Request, Vote, ask};
use crate::redis::{RedisNode, Settings};
use crate::runtime::clock::{Clock, SystemClock};
use crate::transport::{Dial, Stream};
use quorlock_protocol::{FenceHint, WaiterId, fence_counter};
use quorlock_testkit::until;

/// Returns how many scripts the server has run.
fn scripts_run(server: &Server) -> usize {
    let stats = server.cli(&["info", "commandstats"]);
    let calls = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(name))?;
        line.split(',').next()?.parse::<usize>().ok()
    };
    ["cmdstat_eval:calls=", "cmdstat_evalsha:calls="].iter().filter_map(|name| calls(name)).sum()
}

fn counter_of(server: &Server, key: &str) -> String {
    server.cli(&["zscore", &fence_counter("", key), "n"])
}

/// Starts a server that supports raising a score.
fn raising_server() -> Option<Server> {
    let server = Server::start(&[])?;
    if server.cli(&["zadd", "z", "gt", "ch", "1", "n"]) != "1" {
        eprintln!("skipped: the server does not know ZADD GT (Redis 6.2)");
        return None;
    }
    Some(server)
}

#[tokio::test]
async fn a_free_lock_is_acquired_by_two_commands_without_a_script() {
    let Some(server) = raising_server() else { return };
    let (node, ours) = (server.node(), claim("orders/42", 1));
    drop(node.ready().await);
    let before = scripts_run(&server);
    let fence_hint = FenceHint::at(SystemClock.wall(), None, LONG);
    let request = Request::Acquire { claim: Arc::clone(&ours), ttl: LONG, fence_hint: Some(fence_hint) };
    let answer = ask(&node, request).await.unwrap();
    assert_eq!((answer.vote, answer.fencing_token), (Vote::Granted, Some(fence_hint.usual())));
    assert_eq!(scripts_run(&server), before);
    assert_eq!(counter_of(&server, "orders/42"), fence_hint.usual().to_string());
    assert!(server.left("orders/42") > 0, "it would stay forever");
    assert_eq!(server.left(&fence_counter("", "orders/42")), -1, "it must stay forever");
    assert_eq!(vote(&node, release(&ours)).await, Vote::Granted);
}

#[tokio::test]
async fn a_user_without_kill_acquires_by_scripts() {
    for missing in ["-client|kill", "-time", "-eval"] {
        let Some(server) = raising_server() else { return };
        let without = server.cli(&["acl", "setuser", "ann", "on", ">pw", "~*", "+@all", missing]);
        if without != "OK" {
            // Before Redis 7, a subcommand cannot be forbidden.
            assert_eq!(missing, "-client|kill", "{without}");
            continue;
        }
        let node = server.node_of("ann:pw@");
        drop(node.ready().await);
        let before = scripts_run(&server);
        let answer = ask(&node, acquire(&claim("orders/42", 1))).await;
        if ["-time", "-eval"].contains(&missing) {
            // The scripts read the clock as well; and without scripts no lock can be released.
            assert!(answer.unwrap_err().is_permanent(), "{missing}");
            assert_eq!(server.cli(&["exists", "orders/42"]), "0", "{missing}");
            continue;
        }
        let answer = answer.unwrap();
        assert_eq!(answer.vote, Vote::Granted, "{missing}");
        assert_eq!(counter_of(&server, "orders/42"), answer.fencing_token.unwrap().to_string(), "{missing}");
        assert!(scripts_run(&server) > before, "{missing}");
        assert_eq!(vote(&node, release(&claim("orders/42", 1))).await, Vote::Granted, "{missing}");
    }
}

#[tokio::test]
async fn a_server_with_a_command_for_it_deletes_without_a_script() {
    let Some(server) = Server::start(&[]) else { return };
    if server.cli(&["delifeq", "k", "v"]) != "0" && server.cli(&["delex", "k", "ifeq", "v"]) != "0" {
        eprintln!("skipped: the server has neither DELIFEQ nor DELEX");
        return;
    }
    let node = server.node();
    drop(node.ready().await);
    let before = scripts_run(&server);
    let (ours, other) = (claim("orders/42", 1), claim("orders/42", 2));
    assert_eq!(vote(&node, acquire(&ours)).await, Vote::Granted);
    assert_eq!(vote(&node, release(&other)).await, Vote::Free, "the other claim does not hold it");
    assert_eq!(vote(&node, release(&ours)).await, Vote::Granted);
    assert_eq!(vote(&node, release(&ours)).await, Vote::Free);
    assert_eq!(scripts_run(&server), before);
    assert_eq!(vote(&node, acquire(&ours)).await, Vote::Granted);
    assert!(matches!(vote(&node, acquire(&other)).await, Vote::Held(_)));
    assert!(matches!(vote(&node, enqueue(WaiterId::new(1))).await, Vote::Queued(_)));
    assert_eq!(vote(&node, release(&ours)).await, Vote::Notified, "and a script that notifies the next");
}

/// A connection has ended, and a request that was written to it is still in flight. If it looks for no
/// tombstone, the server must not receive it after the claim was cancelled (rule I-5); if the server may not
/// end the connection for us, it must look for one (rule I-41).
#[tokio::test]
async fn i5_i41_late_requests_of_an_earlier_connection_are_ignored() {
    for address in ["slow", "ann:pw@slow"] {
        for request in [acquire, plain, contend] {
            let Some(server) = Server::start(&[]) else { return };
            let rights = ["acl", "setuser", "ann", "on", ">pw", "~*", "+@all", "-client|kill"];
            if server.cli(&rights) != "OK" {
                eprintln!("skipped: before Redis 7, a subcommand cannot be forbidden");
                return;
            }
            let (network, control) = Network::new(server.port);
            let settings = Settings { dial: Arc::new(network), ..settings() };
            let node = Arc::new(RedisNode::with(Address::parse(address).unwrap(), settings));
            drop(node.ready().await);
            let ours = claim("orders/42", 1);
            control.say(Order::Hold);
            let unknown = spawn_ask(&node, request(&ours));
            until("it is in flight", async || control.has_held_back()).await;
            control.say(Order::Cut);
            let error = unknown.await.unwrap().unwrap_err();
            assert!(error.may_have_acted(), "{error:?}");
            until("there is another connection", async || ask(&*node, inspect()).await.is_ok()).await;
            assert_eq!(vote(&node, cancel(&ours)).await, Vote::Free);
            control.say(Order::Deliver);
            until("the held requests have arrived", async || control.is_delivered()).await;
            let shown = request(&ours);
            assert_eq!(server.cli(&["exists", "orders/42"]), "0", "{address} cancelled it before: {shown:?}");
            assert_eq!(vote(&node, contend(&ours)).await, Vote::Free, "a script looks for the tombstone");
            let other = acquire(&claim("orders/42", 2));
            assert_eq!(vote(&node, other).await, Vote::Granted, "other claims are not affected");
        }
    }
}

/// What the network does with the first connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Carry,
    /// The requests are held back.
    Hold,
    /// The client's end is closed, unnoticed by the server.
    Cut,
    /// The held requests are delivered.
    Deliver,
}

/// A network in which packets may arrive long after their connection has ended for the client.
#[derive(Debug)]
struct Network {
    port: u16,
    first: Mutex<Option<(watch::Receiver<Order>, watch::Sender<Progress>)>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    held_back: usize,
    delivered: bool,
}

struct Control {
    orders: watch::Sender<Order>,
    progress: watch::Receiver<Progress>,
}

impl Control {
    fn say(&self, order: Order) {
        self.orders.send(order).unwrap();
    }

    fn has_held_back(&self) -> bool {
        self.progress.borrow().held_back > 0
    }

    fn is_delivered(&self) -> bool {
        self.progress.borrow().delivered
    }
}

impl Network {
    fn new(port: u16) -> (Network, Control) {
        let (orders, obeyed) = watch::channel(Order::Carry);
        let (noted, progress) = watch::channel(Progress::default());
        (Network { port, first: Mutex::new(Some((obeyed, noted))) }, Control { orders, progress })
    }
}

impl Dial for Network {
    fn dial(&self, _: &Address) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let (first, port) = (self.first.lock().unwrap().take(), self.port);
        Box::pin(async move {
            let far = TcpStream::connect(("127.0.0.1", port)).await?;
            let Some((orders, noted)) = first else { return Ok(Box::new(far) as Box<dyn Stream>) };
            let (near, inner) = duplex(64 * 1024);
            tokio::spawn(pass(inner, far, orders, noted));
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

async fn pass(
    client: DuplexStream,
    server: TcpStream,
    mut orders: watch::Receiver<Order>,
    noted: watch::Sender<Progress>,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = server.into_split();
    let answers = tokio::spawn(async move {
        let carried = copy(&mut from_server, &mut to_client).await;
        (carried, from_server)
    });
    let (mut held, mut room) = (Vec::new(), [0; 4096]);
    while *orders.borrow() != Order::Cut {
        tokio::select! {
            _ = orders.changed() => {}
            read = from_client.read(&mut room) => {
                let output = &room[..read?];
                if *orders.borrow() == Order::Carry {
                    to_server.write_all(output).await?;
                } else {
                    held.extend_from_slice(output);
                    noted.send_modify(|progress| progress.held_back = held.len());
                }
            }
        }
    }
    // Both halves of the client's end are dropped; the server's end stays.
    answers.abort();
    drop((answers.await, from_client));
    while *orders.borrow() != Order::Deliver {
        drop(orders.changed().await);
    }
    // The server reads it, or refuses it because the connection was ended.
    drop(to_server.write_all(&held).await);
    drop(to_server.shutdown().await);
    noted.send_modify(|progress| progress.delivered = true);
    Ok(())
}
