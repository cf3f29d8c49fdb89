//! A master with replicas, and Sentinels.

use std::io;
use std::time::Duration;

use super::kind::Kind;
use super::server::Server;
use super::{Password, Servers, Setup};
use crate::resp::Resp;
use crate::wait::{eventually, pause};

/// How long a service may take to settle after its start or a failover: three seconds, unless a busy machine
/// delays its Sentinels, which then do nothing for half a minute (their TILT mode).
const SETTLE: Duration = Duration::from_secs(180);
/// How long a server must be silent before a Sentinel considers it down; short, for quick tests.
const DOWN_AFTER: Duration = Duration::from_secs(1);

/// A master with replicas on the loopback interface, and three Sentinels that promote a replica if the master
/// fails: for failover tests. Real servers only. Ends when dropped.
#[derive(Debug)]
pub struct Service {
    name: String,
    servers: Servers,
    sentinels: Servers,
}

impl Service {
    /// Starts a master with `replicas` replicas, configured by `setup`, and waits until every Sentinel knows
    /// all of them.
    ///
    /// # Errors
    ///
    /// If there is no real server on this machine, or one does not answer in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends those that have started.
    pub async fn start(name: &str, replicas: usize, setup: Setup) -> io::Result<Service> {
        let kind = Kind::choose()?;
        if kind.program().is_none() {
            let message = format!("{kind} supports no Sentinels; install valkey-server or redis-server");
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let servers = setup.kind(kind.clone()).start(replicas + 1).await?;
        let (master, followers) = servers.split_first().ok_or(io::ErrorKind::NotFound)?;
        let port = master.port().to_string();
        for follower in followers {
            follower.command(&["REPLICAOF", "127.0.0.1", &port]).await?;
        }
        let (down, limit) = (DOWN_AFTER.as_millis(), 2 * DOWN_AFTER.as_millis());
        // The Sentinels have the password of the servers, with which they also reach each other.
        let (password, secrets) = match master.password() {
            Some(word) => (
                Password::Given(word.to_owned()),
                format!("requirepass {word}\nsentinel auth-pass {name} {word}\n"),
            ),
            None => (Password::None, String::new()),
        };
        let sentinel = format!(
            "bind 127.0.0.1\nprotected-mode no\nsentinel monitor {name} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {name} {down}\nsentinel failover-timeout {name} {limit}\n{secrets}"
        );
        let sentinels = Setup { password, sentinel, ..Setup::default() }.kind(kind).start(3).await?;
        let service = Service { name: name.to_owned(), servers, sentinels };
        service.settle(replicas).await?;
        Ok(service)
    }

    /// Returns `redis+sentinel://` with all Sentinels.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        let login = self.servers.first().map(Server::login).unwrap_or_default();
        let password = self.sentinels.first().and_then(Server::password);
        let query = password.map_or_else(String::new, |password| format!("?sentinel_password={password}"));
        format!("redis+sentinel://{login}{}/{}{query}", hosts.join(","), self.name)
    }

    /// Returns the master and its replicas, in the order in which they were started.
    #[must_use]
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Returns the Sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &Servers {
        &self.sentinels
    }

    /// Returns the server that a majority of the Sentinels currently names as the master, if there is one.
    pub async fn master(&self) -> Option<&Server> {
        let mut named = Vec::new();
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.pid().is_some()) {
            let asked = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.name];
            let Ok(Resp::List(parts)) = sentinel.command(&asked).await else { continue };
            named.push(parts.last().map(ToString::to_string).unwrap_or_default());
        }
        let most = self.sentinels.len() / 2 + 1;
        self.servers.iter().find(|server| {
            let port = server.port().to_string();
            named.iter().filter(|named| **named == port).count() >= most
        })
    }

    /// Waits until most Sentinels name another master than `old`, and that server reports to be a master.
    ///
    /// # Errors
    ///
    /// If that takes more than three minutes.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub async fn failed_over(&self, old: &Server) -> io::Result<&Server> {
        let replaced = async || match self.master().await {
            Some(server) if server.port() != old.port() => server
                .command(&["INFO", "replication"])
                .await
                .is_ok_and(|info| info.to_string().contains("role:master")),
            Some(_) | None => false,
        };
        eventually("another master", SETTLE, replaced).await?;
        self.master().await.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Waits until every Sentinel knows the others and the replicas, which are connected to the master.
    async fn settle(&self, replicas: usize) -> io::Result<()> {
        let knows = async |sentinel: &Server| {
            let asked = ["SENTINEL", "MASTER", &self.name];
            let Ok(Resp::List(parts)) = sentinel.command(&asked).await else { return false };
            let words: Vec<_> = parts.iter().map(ToString::to_string).collect();
            let says = |name: &str, wanted: usize| {
                words
                    .windows(2)
                    .any(|pair| matches!(pair, [key, value] if key == name && *value == wanted.to_string()))
            };
            says("num-slaves", replicas) && says("num-other-sentinels", self.sentinels.len() - 1)
        };
        let settled = async || {
            for sentinel in self.sentinels.iter() {
                if !knows(sentinel).await {
                    return false;
                }
            }
            for follower in self.servers.iter().skip(1) {
                let info = follower.command(&["INFO", "replication"]).await;
                if !info.is_ok_and(|info| info.to_string().contains("master_link_status:up")) {
                    return false;
                }
            }
            pause().await;
            true
        };
        eventually("the Sentinels to know each other", SETTLE, settled).await
    }
}
