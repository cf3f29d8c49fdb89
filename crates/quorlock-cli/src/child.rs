//! The command: a child process in a group of its own, so that whatever it starts is signalled
//! with it. Killing only a shell would leave what the shell started running without the lock.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::signal::unix::{self, SignalKind};

use crate::parent_death::die_with_parent;

/// A command that was started. Dropped before it was [reaped](Child::reap), it is killed: nothing
/// may run on that nobody watches.
pub(crate) struct Child {
    process: std::process::Child,
    /// The process is the leader of its group: both have this number.
    group: Pid,
    /// Tells that some child has changed.
    changes: unix::Signal,
    reaped: bool,
}

/// What became of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// It has ended, and is still to be reaped.
    Ended,
    /// It stands still because of a signal.
    Stopped(Signal),
}

impl Child {
    /// Starts `command` with the standard streams of this process.
    pub(crate) fn start(mut command: Command) -> io::Result<Child> {
        let changes = unix::signal(SignalKind::child())?;
        command.process_group(0);
        die_with_parent(&mut command);
        let process = command.spawn()?;
        let number = i32::try_from(process.id()).map_err(io::Error::other)?;
        Ok(Child { process, group: Pid::from_raw(number), changes, reaped: false })
    }

    /// Its process group.
    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// Waits until it ends or stands still.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(crate) async fn change(&mut self) -> io::Result<Change> {
        loop {
            if let Some(change) = self.look()? {
                return Ok(change);
            }
            self.changes.recv().await;
        }
    }

    /// Sends `signal` to the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        // The number cannot be somebody else's: the child has not been reaped. Nobody in the group
        // may be left to receive it, or it may have changed its user; then nothing can be done.
        if let Err(error) = killpg(self.group, signal)
            && error != Errno::ESRCH
        {
            tracing::warn!(group = %self.group, %signal, %error, "the command was not signalled");
        }
    }

    /// How it ended.
    pub(crate) fn reap(mut self) -> io::Result<ExitStatus> {
        let status = self.process.wait();
        self.reaped = true;
        status
    }

    /// A stop is reported once. An end is only looked at, so that the number of the group stays
    /// taken until nobody needs to signal it any more.
    fn look(&self) -> io::Result<Option<Change>> {
        let stops = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        match waitid(Id::Pid(self.group), stops) {
            Ok(WaitStatus::Stopped(_, signal)) => return Ok(Some(Change::Stopped(signal))),
            // No child that could still stop: it has ended.
            Ok(_) | Err(Errno::ECHILD) => {}
            Err(error) => return Err(error.into()),
        }
        let ends = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let still_alive = waitid(Id::Pid(self.group), ends)? == WaitStatus::StillAlive;
        Ok(if still_alive { None } else { Some(Change::Ended) })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::SIGKILL);
            // An error means that it has ended already.
            drop(self.process.wait());
        }
    }
}
