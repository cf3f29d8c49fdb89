//! The command with all that it has started: the process that it is, its group, the guardian of
//! that, and what has left the group.

use std::io;
use std::mem::replace;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use quorlock::protocol::Moment;
use rustix::process::{WaitOptions, WaitStatus, wait};

use super::descendants;
use super::guardian::Guardian;
use crate::child::{self, Child, signal_group};
use crate::failure::Failure;
use crate::runtime::sleep;
use crate::signals::Signals;

/// For what the lock is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeptFor {
    /// The command and its process group.
    Group,
    /// Also what has left the group, as daemons do.
    Descendants,
}

impl KeptFor {
    /// For all descendants, or an error where the system does not tell of them.
    pub(super) fn asked_for(descendants: bool) -> Result<KeptFor, Failure> {
        match descendants {
            false => Ok(KeptFor::Group),
            true if cfg!(target_os = "linux") => Ok(KeptFor::Descendants),
            true => Err(Failure::Usage(
                "--wait-for-descendants works on Linux only: keep the command in the foreground".to_owned(),
            )),
        }
    }
}

/// A command that was started under a lock. Dropped before it is over, its group is killed.
pub(super) struct Job {
    child: Child,
    kept_for: KeptFor,
    /// There for as long as the group has members. Another one is started if it is killed.
    guardian: Option<Guardian>,
    /// Until when the guardian may let the group live.
    until: Moment,
    /// Whether the command itself has ended, and others have not.
    lingers: bool,
    /// Its group is empty, and that number may belong to others.
    group_gone: bool,
    /// It was sent SIGKILL, so nothing is left that could be signalled.
    killed: bool,
    /// Until the next look, once the command itself has ended.
    pause: Duration,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// The command itself has ended; what it has started works on.
    Lingers(ExitStatus),
    /// All of it has ended. The status is that of the command itself.
    Over(ExitStatus),
    /// It stands still because of a signal.
    Stopped(Signal),
}

/// The children of this process.
struct Family {
    /// A signal that has stopped some of the group.
    stopped: Option<Signal>,
    /// Whether there are any.
    is_left: bool,
}

/// Most of what outlives its command does so for a moment.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// A look is three system calls.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

impl Job {
    /// Starts `command`. Its group lives until then at most, unless it is [trusted](Job::trust) for
    /// longer.
    pub(super) fn start(
        mut command: Command,
        kept_for: KeptFor,
        until: Moment,
        signals: &Signals,
    ) -> io::Result<Job> {
        descendants::adopt();
        let guardian = Guardian::start()?;
        guardian.guard_from_start(&mut command, until);
        let child = Child::start(command, signals)?;
        guardian.join(child.group());
        Ok(Job {
            child,
            kept_for,
            guardian: Some(guardian),
            until,
            lingers: false,
            group_gone: false,
            killed: false,
            pause: FIRST_PAUSE,
        })
    }

    /// Its process group.
    pub(super) fn group(&self) -> Pid {
        self.child.group()
    }

    /// Whether the command itself has ended.
    pub(super) fn lingers(&self) -> bool {
        self.lingers
    }

    /// Lets it live until then, if nothing more is heard from us.
    pub(super) fn trust(&mut self, until: Moment) {
        self.until = until;
        if let Some(guardian) = &mut self.guardian {
            guardian.trust(self.child.group(), until);
        }
    }

