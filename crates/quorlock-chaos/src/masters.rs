//! The masters of a run: processes of this machine, or containers of a compose project.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use futures::future::BoxFuture;

mod clocks;
mod compose;
mod processes;

pub(crate) use compose::Compose;
pub(crate) use processes::Processes;

/// What a master still knows after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    Kept,
    Gone,
}

/// What a fault needs of the masters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Need {
    Nothing,
    /// Processes that can be stopped and continued.
    Processes,
    /// A real server: the built-in one has no such setting.
    RealServer,
    /// A server whose clock can be bent.
    BentClock,
}

/// The masters, each by its number from 0 on.
pub(crate) trait Masters: Send + Sync {
    /// What they are, such as `5 × redis-server 7.0.15`.
    fn what(&self) -> String;

    fn address(&self, number: usize) -> SocketAddr;

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

    /// Moves its clock.
    fn step_clock(&self, number: usize, seconds: f64) -> io::Result<()>;

    /// Has its clock count so many seconds in one.
    fn clock_rate(&self, number: usize, rate: f64) -> io::Result<()>;

    /// Copies what the servers wrote to their logs into this folder.
    fn keep_logs<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, io::Result<()>>;
}
