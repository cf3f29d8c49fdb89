//! The command: a child process in a process group of its own, so that what it starts is signalled with it. Killing
//! only a shell would leave what the shell started running.

use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use quorlock_config::die_with_parent;
use rustix::process::{WaitOptions, WaitStatus, waitpid};
use tokio::signal::unix::{self, SignalKind};

use crate::closed::keep_closed;
use crate::signals::Signals;

/// A running command. Dropping it before its end kills it: nothing may run unwatched.
pub(crate) struct Child {
    /// Its process id, and that of the group that it leads.
    number: Pid,
    /// SIGCHLD.
    changes: unix::Signal,
    /// Set once it has ended and been reaped.
    status: Option<ExitStatus>,
}

/// What happened to a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// It has ended and been reaped.
    Ended(ExitStatus),
    /// A signal stopped it.
    Stopped(Signal),
}

impl Child {
    /// Starts `command` with the standard streams of this process, and with those signals ignored that were
    /// ignored when `signals` began to listen.
    pub(crate) fn start(mut command: Command, signals: &Signals) -> io::Result<Child> {
        let changes = unix::signal(SignalKind::child())?;
        command.process_group(0);
        signals.keep_ignored(&mut command);
        keep_closed(&mut command);
        die_with_parent(&mut command);
        let process = command.spawn()?;
        let number = i32::try_from(process.id()).map_err(io::Error::other)?;
        Ok(Child { number: Pid::from_raw(number), changes, status: None })
    }

    /// Returns its process group, whose id is that of the process.
    pub(crate) fn group(&self) -> Pid {
        self.number
    }

    /// Returns its exit status, once it has ended.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Waits until it ends or is stopped, and reaps no other child.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(crate) async fn change(&mut self) -> io::Result<Change> {
        loop {
            let number = rustix::process::Pid::from_raw(self.number.as_raw());
            let status = waitpid(number, WaitOptions::NOHANG | WaitOptions::UNTRACED)?;
            if let Some(change) = status.and_then(|(_, status)| self.note(status)) {
                return Ok(change);
            }
            self.changed().await;
        }
    }

    /// Waits until some child of this process has changed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(crate) async fn changed(&mut self) {
        self.changes.recv().await;
    }

    /// Records a `status` of this child from `waitpid`.
    pub(crate) fn note(&mut self, status: WaitStatus) -> Option<Change> {
        if let Some(signal) = status.stopping_signal() {
            return Signal::try_from(signal).ok().map(Change::Stopped);
        }
        if status.continued() {
            return None;
        }
        let status = ExitStatus::from_raw(status.as_raw());
        self.status = Some(status);
        Some(Change::Ended(status))
    }

    /// Sends `signal` to the whole group and to the process itself, unless that has been reaped: its id may be
    /// reused then.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.status.is_some() {
            return;
        }
        signal_group(self.number, signal);
        if getpgid(Some(self.number)) != Ok(self.number) {
            // It moved to another group. An error means that it has ended, or has changed its user.
            let _ = kill(self.number, signal);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.signal(Signal::SIGKILL);
            // An error means that it has been reaped already.
            let _ = waitpid(rustix::process::Pid::from_raw(self.number.as_raw()), WaitOptions::empty());
        }
    }
}

/// As [`signal_group`], for a signal without a name.
#[expect(unsafe_code, reason = "the crates with safe functions know no real-time signals")]
pub(crate) fn signal_group_in_real_time(group: Pid, number: i32) {
    // SAFETY: a system call with two numbers. An error means that the group is empty, or of another user.
    let _ = unsafe { nix::libc::killpg(group.as_raw(), number) };
}

/// Sends `signal` to `group`, whose id must be known not to be reused.
pub(crate) fn signal_group(group: Pid, signal: Signal) {
    // The group may be empty, or of another user; then nothing can be done.
    if let Err(error) = killpg(group, signal)
        && error != Errno::ESRCH
    {
        tracing::warn!(%group, %signal, %error, "the command was not signalled");
    }
}
