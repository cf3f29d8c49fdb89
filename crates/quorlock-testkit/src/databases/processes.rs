//! The processes of a server: the one that was started, and those that it has started for its clients.

use std::fs;
use std::io;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

/// A server that was started here. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    /// Whether it has a process for each connection.
    forks: bool,
}

/// Which of the processes that a server has started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    All,
    /// Those that serve clients.
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

    /// SIGKILL for the process that was started, as `kill -9` does; the others notice it and end.
    pub(super) fn kill(&mut self) {
        // Errors mean that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// SIGSTOP for the server with all its processes.
    pub(super) fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        self.tell(Which::All, Signal::STOP)
    }

    /// SIGCONT for all of them.
    pub(super) fn thaw(&self) -> io::Result<()> {
        self.tell(Which::All, Signal::CONT)?;
        self.signal(Signal::CONT)
    }

    /// SIGSTOP for those that serve clients; the server goes on and serves new ones.
    pub(super) fn stop_backends(&self) -> io::Result<()> {
        // While it is stopped none of its children is waited for, so that each number stays theirs.
        self.signal(Signal::STOP)?;
        let told = self.tell(Which::Backends, Signal::STOP);
        self.signal(Signal::CONT)?;
        told
    }

    /// SIGCONT for them.
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
                // One that has ended needs no signal.
                let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
                let _ = pid.map(|pid| kill_process(pid, signal));
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its number may be another's once it was waited for.
        if self.has_ended() {
            return;
        }
        // An immediate shutdown, in which it ends its processes and gives its shared memory back.
        if !self.forks || self.thaw().is_err() || self.signal(Signal::QUIT).is_err() {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}

/// The processes that this one has started, as `/proc` has them. None elsewhere than on Linux.
fn children_of(parent: u32) -> io::Result<Vec<u32>> {
    if !cfg!(target_os = "linux") {
        return Ok(Vec::new());
    }
    let numbers = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|&number| parent_of(number) == Some(parent)).collect())
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the name, which may hold anything: state and parent.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// `postgres: USER DATABASE HOST(PORT) …`; others are called by what they do.
fn is_backend(process: u32) -> bool {
    fs::read(format!("/proc/{process}/cmdline"))
        .is_ok_and(|line| String::from_utf8_lossy(&line).starts_with("postgres: postgres postgres "))
}
