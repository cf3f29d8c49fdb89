//! The processes of a server: the one that was started, and its children that serve clients.

use std::fs;
use std::io;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

/// A server that was started here. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    /// Whether it has one process per connection.
    forks: bool,
}

/// A selection of the child processes of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    All,
    /// The processes that serve clients.
    Backends,
}

impl Running {
    pub(super) fn new(child: Child, forks: bool) -> Running {
        Running { child, forks }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGKILL to the process that was started, as `kill -9` does; the others notice it and end.
    pub(super) fn kill(&mut self) {
        // Errors mean that it has already ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Sends SIGSTOP to the server and all its processes.
    pub(super) fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        self.tell(Which::All, Signal::STOP)
    }

    /// Sends SIGCONT to all of them.
    pub(super) fn thaw(&self) -> io::Result<()> {
        self.tell(Which::All, Signal::CONT)?;
        self.signal(Signal::CONT)
    }

    /// Sends SIGSTOP to the processes that serve clients; the server keeps running and serves new ones.
    pub(super) fn stop_backends(&self) -> io::Result<()> {
        // While the server is stopped it reaps no children, so that no PID is reused.
        self.signal(Signal::STOP)?;
        let told = self.tell(Which::Backends, Signal::STOP);
        self.signal(Signal::CONT)?;
        told
    }

    /// Sends SIGCONT to them.
    pub(super) fn continue_backends(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let told = self.tell(Which::All, Signal::CONT);
        self.signal(Signal::CONT)?;
        told
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    fn tell(&self, which: Which, signal: Signal) -> io::Result<()> {
        for child in children_of(self.child.id())? {
            if which == Which::All || is_backend(child) {
                // A process that has ended needs no signal.
                let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
                let _ = pid.map(|pid| kill_process(pid, signal));
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Once it was waited for, its PID may belong to another process.
        if self.has_ended() {
            return;
        }
        // An immediate shutdown, which ends its child processes and frees its shared memory.
        if !self.forks || self.thaw().is_err() || self.signal(Signal::QUIT).is_err() {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}

/// Returns the child processes, from `/proc`; none on other systems than Linux.
fn children_of(parent: u32) -> io::Result<Vec<u32>> {
    if !cfg!(target_os = "linux") {
        return Ok(Vec::new());
    }
    let numbers = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|&number| parent_of(number) == Some(parent)).collect())
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the name, which may contain anything: state and parent.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Whether its title is `postgres: USER DATABASE HOST(PORT) …`; other processes are named after their task.
fn is_backend(process: u32) -> bool {
    fs::read(format!("/proc/{process}/cmdline"))
        .is_ok_and(|line| String::from_utf8_lossy(&line).starts_with("postgres: postgres postgres "))
}
