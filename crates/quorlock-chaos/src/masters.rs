//! The masters of a run: processes of this machine, databases among them, or containers of a compose
//! project.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use futures::future::BoxFuture;
use quorlock_history::What;

use crate::inspector;

mod clocks;
mod compose;
mod databases;
mod processes;

pub(crate) use compose::Compose;
pub(crate) use databases::{Databases, Extras};
pub(crate) use processes::Processes;

/// What a master still knows after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    Kept,
    Gone,
}

/// What becomes of a primary when its standby takes its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Primary {
    /// It is killed before.
    Killed,
    /// It goes on, and no client reaches it any more.
    CutOff,
}

/// What a fault needs of the masters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Need {
    Nothing,
    /// Processes that can be stopped and continued.
    Processes,
    /// A server that takes commands of Redis.
    Redis,
    /// A real server of Redis: the built-in one has no such setting.
    RealServer,
    /// A server whose clock can be bent.
    BentClock,
    /// A server with a process for each client.
    Backends,
    /// A standby that can take the place of its primary.
    Standby,
    /// A small disk of its own.
    SmallDisk,
}

/// The masters, each by its number from 0 on.
pub(crate) trait Masters: Send + Sync {
    /// What they are, such as `5 × redis-server 7.0.15`.
    fn what(&self) -> String;

    fn address(&self, number: usize) -> SocketAddr;

    /// How clients reach it by way of this address, which is its own or that of a proxy.
    fn url(&self, address: SocketAddr) -> String {
        format!("redis://{address}")
    }

    /// What it has stored of locks, read behind the library's back. `name` is its name in the record.
    fn inspect<'a>(&'a self, number: usize, name: &'a str) -> BoxFuture<'a, io::Result<Vec<What>>> {
        Box::pin(inspector::inspect_server(self.address(number), name))
    }

    /// The rows of a database that should be gone by now, if it is one. What has expired is deleted
    /// before.
    fn left_behind(&self, number: usize) -> BoxFuture<'_, io::Result<Option<Vec<String>>>> {
        let _ = number;
        Box::pin(async { Ok(None) })
    }

    /// What a master knows after it was killed and restarted with its data.
    fn memory(&self) -> Memory;

    /// How many there are, where a scenario has no say in it.
    fn count(&self) -> Option<usize> {
        None
    }

    /// Whether faults that need this can be done; the reason if not.
    fn offers(&self, need: Need) -> Result<(), String>;

    /// SIGKILL, and waits for its end.
    fn kill(&self, number: usize) -> BoxFuture<'_, io::Result<()>>;

    /// Starts it again, and waits until it answers.
    fn restart(&self, number: usize, memory: Memory) -> BoxFuture<'_, io::Result<()>>;

    /// SIGSTOP.
    fn freeze(&self, number: usize) -> BoxFuture<'_, io::Result<()>>;

    /// SIGCONT.
    fn thaw(&self, number: usize) -> BoxFuture<'_, io::Result<()>>;

    /// SIGSTOP for the processes that serve the clients of now.
    fn stop_backends(&self, _number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// SIGCONT for them.
    fn continue_backends(&self, _number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Has its standby receive nothing from now on.
    fn hold_standby(&self, _number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Promotes its standby, to which its address leads from then on. `primary` says what becomes of
    /// the server that was the primary.
    fn promote(&self, _number: usize, _primary: Primary) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Ends the server that was the primary, and gives the promoted one a standby.
    fn follow(&self, _number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Fills its disk.
    fn fill_disk(&self, _number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Makes room on it again, and waits until the master answers.
    fn free_disk(&self, _number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Moves its clock.
    fn step_clock(&self, number: usize, seconds: f64) -> io::Result<()>;

    /// Has its clock count so many seconds in one.
    fn clock_rate(&self, number: usize, rate: f64) -> io::Result<()>;

    /// Copies what the servers wrote to their logs into this folder.
    fn keep_logs<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, io::Result<()>>;
}
