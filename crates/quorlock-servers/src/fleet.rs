//! The servers of one kind of node, whichever it is.

use std::io;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, try_join_all};

use crate::{Database, Engine, EtcdCluster, Server, Servers, ZooKeeperCluster};

/// Servers of one kind on this machine, each a node or all together one. They end when this is dropped.
pub trait Fleet: Send + Sync {
    /// Returns the addresses of the nodes.
    fn urls(&self) -> Vec<String>;

    /// Returns which program they run, with its version.
    fn program(&self) -> String;

    /// Returns how many there are of it, where each is a node.
    fn summary(&self) -> String {
        match self.urls().len() {
            0 | 1 => self.program(),
            nodes => format!("{nodes} × {}", self.program()),
        }
    }

    /// Whether they keep their data across a restart.
    fn remembers(&self) -> bool {
        true
    }

    /// Returns a TTL that outlasts an election, where the servers hold one.
    fn ttl(&self) -> Duration {
        Duration::from_secs(3)
    }

    /// Sends SIGKILL to the server with this number, from 0.
    fn kill(&self, server: usize);

    /// Restarts the server with this number, with the data on its disk if it keeps any, and waits until it answers, which
    /// a member of a cluster does once most of them run.
    fn restart(&self, server: usize) -> BoxFuture<'_, io::Result<()>>;
}

/// Returns the error of a number that no server has.
fn no_such(server: usize) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no server {server}"))
}

impl Fleet for Servers {
    fn urls(&self) -> Vec<String> {
        Servers::urls(self)
    }

    fn program(&self) -> String {
        self.kind().to_string()
    }

    fn remembers(&self) -> bool {
        false
    }

    fn kill(&self, server: usize) {
        self.get(server).into_iter().for_each(Server::kill);
    }

    fn restart(&self, server: usize) -> BoxFuture<'_, io::Result<()>> {
        async move { self.get(server).ok_or_else(|| no_such(server))?.restart_empty().await }.boxed()
    }
}

impl Engine {
    /// Starts `count` servers simultaneously.
    ///
    /// # Errors
    ///
    /// As [`start`](Engine::start).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends what has started.
    pub async fn start_several(&self, count: usize) -> io::Result<Vec<Database>> {
        try_join_all((0..count).map(|_| self.start())).await
    }
}

impl Fleet for Vec<Database> {
    fn urls(&self) -> Vec<String> {
        self.iter().map(Database::url).collect()
    }

    fn program(&self) -> String {
        self.first().map(|database| database.engine().to_string()).unwrap_or_default()
    }

    fn kill(&self, server: usize) {
        self.get(server).into_iter().for_each(Database::kill);
    }

    fn restart(&self, server: usize) -> BoxFuture<'_, io::Result<()>> {
        async move { self.get(server).ok_or_else(|| no_such(server))?.restart_with_data().await }.boxed()
    }
}

/// A cluster is one node. A new leader is elected within the TTL.
macro_rules! of_a_cluster {
    ($cluster:ty, $url:expr) => {
        impl Fleet for $cluster {
            fn urls(&self) -> Vec<String> {
                let url: fn(&$cluster) -> String = $url;
                vec![url(self)]
            }

            fn program(&self) -> String {
                self.programs().to_string()
            }

            fn ttl(&self) -> Duration {
                Duration::from_secs(6)
            }

            fn kill(&self, server: usize) {
                <$cluster>::kill(self, server);
            }

            fn restart(&self, server: usize) -> BoxFuture<'_, io::Result<()>> {
                <$cluster>::restart(self, server).boxed()
            }
        }
    };
}

of_a_cluster!(EtcdCluster, EtcdCluster::url);
of_a_cluster!(ZooKeeperCluster, |cluster| format!("{}/demo?session=3s", cluster.url()));
