//! The command with everything it started: its process, its process group, the guardian of the group, and
//! processes that have left the group.

use std::io;
use std::mem::replace;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use quorlock::protocol::Moment;
use rustix::process::{WaitOptions, WaitStatus, wait};

use super::descendants;
use super::guardian::{self, Guardian};
use crate::child::{self, Child, signal_group, signal_group_in_real_time};
use crate::config::Settings;
use crate::failure::Failure;
use crate::runtime::sleep;
use crate::signals::Signals;

/// What the lock is kept for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeptFor {
    /// The command and its process group.
    Group,
    /// Also processes that left the group, such as daemons.
    Descendants,
}

impl KeptFor {
    /// Returns what was asked for, or an error where the system does not support it.
    pub(super) fn asked_for(descendants: bool, settings: &Settings) -> Result<KeptFor, Failure> {
        match descendants {
            false => Ok(KeptFor::Group),
            // It would be waited for, and killed with them.
            true if settings.has_programs() => Err(Failure::Usage(
                "--wait-for-descendants cannot tell what the command leaves behind from the program of an `exec:` node: \
                 keep the command in the foreground, and leave the option out"
                    .to_owned(),
            )),
            true if cfg!(target_os = "linux") => Ok(KeptFor::Descendants),
            true => Err(Failure::Usage(
                "--wait-for-descendants works on Linux only: keep the command in the foreground".to_owned(),
            )),
        }
    }
}

/// A command under a lock. Dropping it before its end kills its group.
pub(super) struct Job {
    child: Child,
    kept_for: KeptFor,
    /// Present while the group has members; replaced if it is killed.
    guardian: Option<Guardian>,
    /// When the guardian kills the group.
    until: Moment,
    /// Whether the command itself has ended, but processes that it started have not.
    lingers: bool,
    /// The signal that ended the command itself, if it was sent to the whole group.
    ended_by: Option<Signal>,
    /// Its group is empty, and the group id may be reused.
    group_gone: bool,
    /// It got SIGKILL, so further signals are pointless.
    killed: bool,
    /// The delay before the next check, once the command itself has ended.
    pause: Duration,
}

/// What happened to the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// The command itself has ended; processes that it started have not.
    Lingers(ExitStatus),
    /// Everything has ended. The status is that of the command itself.
    Over(ExitStatus),
    /// A signal stopped it.
    Stopped(Signal),
}

/// The children of this process.
struct Family {
    /// A signal that stopped a process of the group.
    stopped: Option<Signal>,
    /// Whether there are any children.
    is_left: bool,
}

/// Most processes that outlive their command end soon.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// A check is three system calls.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

impl Job {
    /// Starts `command`. The guardian kills its group at `until`, unless [`trust`](Job::trust) extends that.
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
            ended_by: None,
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

    /// The signal that ended the command itself, if it was sent to the whole group.
    pub(super) fn ended_by(&self) -> Option<Signal> {
        self.ended_by
    }

    /// Sends a signal without a name to the group.
    pub(super) fn signal_in_real_time(&self, number: i32) {
        if !self.killed && !self.group_gone {
            signal_group_in_real_time(self.group(), number);
        }
    }

    /// Tells the guardian that the lock is valid until then.
    pub(super) fn trust(&mut self, until: Moment) {
        self.until = until;
        if let Some(guardian) = &mut self.guardian {
            guardian.trust(self.child.group(), until);
        }
    }

    /// Waits until the job is over or stopped, or the command itself has ended.
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
            // There is no signal for the end of a process whose parent left the group and lives on.
            let pause = self.pause;
            tokio::select! {
                () = self.child.changed() => {}
                () = sleep(pause) => self.pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }

    /// Sends `signal` to all processes of the job.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.killed {
            return;
        }
        self.killed = signal == Signal::SIGKILL;
        if self.child.status().is_none() {
            self.child.signal(signal);
        } else if !self.group_gone {
            // The group id is not reused: the guardian is a member.
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
            if self.kept_for == KeptFor::Descendants {
                // It would count as one of them.
                guardian::reap();
            }
            family = self.reap()?;
        }
        let descendants = self.kept_for == KeptFor::Descendants && family.is_left;
        if self.group_gone && !descendants {
            return Ok(Some(Change::Over(status)));
        }
        if self.killed && self.kept_for == KeptFor::Descendants {
            // Processes whose parents were killed are our children now.
            self.signal_adopted(Signal::SIGKILL);
        }
        Ok((!replace(&mut self.lingers, true)).then_some(Change::Lingers(status)))
    }

    /// Reaps all children that have ended, also adopted ones: as process 1 of a container, all its processes.
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
        if guardian::was_killed(number) {
            return None;
        }
        if number == self.group() && self.child.status().is_none() {
            return match self.child.note(status)? {
                child::Change::Stopped(signal) => Some(signal),
                child::Change::Ended(status) => {
                    let signal = status.signal().and_then(|number| Signal::try_from(number).ok());
                    let sent = |signal: &Signal| {
                        self.guardian.as_ref().is_some_and(|guardian| guardian.was_sent(*signal))
                    };
                    self.ended_by = signal.filter(sent);
                    None
                }
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
        // While the command itself lives, it alone decides whether the job counts as stopped.
        let counts = self.lingers && getpgid(Some(number)) == Ok(self.group());
        status.stopping_signal().filter(|_| counts).and_then(|signal| Signal::try_from(signal).ok())
    }

    /// Whether the group has a member other than the guardian. The guardian leaves the group meanwhile, so
    /// that one system call answers, which misses no process that is being forked.
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

    /// Starts another guardian if the last one was killed.
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
            Err(error) => tracing::warn!(%error, "cannot start the guardian of the command"),
        }
    }

    /// Sends `signal` to our children outside the group.
    fn signal_adopted(&self, signal: Signal) {
        let guardian = self.guardian.as_ref().map(Guardian::number);
        for number in descendants::children() {
            if Some(number) != guardian && getpgid(Some(number)) != Ok(self.group()) {
                // The process id is not reused, since only we can reap it. It may have changed its user.
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
