//! The servers of a demonstration: Redis, or databases.

use std::fmt;
use std::io;
use std::ops::Range;
use std::time::Duration;

use futures::future::try_join_all;
use quorlock_servers::{
    Database, Engine, EtcdCluster, EtcdPrograms, Server, Servers, ZooKeeperCluster, ZooKeeperPrograms,
};

/// What to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(super) enum ServerKind {
    /// Redis or Valkey, or built-in stand-ins
    #[default]
    Redis,
    /// PostgreSQL, which must be installed
    Postgres,
    /// MariaDB, which must be installed
    #[value(name = "mariadb")]
    MariaDb,
    /// A cluster of etcd, which must be installed
    Etcd,
    /// An ensemble of ZooKeeper, of which the jars must be there
    #[value(name = "zookeeper")]
    ZooKeeper,
}

/// Servers, stopped on drop.
pub(super) enum Fleet {
    Redis(Servers),
    Databases(Engine, Vec<Database>),
    /// One node, which is a cluster.
    Etcd(EtcdPrograms, EtcdCluster),
    ZooKeeper(ZooKeeperPrograms, ZooKeeperCluster),
}

impl Fleet {
    /// Starts `count` servers, and waits until all of them answer.
    pub(super) async fn start(kind: ServerKind, count: usize) -> io::Result<Fleet> {
        let engine = match kind {
            ServerKind::Redis => {
                return Ok(Fleet::Redis(Servers::start(count).await?));
            }
            ServerKind::Etcd => {
                let programs = EtcdPrograms::find()?;
                let cluster = programs.start(count).await?;
                return Ok(Fleet::Etcd(programs, cluster));
            }
            ServerKind::ZooKeeper => {
                let programs = ZooKeeperPrograms::find()?;
                let cluster = programs.start(count).await?;
                return Ok(Fleet::ZooKeeper(programs, cluster));
            }
            ServerKind::Postgres => Engine::postgres()?,
            ServerKind::MariaDb => Engine::mariadb()?,
        };
        let databases = try_join_all((0..count).map(|_| engine.start())).await?;
        Ok(Fleet::Databases(engine, databases))
    }

    /// Returns the address of each, in order.
    pub(super) fn urls(&self) -> Vec<String> {
        match self {
            Fleet::Redis(servers) => servers.urls(),
            Fleet::Databases(_, databases) => databases.iter().map(Database::url).collect(),
            Fleet::Etcd(_, cluster) => vec![cluster.url()],
            Fleet::ZooKeeper(_, cluster) => vec![format!("{}/demo?session=3s", cluster.url())],
        }
    }

    /// Returns which servers these are.
    pub(super) fn kind(&self) -> &dyn fmt::Display {
        match self {
            Fleet::Redis(servers) => servers.kind(),
            Fleet::Databases(engine, _) => engine,
            Fleet::Etcd(programs, _) => programs,
            Fleet::ZooKeeper(programs, _) => programs,
        }
    }

    /// Returns the TTL of the story's lock: short, but long enough for an election where the servers hold one.
    pub(super) fn ttl(&self) -> Duration {
        match self {
            Fleet::Redis(_) | Fleet::Databases(..) => Duration::from_millis(1500),
            Fleet::Etcd(..) | Fleet::ZooKeeper(..) => Duration::from_secs(6),
        }
    }

    /// Whether they keep their data across a restart.
    pub(super) fn remember(&self) -> bool {
        matches!(self, Fleet::Databases(..) | Fleet::Etcd(..) | Fleet::ZooKeeper(..))
    }

    /// Sends SIGKILL to these.
    pub(super) fn kill(&self, which: Range<usize>) {
        match self {
            Fleet::Redis(servers) => servers.get(which).into_iter().flatten().for_each(Server::kill),
            Fleet::Databases(_, databases) => {
                databases.get(which).into_iter().flatten().for_each(Database::kill);
            }
            Fleet::Etcd(_, cluster) => which.for_each(|member| cluster.kill(member)),
            Fleet::ZooKeeper(_, cluster) => which.for_each(|member| cluster.kill(member)),
        }
    }

    /// Restarts these, with the data on their disks if they keep any.
    pub(super) async fn restart(&self, which: Range<usize>) -> io::Result<()> {
        match self {
            Fleet::Redis(servers) => {
                for server in servers.get(which).into_iter().flatten() {
                    server.restart_empty().await?;
                }
            }
            Fleet::Databases(_, databases) => {
                for database in databases.get(which).into_iter().flatten() {
                    database.restart_with_data().await?;
                }
            }
            Fleet::Etcd(_, cluster) => {
                // None answers before most of them run.
                try_join_all(which.map(|member| cluster.restart(member))).await?;
            }
            Fleet::ZooKeeper(_, cluster) => {
                try_join_all(which.map(|member| cluster.restart(member))).await?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fleet::Redis(servers) => servers.fmt(f),
            Fleet::Databases(engine, databases) => write!(f, "{} × {engine}", databases.len()),
            Fleet::Etcd(programs, _) => programs.fmt(f),
            Fleet::ZooKeeper(programs, _) => programs.fmt(f),
        }
    }
}
