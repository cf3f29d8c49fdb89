//! The servers of a demonstration: of Redis, or of databases.

use std::fmt;
use std::io;
use std::ops::Range;

use futures::future::try_join_all;
use quorlock_testkit::{Database, Engine, Server, Servers};

/// What to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(super) enum ServerKind {
    /// Redis or Valkey, or stand-ins that are built in
    #[default]
    Redis,
    /// PostgreSQL, which has to be installed
    Postgres,
    /// MariaDB, which has to be installed
    #[value(name = "mariadb")]
    MariaDb,
}

/// Servers that end when this is dropped.
pub(super) enum Fleet {
    Redis(Servers),
    Databases(Engine, Vec<Database>),
}

impl Fleet {
    /// Starts this many servers, and waits until all of them answer.
    pub(super) async fn start(kind: ServerKind, count: usize) -> io::Result<Fleet> {
        let engine = match kind {
            ServerKind::Redis => return Ok(Fleet::Redis(Servers::start(count).await?)),
            ServerKind::Postgres => Engine::postgres()?,
            ServerKind::MariaDb => Engine::mariadb()?,
        };
        let databases = try_join_all((0..count).map(|_| engine.start())).await?;
        Ok(Fleet::Databases(engine, databases))
    }

    /// The address of each, in order.
    pub(super) fn urls(&self) -> Vec<String> {
        match self {
            Fleet::Redis(servers) => servers.urls(),
            Fleet::Databases(_, databases) => databases.iter().map(Database::url).collect(),
        }
    }

    /// What runs.
    pub(super) fn kind(&self) -> &dyn fmt::Display {
        match self {
            Fleet::Redis(servers) => servers.kind(),
            Fleet::Databases(engine, _) => engine,
        }
    }

    /// Whether they still know after a restart what they knew before.
    pub(super) fn remember(&self) -> bool {
        matches!(self, Fleet::Databases(..))
    }

    /// SIGKILL for these.
    pub(super) fn kill(&self, which: Range<usize>) {
        match self {
            Fleet::Redis(servers) => servers.get(which).into_iter().flatten().for_each(Server::kill),
            Fleet::Databases(_, databases) => {
                databases.get(which).into_iter().flatten().for_each(Database::kill);
            }
        }
    }

    /// Starts these again: with what is on their disks, if they have any.
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
