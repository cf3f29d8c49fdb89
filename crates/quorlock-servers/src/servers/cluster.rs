//! A Redis Cluster.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::time::Duration;

use futures::future::{join_all, try_join_all};

use super::{Kind, Server, Servers};
use crate::resp::Resp;
use crate::wait::{eventually, pause, within};

/// A Redis Cluster on the loopback interface, which ends when this is dropped.
///
/// The masters come first, with equal shares of the slots, and then the replicas, those of the first master
/// first. It derefs to a slice of [`Server`], with all its methods.
///
/// # Examples
///
/// ```
/// use quorlock_servers::{Cluster, Kind};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # if Kind::all_found().is_empty() { return Ok(()) }
/// let cluster = Cluster::start(3, 0).await?;
/// let master = cluster.master_of("orders/42").await?;
/// master.command(&["SET", "orders/42", "taken"]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Cluster {
    servers: Servers,
    masters: usize,
}

/// How long a member must be silent before the others consider it dead, in milliseconds. Short, for quick
/// failover tests; long enough for a busy machine.
const NODE_TIMEOUT: &str = "2000";
/// How long members may take to agree. They wait for two seconds before they serve clients.
const AGREEMENT: Duration = Duration::from_secs(40);
/// The number of slots.
const SLOTS: usize = 16_384;

impl Cluster {
    /// Starts `masters` masters with `replicas_each` replicas each, and waits until they serve all slots.
    ///
    /// # Errors
    ///
    /// If there is no real server on this machine, or the members do not agree in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends those that have started.
    pub async fn start(masters: usize, replicas_each: usize) -> io::Result<Cluster> {
        Cluster::with(masters, replicas_each, &[]).await
    }

    /// Like [`Cluster::start`], with more arguments on the command line of each server.
    ///
    /// # Errors
    ///
    /// As [`Cluster::start`].
    pub async fn with(masters: usize, replicas_each: usize, options: &[&str]) -> io::Result<Cluster> {
        let setup = Servers::setup()
            .options(&["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT])
            .options(&["--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"])
            .options(options);
        let servers = setup.start(masters * (1 + replicas_each)).await?;
        let cluster = Cluster { servers, masters };
        cluster.join().await?;
        Ok(cluster)
    }

    /// Returns the cluster's address: all its members.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with(&self.servers.first().map(Server::login).unwrap_or_default())
    }

    /// Returns [`url`](Cluster::url) with another `USER:PASSWORD`.
    #[must_use]
    pub fn url_as(&self, login: &str) -> String {
        self.url_with(&format!("{login}@"))
    }

    fn url_with(&self, login: &str) -> String {
        let members: Vec<_> = self.servers.iter().map(|server| server.address().to_string()).collect();
        format!("redis+cluster://{login}{}", members.join(","))
    }

    /// Returns the kind of server.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        self.servers.kind()
    }

