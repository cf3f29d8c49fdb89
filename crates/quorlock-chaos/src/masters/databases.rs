//! Masters that are local database servers, started for the run and stopped with it.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, try_join_all};
use quorlock_history::What;
use quorlock_servers::{Database, Engine, Proxy, Way, within};
use tokio::sync::Mutex;

use super::{Masters, Memory, Need, Primary};

mod mariadb;
mod postgres;

pub(crate) struct Databases {
    engine: Engine,
    extras: Extras,
    nodes: Vec<Node>,
}

/// Additional equipment of the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extras {
    /// A standby for each.
    pub(crate) standby: bool,
    /// A small disk for each.
    pub(crate) small_disk: bool,
}

/// A server, at an address that stays the same when its standby takes over.
struct Node {
    address: SocketAddr,
    /// Leads from the address to the current server; `None` without a standby.
    proxy: Option<Proxy>,
    site: Mutex<Site>,
}

/// The servers of a node.
struct Site {
    primary: Arc<Database>,
    standby: Option<Standby>,
    /// The old primary, while it still runs.
    former: Option<Arc<Database>>,
}

struct Standby {
    database: Arc<Database>,
    /// The proxy through which it replicates.
    link: Proxy,
}

/// Enough for a server and some minutes of load.
const SMALL_DISK_MEGABYTES: u32 = 80;

impl Databases {
    /// Starts this many servers.
    pub(crate) async fn start(engine: &Engine, count: usize, extras: Extras) -> io::Result<Databases> {
        let nodes = try_join_all((0..count).map(|_| Node::start(engine, extras))).await?;
        Ok(Databases { engine: engine.clone(), extras, nodes })
    }

    fn node(&self, number: usize) -> io::Result<&Node> {
        self.nodes.get(number).ok_or_else(|| io::Error::other(format!("there is no node {number}")))
    }

    async fn primary(&self, number: usize) -> io::Result<Arc<Database>> {
        Ok(Arc::clone(&self.node(number)?.site.lock().await.primary))
    }
}

impl Node {
    async fn start(engine: &Engine, extras: Extras) -> io::Result<Node> {
        let primary = if extras.small_disk {
            engine.start_on_small_disk(SMALL_DISK_MEGABYTES).await?
        } else {
            engine.start().await?
        };
        let primary = Arc::new(primary);
        let proxy = if extras.standby { Some(Proxy::start(primary.address()).await?) } else { None };
        let standby = if extras.standby { Some(Standby::behind(&primary).await?) } else { None };
        let address = proxy.as_ref().map_or(primary.address(), Proxy::address);
        Ok(Node { address, proxy, site: Mutex::new(Site { primary, standby, former: None }) })
    }
}

impl Standby {
    async fn behind(primary: &Database) -> io::Result<Standby> {
        let link = Proxy::start(primary.address()).await?;
        let database = Arc::new(primary.standby(link.address()).await?);
        Ok(Standby { database, link })
    }
}

impl Masters for Databases {
    fn what(&self) -> String {
        let standby = if self.extras.standby { ", each with an asynchronous standby" } else { "" };
        format!("{} × {}{standby}", self.nodes.len(), self.engine)
    }

    fn address(&self, number: usize) -> SocketAddr {
        self.node(number).map_or(([127, 0, 0, 1], 0).into(), |node| node.address)
    }

    fn url(&self, address: SocketAddr) -> String {
        self.engine.url(address)
    }

    fn inspect<'a>(&'a self, number: usize, name: &'a str) -> BoxFuture<'a, io::Result<Vec<What>>> {
        let url = self.url(self.address(number));
        Box::pin(async move {
            if self.engine.is_postgres() {
                postgres::inspect(&url, name).await
            } else {
                mariadb::inspect(&url, name).await
            }
        })
    }

    fn left_behind(&self, number: usize) -> BoxFuture<'_, io::Result<Option<Vec<String>>>> {
        let url = self.url(self.address(number));
        Box::pin(async move {
            if self.engine.is_postgres() {
                postgres::left_behind(&url).await.map(Some)
            } else {
                mariadb::left_behind(&url).await.map(Some)
            }
        })
    }

    fn memory(&self) -> Memory {
        Memory::Kept
    }

    fn offers(&self, need: Need) -> Result<(), String> {
        let engine = &self.engine;
        match need {
            Need::Processes | Need::Backends if !cfg!(target_os = "linux") => {
                Err("the processes of a database can be found on Linux only".to_owned())
            }
            Need::Nothing | Need::Processes => Ok(()),
            Need::Backends | Need::Standby | Need::SmallDisk if engine.is_postgres() => Ok(()),
            Need::Backends | Need::Standby | Need::SmallDisk => Err(format!("{engine} does not support it")),
            Need::Peers => Err(format!("only possible with etcd or ZooKeeper, not with {engine}")),
            Need::HangingDisk => Err(format!("only possible with etcd, not with {engine}")),
            Need::Redis | Need::RealServer | Need::BentClock => {
                Err(format!("only possible with Redis, not with {engine}"))
            }
        }
    }

    fn kill(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            self.primary(number).await?.kill();
            Ok(())
        })
    }

    fn restart(&self, number: usize, memory: Memory) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let server = self.primary(number).await?;
            match memory {
                Memory::Kept => server.restart_with_data().await,
                Memory::Gone => server.restart_empty().await,
            }
        })
    }

    fn freeze(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { self.primary(number).await?.freeze() })
    }

    fn thaw(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { self.primary(number).await?.thaw() })
    }

    fn stop_backends(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { self.primary(number).await?.stop_backends() })
    }

    fn continue_backends(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { self.primary(number).await?.continue_backends() })
    }

    fn hold_standby(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let site = self.node(number)?.site.lock().await;
            site.standby.as_ref().ok_or_else(no_standby)?.link.hold(Way::Both);
            Ok(())
        })
    }

    fn promote(&self, number: usize, primary: Primary) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let node = self.node(number)?;
            let mut site = node.site.lock().await;
            let Standby { database, link } = site.standby.take().ok_or_else(no_standby)?;
            if primary == Primary::Killed {
                site.primary.kill();
            }
            // From here on it receives nothing more.
            link.refuse(true);
            link.cut();
            let proxy = node.proxy.as_ref().ok_or_else(no_standby)?;
            proxy.refuse(true);
            proxy.cut();
            database.promote().await?;
            proxy.lead_to(database.address());
            proxy.refuse(false);
            site.former = Some(std::mem::replace(&mut site.primary, database));
            Ok(())
        })
    }

    fn follow(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let mut site = self.node(number)?.site.lock().await;
            site.former = None;
            if site.standby.is_none() {
                site.standby = Some(Standby::behind(&site.primary).await?);
            }
            Ok(())
        })
    }

    fn fill_disk(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            self.primary(number).await?.fill_disk()?;
            postgres::use_up_log(&self.url(self.address(number))).await
        })
    }

    fn free_disk(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { self.primary(number).await?.free_disk().await })
    }

    fn keep_logs<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            for number in 0..self.nodes.len() {
                let server = self.primary(number).await?;
                fs::copy(server.log(), folder.join(format!("node-{}.log", number + 1)))?;
            }
            Ok(())
        })
    }
}

