//! Clients with different lists of nodes, on real servers.

use std::time::Duration;

use quorlock::protocol::{gate, lists_note};
use quorlock::{Coordinator, RestartGuard, doctor::Check};
use quorlock_testkit::{Resp, Servers, until};

use crate::world::{Ahead, client};

/// Longer than the time between two records of a list.
const A_WHILE: u64 = 31;

struct Clients {
    servers: Servers,
    clock: Ahead,
    all: Vec<Coordinator>,
}

impl Clients {
    async fn start(servers: usize) -> Clients {
        let servers = Servers::start(servers).await.unwrap();
        Clients { servers, clock: Ahead::default(), all: Vec::new() }
    }

    /// Adds a client of these servers, and waits until it is connected to all of them.
    async fn add(&mut self, urls: impl IntoIterator<Item = String>) {
        let urls: Vec<_> = urls.into_iter().collect();
        self.all.push(client(&urls, |builder| {
            builder.restart_guard(RestartGuard::On).key_prefix("jobs:").clock(self.clock.clone())
        }));
        self.pass().await;
        self.connected(0).await;
    }

    /// Lets time pass for servers and clients; then each client sends a few requests.
    async fn pass(&self) {
        let key = lists_note(&gate("jobs:"));
        for server in self.servers.iter() {
            let lists = server.command(&["ZRANGEBYSCORE", &key, "-inf", "+inf"]).await.unwrap();
            let Resp::List(lists) = lists else { panic!("{lists}") };
            for list in lists {
                let ago = format!("-{A_WHILE}000");
                server.command(&["ZINCRBY", &key, &ago, &list.to_string()]).await.unwrap();
            }
        }
        self.clock.jump(Duration::from_secs(A_WHILE));
        for _ in 0..2 {
            for client in &self.all {
                drop(client.lock("r").inspect().await);
            }
        }
    }

    /// Waits until all clients are connected, and have seen at least so many restarts.
    async fn connected(&self, restarts: u64) {
        let connected = |client: &Coordinator| {
            let nodes = client.health().now();
            nodes.iter().all(|node| node.identity.is_some())
                && nodes.iter().map(|node| node.restarts).sum::<u64>() >= restarts
        };
        let all = async || self.all.iter().all(connected);
        until("all are connected", all).await;
    }

    /// What each client has found.
    fn found(&self) -> Vec<Option<String>> {
        let found = |client: &Coordinator| {
            let mut found = client.warnings().into_iter();
            found.find(|finding| finding.check == Check::OtherNodes).map(|finding| finding.evidence)
        };
        self.all.iter().map(found).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i49_clients_with_different_nodes_are_warned_and_others_are_not() {
    let mut clients = Clients::start(4).await;
    let urls = clients.servers.urls();
    clients.add(urls[..3].to_vec()).await;
    // The same servers, in another order and by other addresses.
    let renamed = urls[..3].iter().rev().map(|url| url.replace("127.0.0.1", "localhost"));
    clients.add(renamed).await;
    for _ in 0..4 {
        clients.pass().await;
    }
    assert_eq!(clients.found(), [None, None]);

    clients.servers[2].restart_empty().await.unwrap();
    clients.connected(1).await;
    for _ in 0..4 {
        clients.pass().await;
    }
    assert_eq!(clients.found(), [None, None], "after a restart");

    clients.all.pop();
    clients.add([urls[3].clone(), urls[1].clone(), urls[0].clone()]).await;
    let noticed = async || {
        clients.pass().await;
        clients.found().iter().all(Option::is_some)
    };
    until("both notice it", noticed).await;
    let expected =
        "another client locks on 3 nodes, of which 2 are among our 3: its quorum may have no node in common";
    assert!(
        clients.found().into_iter().flatten().all(|found| found.starts_with(expected)),
        "{:?}",
        clients.found()
    );
    let listed = clients.servers[0].command(&["KEYS", "*"]).await.unwrap().to_string();
    assert!(listed.contains("jobs:{") && listed.contains(":quorlock:gate:lists"), "{listed}");
}
