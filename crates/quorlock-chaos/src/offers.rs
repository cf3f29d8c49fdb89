//! Counts the offers of a run: how often a quorum of the nodes handed a lock from its holder to the next waiter in
//! one step.
//!
//! Subscribes to the inboxes of all workers, as a monitoring program may. A node publishes an offer there after it has
//! stored it.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::{InboxMessage, unproven};
use quorlock::runtime::{Clock as _, Mutex, SystemClock};
use quorlock_servers::{RedisClient, Resp};
use tokio::task::JoinSet;

/// The reconnect delay.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The offers seen so far. Closes the connections on drop.
pub(crate) struct Offers {
    /// For each token, how many nodes have offered it the lock.
    seen: Arc<Mutex<HashMap<Vec<u8>, usize>>>,
    /// How many nodes make an offer count.
    quorum: usize,
    /// One task for each node.
    _connections: JoinSet<()>,
}

impl Offers {
    /// Starts counting on these nodes.
    pub(crate) fn watch(addresses: impl IntoIterator<Item = SocketAddr>, password: Option<&str>) -> Offers {
        let seen = Arc::default();
        let mut connections = JoinSet::new();
        for address in addresses {
            connections.spawn(follow(address, password.map(str::to_owned), Arc::clone(&seen)));
        }
        Offers { seen, quorum: connections.len() / 2 + 1, _connections: connections }
    }

    /// Returns how many locks were offered by a quorum.
    pub(crate) fn count(&self) -> usize {
        let seen = self.seen.lock();
        seen.values().filter(|nodes| **nodes >= self.quorum).count()
    }
}

/// Counts the offers of one node, reconnecting when the connection fails.
async fn follow(address: SocketAddr, password: Option<String>, seen: Arc<Mutex<HashMap<Vec<u8>, usize>>>) {
    let clock = SystemClock::default();
    loop {
        // A node that is down, or does not know PSUBSCRIBE, is expected: its offers are not counted meanwhile.
        drop(listen(address, password.as_deref(), &seen).await);
        clock.sleep_until(clock.now() + AGAIN_AFTER).await;
    }
}

async fn listen(
    address: SocketAddr,
    password: Option<&str>,
    seen: &Mutex<HashMap<Vec<u8>, usize>>,
) -> io::Result<()> {
    let mut server = RedisClient::connect(address, password).await?;
    server.ask(&["PSUBSCRIBE", "*quorlock:inbox:*"]).await?;
    loop {
        let Resp::List(output) = server.receive().await? else { continue };
        let [Resp::Text(_), .., Resp::Text(payload)] = &output[..] else { continue };
        for message in unproven(payload).into_iter().flat_map(InboxMessage::parse) {
            if let InboxMessage::Offered { token, .. } = message {
                *seen.lock().entry(token.to_vec()).or_default() += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use quorlock::protocol::prove;
    use quorlock_testkit::{Servers, eventually};

    use super::*;

    #[tokio::test]
    async fn an_offer_counts_once_from_a_quorum_and_after_a_restart() {
        let servers = Servers::start(3).await.unwrap();
        if !servers.kind().is_real() {
            return println!("skipped: {} knows no patterns of channels", servers.kind());
        }
        let offers =
            Offers::watch(servers.iter().map(quorlock_testkit::Server::address), servers[0].password());
        let say = async |node: usize, text: &str| {
            let text = &String::from_utf8(prove(b"a secret", text.as_bytes())).unwrap();
            // Until a subscriber receives it: the subscription may not be there yet.
            let sent = async || {
                let heard = servers[node].command(&["PUBLISH", "quorlock:inbox:01", text]).await;
                heard.is_ok_and(|heard| heard.to_string() == "1")
            };
            eventually("a subscriber", Duration::from_secs(20), sent).await.unwrap();
        };
        let is = async |count| {
            let seen = async || offers.count() == count;
            eventually("the offers", Duration::from_secs(20), seen).await.unwrap();
        };
        say(0, "o 0123 42 1000").await;
        say(0, "s 0123").await;
        say(1, "o 4567 43 1000").await;
        assert_eq!(offers.count(), 0, "each is one of three");
        say(1, "o 0123 41 1000").await;
        is(1).await;
        servers[2].restart_empty().await.unwrap();
        say(2, "o 4567 43 1000").await;
        is(2).await;
    }
}