fn no_standby() -> io::Error {
    io::Error::other("the node has no standby at the moment")
}

/// Makes the event for a token that a node has stored.
pub(super) fn held(node: &str, key: &str, token: &[u8], remaining: Duration) -> What {
    let token = String::from_utf8_lossy(token);
    // It ends with the label, which is the name of the attempt.
    let attempt = token.rsplit(' ').next().unwrap_or_default().into();
    // The key of a permit is `SEMAPHORE#NUMBER`.
    let resource = key.split('#').next().unwrap_or_default().into();
    What::Key { node: node.into(), resource, attempt, remaining }
}

/// Runs `work` with a timeout.
pub(super) async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    within("a server", Duration::from_secs(5), work).await
}

#[cfg(test)]
mod tests {
    use quorlock::{Coordinator, RestartGuard, node::Kinds};
    use quorlock_mysql::MysqlKind;
    use quorlock_postgres::PostgresKind;
    use quorlock_testkit::until;

    use super::*;

    async fn stored_locks_are_seen(engine: io::Result<Engine>) {
        let engine = match engine {
            Ok(engine) => engine,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let extras = Extras { standby: false, small_disk: false };
        let databases = Databases::start(&engine, 1, extras).await.unwrap();
        assert_eq!(databases.inspect(0, "node-1").await.unwrap(), [], "no client has used it yet");
        let client = || {
            let kinds = Kinds::default().with(PostgresKind::new()).with(MysqlKind::new());
            let builder = Coordinator::builder().kinds(kinds).nodes([databases.url(databases.address(0))]);
            builder.restart_guard(RestartGuard::Off).build().unwrap()
        };
        let (coordinator, other) = (client(), client());
        let alone = coordinator.lock("alone").label("worker-2.1-5").acquire().await.unwrap();
        let shared = coordinator.lock("shared").label("worker-1.1-7").shared().acquire().await.unwrap();

        let seen = databases.inspect(0, "node-1").await.unwrap();
        let key = |of: &str| {
            seen.iter().find_map(|what| {
                let What::Key { resource, attempt, remaining, .. } = what else { return None };
                (resource.as_str() == of).then(|| (attempt.as_str().to_owned(), *remaining))
            })
        };
        for (resource, label) in [("alone", "worker-2.1-5"), ("shared", "worker-1.1-7")] {
            let (attempt, remaining) = key(resource).unwrap();
            assert_eq!(attempt, label);
            assert!(remaining <= Duration::from_secs(30) && !remaining.is_zero(), "{remaining:?}");
        }
        let token = u64::from(alone.fencing_token());
        let resource = quorlock::protocol::fence_counter("", "alone").as_str().into();
        let counter = What::Counter { node: "node-1".into(), resource, value: token };
        assert!(seen.contains(&counter), "{counter:?} of {seen:?}");
        let mut left = databases.left_behind(0).await.unwrap().unwrap();
        left.sort();
        assert!(left.contains(&"a lock of alone".to_owned()), "{left:?}");
        assert!(left.iter().any(|row| row.contains("reader of shared")), "{left:?}");

        let waiter =
            tokio::spawn(async move { other.lock("alone").acquire().await.unwrap().release().await });
        let waits = async || {
            let left = databases.left_behind(0).await.unwrap().unwrap();
            left.contains(&"a waiter of alone".to_owned())
        };
        until("the row of the waiter", waits).await;
        alone.release().await.unwrap();
        waiter.await.unwrap().unwrap();
        shared.release().await.unwrap();
        let nothing = async || databases.left_behind(0).await.unwrap() == Some(Vec::new());
        until("all rows to be deleted", nothing).await;
        let keys = databases.inspect(0, "node-1").await.unwrap();
        assert!(!keys.iter().any(|what| matches!(what, What::Key { .. })), "{keys:?}");
    }

    #[tokio::test]
    async fn postgres_locks_readers_counters_and_leftovers_are_read() {
        stored_locks_are_seen(Engine::postgres()).await;
    }

    #[tokio::test]
    async fn mariadb_locks_readers_counters_and_leftovers_are_read() {
        stored_locks_are_seen(Engine::mariadb()).await;
    }
}