    async fn join(&self) -> io::Result<()> {
        let Some((first, others)) = self.servers.split_first() else { return Ok(()) };
        try_join_all(self.servers.iter().enumerate().map(async |(place, server)| {
            order(server, &["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]).await?;
            if place < self.masters {
                let share = place * SLOTS / self.masters..(place + 1) * SLOTS / self.masters;
                let slots: Vec<_> = share.map(|slot| slot.to_string()).collect();
                let words = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str));
                order(server, &words.collect::<Vec<_>>()).await?;
            }
            Ok::<_, io::Error>(())
        }))
        .await?;
        for other in others {
            order(first, &["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]).await?;
        }
        self.all("members that know each other", &format!("cluster_known_nodes:{}\r", self.len())).await?;
        let (masters, replicas) = self.servers.split_at(self.masters);
        let each = replicas.len() / masters.len().max(1);
        let followed = masters.iter().flat_map(|master| std::iter::repeat_n(master, each));
        for (master, replica) in followed.zip(replicas) {
            order(replica, &["CLUSTER", "REPLICATE", &id(master).await?]).await?;
        }
        for replica in replicas {
            eventually("a replica that has copied its master", AGREEMENT, async || {
                says(replica, &["INFO", "replication"], "master_link_status:up").await
            })
            .await?;
        }
        self.settled().await
    }

    /// Waits until every running member serves all slots and all agree on the masters, which run: after a
    /// master was killed, until the failover is over.
    ///
    /// # Errors
    ///
    /// If that does not happen in time.
    pub async fn settled(&self) -> io::Result<()> {
        eventually("members that agree who is a master", AGREEMENT, async || {
            let views = join_all(self.running().map(async |server| masters_seen_by(server).await)).await;
            let mut views = views.into_iter();
            let Some(Some(first)) = views.next() else { return false };
            let run = first.iter().all(|port| self.running().any(|server| server.port() == *port));
            run && views.all(|view| view.as_ref() == Some(&first))
        })
        .await?;
        self.all("members that serve all slots", "cluster_state:ok\r").await
    }

    async fn all(&self, what: &str, sign: &str) -> io::Result<()> {
        eventually(what, AGREEMENT, async || {
            let signs = self.running().map(async |server| says(server, &["CLUSTER", "INFO"], sign).await);
            join_all(signs).await.into_iter().all(|agreed| agreed)
        })
        .await
    }

    fn running(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(|server| server.pid().is_some())
    }

    /// Returns the master that serves `key`, as it reports.
    ///
    /// # Errors
    ///
    /// If no master does within the time for members to agree.
    pub async fn master_of(&self, key: &str) -> io::Result<&Server> {
        let found = async {
            loop {
                for server in self.running() {
                    // A replica redirects the client.
                    if let Ok(Resp::Number(_)) = server.command(&["EXISTS", key]).await {
                        return Ok(server);
                    }
                }
                pause().await;
            }
        };
        within(&format!("a master that serves {key}"), AGREEMENT, found).await
    }

    /// Moves the slot of `key` with all its keys to another master, while it is in use.
    ///
    /// # Errors
    ///
    /// If one of the two refuses.
    pub async fn move_slot(&self, key: &str, to: &Server) -> io::Result<()> {
        let from = self.master_of(key).await?;
        let slot = order(from, &["CLUSTER", "KEYSLOT", key]).await?.to_string();
        let (source, target) = (id(from).await?, id(to).await?);
        order(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]).await?;
        order(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]).await?;
        let port = to.port().to_string();
        while let Resp::List(keys) = order(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await?
            && !keys.is_empty()
        {
            for key in keys {
                let key = key.to_string();
                let mut words = vec!["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"];
                words.extend(to.password().into_iter().flat_map(|password| ["AUTH", password]));
                order(from, &words).await?;
            }
        }
        for server in [to, from] {
            order(server, &["CLUSTER", "SETSLOT", &slot, "NODE", &target]).await?;
        }
        Ok(())
    }

    /// Sends a command about `key` to the master that serves it.
    ///
    /// # Errors
    ///
    /// If no master does.
    pub async fn command(&self, key: &str, words: &[&str]) -> io::Result<Resp> {
        self.master_of(key).await?.command(words).await
    }
}

impl Deref for Cluster {
    type Target = [Server];

    fn deref(&self) -> &[Server] {
        &self.servers
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a cluster of {}", self.servers)
    }
}

async fn order(server: &Server, words: &[&str]) -> io::Result<Resp> {
    let answer = server.command(words).await?;
    if let Resp::Error(message) = &answer {
        return Err(io::Error::other(format!("{}: {message}", words.join(" "))));
    }
    Ok(answer)
}

async fn id(server: &Server) -> io::Result<String> {
    Ok(order(server, &["CLUSTER", "MYID"]).await?.to_string())
}

async fn says(server: &Server, words: &[&str], sign: &str) -> bool {
    server.command(words).await.is_ok_and(|answer| answer.to_string().contains(sign))
}

/// Returns the ports of the masters that serve slots, as this member sees them.
async fn masters_seen_by(server: &Server) -> Option<Vec<u16>> {
    let table = server.command(&["CLUSTER", "NODES"]).await.ok()?.to_string();
    let port = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let [_, address, flags, _, _, _, _, _, _, ..] = words[..] else { return None };
        let (address, _) = address.split_once('@')?;
        flags.contains("master").then(|| address.rsplit(':').next()?.parse().ok())?
    };
    let mut masters: Vec<_> = table.lines().filter_map(port).collect();
    masters.sort_unstable();
    Some(masters)
}
