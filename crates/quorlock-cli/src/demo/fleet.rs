//! The servers of a demonstration: Redis, or databases.

use std::fmt;
use std::io;
use std::ops::Range;

use futures::future::try_join_all;
use quorlock_testkit::{Database, Engine, Server, Servers};

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
}

/// Servers, stopped on drop.
pub(super) enum Fleet {
    Redis(Servers),
    Databases(Engine, Vec<Database>),
}

impl Fleet {
    /// Starts `count` servers, and waits until all of them answer.
    pub(super) async fn start(kind: ServerKind, count: usize) -> io::Result<Fleet> {
        let engine = match kind {
            ServerKind::Redis => {
                return Ok(Fleet::Redis(Servers::start(count).await?));
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
        }
    }

    /// Returns which servers these are.
    pub(super) fn kind(&self) -> &dyn fmt::Display {
        match self {
            Fleet::Redis(servers) => servers.kind(),
            Fleet::Databases(engine, _) => engine,
        }
    }

    /// Whether they keep their data across a restart.
    pub(super) fn remember(&self) -> bool {
        matches!(self, Fleet::Databases(..))
    }

    /// Sends SIGKILL to these.
    pub(super) fn kill(&self, which: Range<usize>) {
        match self {
            Fleet::Redis(servers) => servers.get(which).into_iter().flatten().for_each(Server::kill),
            Fleet::Databases(_, databases) => {
                databases.get(which).into_iter().flatten().for_each(Database::kill);
            }
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
        }
        Ok(())
    }
}

impl fmt::Display for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fleet::Redis(servers) => servers.fmt(f),
            Fleet::Databases(engine, databases) => write!(f, "{} × {engine}", databases.len()),
        }
    }
}
