//! The masters of a run: Redis servers, databases or members of a cluster as local processes, or containers of a compose
//! project.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use futures::future::BoxFuture;
use quorlock_history::What;

mod clocks;
mod compose;
mod databases;
mod etcd;
mod members;
mod processes;
mod redis;
mod zookeeper;

pub(crate) use compose::Compose;
pub(crate) use databases::{Databases, Extras};
pub(crate) use etcd::Etcd;
pub(crate) use processes::Processes;
pub(crate) use zookeeper::ZooKeeper;

/// Whether a master keeps its data when it restarts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    Kept,
    Gone,
}

/// What happens to a primary when its standby is promoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Primary {
    /// It is killed before the promotion.
    Killed,
    /// It runs on, but no client reaches it.
    CutOff,
}

/// What a fault requires of the masters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Need {
    Nothing,
    /// Processes that can receive SIGSTOP and SIGCONT.
    Processes,
    /// A server that accepts Redis commands.
    Redis,
    /// A real Redis server: the built-in one has no such setting.
    RealServer,
    /// A server whose clock can be changed.
    BentClock,
    /// A server with a process for each client.
    Backends,
    /// A standby that can be promoted.
    Standby,
    /// A small disk of its own.
    SmallDisk,
    /// Other members of its cluster, from which it can be cut off.
    Peers,
    /// A disk whose writes can be delayed.
    HangingDisk,
}

/// The masters, numbered from 0.
pub(crate) trait Masters: Send + Sync {
    /// Describes the servers, such as `5 × redis-server 7.0.15`.
    fn what(&self) -> String;

    fn address(&self, number: usize) -> SocketAddr;

    /// Returns the URL for clients that reach it at this address, which is its own or that of a proxy.
    fn url(&self, address: SocketAddr) -> String {
        let login = self.password().map_or_else(String::new, |password| format!(":{password}@"));
        format!("redis://{login}{address}")
    }

    /// Returns the URLs of the nodes for a client that reaches the masters at these addresses.
    fn urls(&self, addresses: &[SocketAddr]) -> Vec<String> {
        addresses.iter().map(|address| self.url(*address)).collect()
    }

    /// Returns the password of all of them, if they are Redis servers with one.
    fn password(&self) -> Option<&str> {
        None
    }

    /// Reads the locks that it stores, without the library. `name` is its name in the record.
    fn inspect<'a>(&'a self, number: usize, name: &'a str) -> BoxFuture<'a, io::Result<Vec<What>>> {
        Box::pin(redis::inspect(self.address(number), self.password(), name))
    }

    /// Deletes expired rows and returns the remaining ones that should be gone; `None` if the master is no
    /// database.
    fn left_behind(&self, number: usize) -> BoxFuture<'_, io::Result<Option<Vec<String>>>> {
        let _ = number;
        Box::pin(async { Ok(None) })
    }

    /// Returns whether a master keeps its data when it is killed and restarted.
    fn memory(&self) -> Memory;

    /// Returns how many masters there are, if a scenario cannot choose.
    fn count(&self) -> Option<usize> {
        None
    }

    /// Checks whether faults with this requirement can be injected.
    ///
    /// # Errors
    ///
    /// The reason if they cannot.
    fn offers(&self, need: Need) -> Result<(), String>;

    /// Prepares them for a run that they can serve.
    fn prepare(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Sends SIGKILL and waits for the exit.
    fn kill(&self, number: usize) -> BoxFuture<'_, io::Result<()>>;

    /// Starts it again and waits until it answers.
    fn restart(&self, number: usize, memory: Memory) -> BoxFuture<'_, io::Result<()>>;

    /// SIGSTOP.
    fn freeze(&self, number: usize) -> BoxFuture<'_, io::Result<()>>;

    /// SIGCONT.
    fn thaw(&self, number: usize) -> BoxFuture<'_, io::Result<()>>;

    /// Sends SIGSTOP to the backends of the current connections.
    fn stop_backends(&self, _number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Sends SIGCONT to them.
    fn continue_backends(&self, _number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Stops the replication to its standby.
    fn hold_standby(&self, _number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Promotes its standby and moves the node's address to it. `primary` chooses what happens to the old
    /// primary.
    fn promote(&self, _number: usize, _primary: Primary) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Stops the old primary and starts a standby for the new one.
    fn follow(&self, _number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Cuts it off from the other members of its cluster, or joins it again.
    fn cut_off(&self, _number: usize, _is_off: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes its disk hang.
    fn hang_disk(&self, _number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Fills its disk.
    fn fill_disk(&self, _number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Frees its disk, full or hanging, and waits until the master answers.
    fn free_disk(&self, _number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Makes its clock jump.
    fn step_clock(&self, _number: usize, _seconds: f64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets how many seconds its clock counts per second.
    fn clock_rate(&self, _number: usize, _rate: f64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Copies the logs of the servers to this folder.
    fn keep_logs<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, io::Result<()>>;
}
