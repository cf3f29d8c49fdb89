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
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The reconnect delay.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// The size limit of a message, larger than any message of a node.
const LONGEST: usize = 1 << 20;

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
        let login = password.map_or_else(String::new, |password| format!("AUTH {password}\r\n"));
        let seen = Arc::default();
        let mut connections = JoinSet::new();
        for address in addresses {
            connections.spawn(follow(address, login.clone(), Arc::clone(&seen)));
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
async fn follow(address: SocketAddr, login: String, seen: Arc<Mutex<HashMap<Vec<u8>, usize>>>) {
    let clock = SystemClock::default();
    loop {
        // A node that is down, or does not know PSUBSCRIBE, is expected: its offers are not counted meanwhile.
        drop(listen(address, &login, &seen).await);
        clock.sleep_until(clock.now() + AGAIN_AFTER).await;
    }
}

async fn listen(address: SocketAddr, login: &str, seen: &Mutex<HashMap<Vec<u8>, usize>>) -> io::Result<()> {
    let mut server = BufReader::new(TcpStream::connect(address).await?);
    if !login.is_empty() {
        server.write_all(login.as_bytes()).await?;
        server.read_line(&mut String::new()).await?;
    }
    server.write_all(b"PSUBSCRIBE *quorlock:inbox:*\r\n").await?;
    loop {
        let output = read_list(&mut server).await?;
        let [kind, .., payload] = &output[..] else { continue };
        if kind != b"pmessage" {
            continue;
        }
        for message in unproven(payload).into_iter().flat_map(InboxMessage::parse) {
            if let InboxMessage::Offered { token, .. } = message {
                *seen.lock().entry(token.to_vec()).or_default() += 1;
            }
        }
    }
}

/// Reads a list of strings and numbers, as a server sends it to a subscriber.
async fn read_list(server: &mut BufReader<TcpStream>) -> io::Result<Vec<Vec<u8>>> {
    let (b'*', count) = read_line(server).await? else { return Err(odd()) };
    let mut parts = Vec::new();
    for _ in 0..length(&count)? {
        let part = match read_line(server).await? {
            (b'$', size) => {
                let size = length(&size)?;
                let mut text = vec![0; size + 2];
                server.read_exact(&mut text).await?;
                text.truncate(size);
                text
            }
            (b':', number) => number,
            _ => return Err(odd()),
        };
        parts.push(part);
    }
    Ok(parts)
}

/// Reads a line and returns its type byte and the rest.
async fn read_line(server: &mut BufReader<TcpStream>) -> io::Result<(u8, Vec<u8>)> {
    let mut line = Vec::new();
    server.read_until(b'\n', &mut line).await?;
    match line.strip_suffix(b"\r\n").and_then(<[u8]>::split_first) {
        Some((kind, rest)) => Ok((*kind, rest.to_vec())),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn length(digits: &[u8]) -> io::Result<usize> {
    let length = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    length.filter(|length| *length <= LONGEST).ok_or_else(odd)
}

fn odd() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a server sent a subscriber something other than a list of strings",
    )
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