    /// Waits until it is over, or stands still, or the command itself has ended.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(super) async fn change(&mut self) -> io::Result<Change> {
        loop {
            if let Some(change) = self.look()? {
                return Ok(change);
            }
            if !self.lingers {
                self.child.changed().await;
                continue;
            }
            // The end of a process whose parent left the group and lives on is not announced.
            let pause = self.pause;
            tokio::select! {
                () = self.child.changed() => {}
                () = sleep(pause) => self.pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }

    /// Sends `signal` to all of it.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.killed {
            return;
        }
        self.killed = signal == Signal::SIGKILL;
        if self.child.status().is_none() {
            self.child.signal(signal);
        } else if !self.group_gone {
            // The number is the group's own: the guardian is a member.
            signal_group(self.group(), signal);
        }
        if self.kept_for == KeptFor::Descendants {
            self.signal_adopted(signal);
        }
        if let Some(guardian) = self.guardian.as_ref().filter(|_| signal == Signal::SIGSTOP) {
            guardian.go_on();
        }
    }

    fn look(&mut self) -> io::Result<Option<Change>> {
        let mut family = self.reap()?;
        if let Some(signal) = family.stopped {
            return Ok(Some(Change::Stopped(signal)));
        }
        let Some(status) = self.child.status() else {
            self.keep_guarded();
            return Ok(None);
        };
        if !self.group_gone && !self.group_lives() {
            self.group_gone = true;
            self.guardian = None;
            family = self.reap()?;
        }
        let descendants = self.kept_for == KeptFor::Descendants && family.is_left;
        if self.group_gone && !descendants {
            return Ok(Some(Change::Over(status)));
        }
        if self.killed && self.kept_for == KeptFor::Descendants {
            // Those whose parents were killed before are our children now.
            self.signal_adopted(Signal::SIGKILL);
        }
        Ok((!replace(&mut self.lingers, true)).then_some(Change::Lingers(status)))
    }

    /// Reaps all children that have ended: those that we have adopted, too, which is the whole of a
    /// container for its first process.
    fn reap(&mut self) -> io::Result<Family> {
        let mut stopped = None;
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((number, status))) => {
                    let number = Pid::from_raw(number.as_raw_nonzero().get());
                    stopped = self.note(number, status).or(stopped);
                }
                Ok(None) => return Ok(Family { stopped, is_left: true }),
                Err(rustix::io::Errno::CHILD) => return Ok(Family { stopped, is_left: false }),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn note(&mut self, number: Pid, status: WaitStatus) -> Option<Signal> {
        if number == self.group() && self.child.status().is_none() {
            return match self.child.note(status)? {
                child::Change::Stopped(signal) => Some(signal),
                child::Change::Ended(_) => None,
            };
        }
        if let Some(guardian) = self.guardian.take_if(|guardian| guardian.number() == number) {
            if status.stopped() {
                guardian.go_on();
                self.guardian = Some(guardian);
            } else {
                guardian.was_reaped();
            }
            return None;
        }
        // While the command itself is there, it alone says whether the job stands still.
        let counts = self.lingers && getpgid(Some(number)) == Ok(self.group());
        status.stopping_signal().filter(|_| counts).and_then(|signal| Signal::try_from(signal).ok())
    }

    /// Whether the group has a member other than the guardian, which is asked while that is outside:
    /// then the answer is that of one system call, and misses nothing that is being forked.
    fn group_lives(&mut self) -> bool {
        if let Some(guardian) = &self.guardian {
            guardian.step_out();
        }
        if killpg(self.group(), None) == Err(Errno::ESRCH) {
            return false;
        }
        self.keep_guarded();
        self.guardian.as_ref().is_none_or(|guardian| guardian.join(self.group()))
    }

    /// Starts another guardian if somebody has killed the last one.
    fn keep_guarded(&mut self) {
        if self.guardian.is_some() || self.killed {
            return;
        }
        match Guardian::start() {
            Ok(mut guardian) => {
                guardian.join(self.group());
                guardian.trust(self.group(), self.until);
                self.guardian = Some(guardian);
            }
            Err(error) => tracing::warn!(%error, "the command has no guardian"),
        }
    }

    /// Sends `signal` to those of our children that are not in the group.
    fn signal_adopted(&self, signal: Signal) {
        let guardian = self.guardian.as_ref().map(Guardian::number);
        for number in descendants::children() {
            if Some(number) != guardian && getpgid(Some(number)) != Ok(self.group()) {
                // Its number is its own: nobody but us can reap it. It may have changed its user.
                let _ = kill(number, signal);
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.child.status().is_some() && !self.group_gone {
            signal_group(self.group(), Signal::SIGKILL);
        }
    }
}
