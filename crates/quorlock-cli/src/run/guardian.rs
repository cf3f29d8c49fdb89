//! The guardian: a small process that kills the command's process group when `quorlock` cannot.
//!
//! `quorlock run` stops its command before the lock ends. It cannot if it was killed, was stopped by a signal,
//! or hangs. So it forks the guardian before it starts the command. The guardian reads one pipe, and has one
//! deadline: until when the lock is valid.
//!
//! ```text
//!   quorlock ──── pipe: (group, until) ────► guardian
//!      │                                        │  end of file, or now >= until
//!      │ spawns                                 ▼
//!      └──► [ command  its children  guardian ] SIGKILL to the whole group
//!             └──────── one process group ────┘
//! ```
//!
//! # States of the guardian
//!
//! *Nothing to guard*: it has had no message, and ends with `quorlock` without killing. *On guard*: it
//! knows a group and a deadline. There is no third: `end` does not return.
//!
//! | event | what it does |
//! |---|---|
//! | a message | replaces group and deadline. The first is written by the child between fork and exec, so no code of the command runs unguarded |
//! | end of file | `quorlock` has ended, for whatever reason: kills the group (R-2) |
//! | the deadline passes | `quorlock` is stopped or hangs, since it has not extended it: kills the group (R-3) |
//! | a signal | is blocked. SIGKILL ends it, and `quorlock` starts another; SIGSTOP stops it, and `quorlock` continues it |
//!
//! # Invariants
//!
//! - The deadline is before the end of validity and after the moment at which `quorlock` itself would have
//!   killed (`Notice::guard_until`), so the guardian acts only in its place.
//! - The guardian is a member of the group that it guards. As long as it is, the group ID is in use and cannot
//!   become that of other processes between a check and a signal. It kills only as a member (R-4).
//! - `quorlock` moves it out of the group for one system call, to see whether another member is left
//!   (`step_out`, `Job::group_lives`), which is when the lock may be released (R-1).
//! - The clock also runs while the machine is suspended, and is read once a second at least, because timers
//!   do not run then.
//! - No writer of the pipe but `quorlock` and the child before its exec: `O_CLOEXEC` closes it for the command,
//!   and the guardian has closed its own copy. Otherwise end of file would never come.
//! - The pipe does not block the writer. A message is shorter than `PIPE_BUF`, so it is written whole or not.
//!
//! # Forked, not started
//!
//! A program of its own would take longer to start than many commands run. The parent may have threads, so
//! from the fork on the child calls async-signal-safe functions only: it allocates nothing, drops nothing and
//! does not return. It closes all files, so that a reader of the command's output does not wait for it, but
//! keeps *marks*: files by which a node on this host sees that a holder has died. After a kill one more process
//! keeps the marks until the group is gone, because a killed process takes time to end.
//!
//! Dropping the `Guardian` kills the process and leaves the group alone: the group is empty, or the caller kills
//! it. SIGKILL is sent before the pipe closes, because end of file would make the guardian kill the group. The process takes
//! as long to end as a release: it is reaped behind that, by `reap`.
//!
//! What was rejected: docs/adr/0009-command-doctor-python.md.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, killpg};
use nix::unistd::{ForkResult, Pid, close, fork, getpgrp, pipe2, read, setpgid, write};
use quorlock::protocol::Moment;
use rustix::process::{WaitOptions, waitpid};

use super::members;
use crate::runtime::now;

/// Handle of the guardian. Dropping it kills the guardian, and leaves the group alone.
pub(super) struct Guardian {
    number: Pid,
    orders: Arc<OwnedFd>,
    last: Option<Order>,
    reaped: bool,
}

impl Guardian {
    /// Forks the guardian, with nothing to guard yet.
    pub(super) fn start() -> io::Result<Guardian> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
        // A stopped guardian must not block us.
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let number = fork_off(&reader)?;
        Ok(Guardian { number, orders: Arc::new(writer), last: None, reaped: false })
    }

    /// Its process id.
    pub(super) fn number(&self) -> Pid {
        self.number
    }

    /// Makes it guard the group that `command` will lead, before the command's own code runs.
    #[expect(unsafe_code, reason = "the command knows its process id only between fork and exec")]
    pub(super) fn guard_from_start(&self, command: &mut Command, until: Moment) {
        let orders = Arc::clone(&self.orders);
        let order = move || {
            write(&orders, &Order { group: Pid::this(), until }.to_bytes())?;
            Ok(())
        };
        // SAFETY: between fork and exec only async-signal-safe functions may be called, and no memory
        // allocated. `order` makes two system calls, and builds errors that own nothing.
        unsafe { command.pre_exec(order) };
    }

    /// Tells it that the lock is valid `until` then: it kills `group` at that time unless this is called again.
    pub(super) fn trust(&mut self, group: Pid, until: Moment) {
        debug_assert!(group.as_raw() > 1, "a group ID of 0 or 1 would kill processes of others");
        debug_assert!(
            self.last.is_none_or(|last| last.group == group),
            "a guardian is a member of the one group that it kills (rule R-4)"
        );
        let renewed = self.last.is_none_or(|last| until.since(last.until) > LEAST_NEWS);
        if !renewed {
            return;
        }
        let order = Order { group, until };
        // An error means that it has ended, which SIGCHLD reports.
        if write(&self.orders, &order.to_bytes()).is_ok() {
            self.last = Some(order);
        }
    }

    /// Moves it into `group`, which must be in our session and have a member; returns whether that succeeded.
    pub(super) fn join(&self, group: Pid) -> bool {
        setpgid(self.number, group).is_ok()
    }

    /// Moves it into a group of its own, so that the command's group is empty once the command has gone.
    pub(super) fn step_out(&self) {
        // An error means that it has ended.
        let _ = setpgid(self.number, self.number);
    }

    /// Whether this signal was sent to it, and so to its whole group, as by a key of the terminal. It blocks all.
    pub(super) fn was_sent(&self, signal: Signal) -> bool {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", self.number)) else {
            return true;
        };
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let pending = pending.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
        pending & 1 << (signal as i32 - 1) != 0
    }

    /// Continues it after its group was stopped.
    pub(super) fn go_on(&self) {
        if !self.reaped {
            let _ = kill(self.number, Signal::SIGCONT);
        }
    }

    /// Notes that it has been reaped elsewhere, so its process id is no longer ours.
    pub(super) fn was_reaped(mut self) {
        self.reaped = true;
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        if !self.reaped {
            // Before the pipe closes, which would make it kill the group.
            let _ = kill(self.number, Signal::SIGKILL);
            // One of an earlier command has ended by now.
            reap();
            KILLED.store(self.number.as_raw(), Ordering::Relaxed);
        }
    }
}

/// The guardian that was killed and not reaped yet; 0 for none.
static KILLED: AtomicI32 = AtomicI32::new(0);

/// Waits for the end of the guardian that was killed last, if it was not reaped.
pub(super) fn reap() {
    // 0 is no process id.
    if let Some(number) = rustix::process::Pid::from_raw(KILLED.swap(0, Ordering::Relaxed)) {
        let _ = waitpid(Some(number), WaitOptions::empty());
    }
}

/// Notes that a child has been reaped, and returns whether it was the guardian that was killed last.
pub(super) fn was_killed(number: Pid) -> bool {
    KILLED.compare_exchange(number.as_raw(), 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// The smallest extension of validity that is worth a message.
const LEAST_NEWS: Duration = Duration::from_millis(1);
/// How often to read the clock: timers do not run while the machine is suspended.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A message to the guardian.
#[derive(Clone, Copy)]
struct Order {
    group: Pid,
    until: Moment,
}

// POSIX allows no smaller `PIPE_BUF`.
const _: () = assert!(Order::LENGTH <= 512, "a message is written whole or not at all");

impl Order {
    const LENGTH: usize = size_of::<i32>() + size_of::<u64>();

    /// Short enough for one atomic write.
    fn to_bytes(self) -> [u8; Order::LENGTH] {
        let nanos = self.until.since(Moment::since_origin(Duration::ZERO)).as_nanos();
        let mut bytes = [0; Order::LENGTH];
        let (group, until) = bytes.split_at_mut(size_of::<i32>());
        group.copy_from_slice(&self.group.as_raw().to_ne_bytes());
        until.copy_from_slice(&u64::try_from(nanos).unwrap_or(u64::MAX).to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; Order::LENGTH]) -> Option<Order> {
        let (group, until) = bytes.split_first_chunk()?;
        let nanos = u64::from_ne_bytes(until.try_into().ok()?);
        Some(Order {
            group: Pid::from_raw(i32::from_ne_bytes(*group)),
            until: Moment::since_origin(Duration::from_nanos(nanos)),
        })
    }
}

#[expect(unsafe_code, reason = "a program of its own would take longer to start than many commands run")]
fn fork_off(orders: &OwnedFd) -> io::Result<Pid> {
    let open = open_files();
    let has_marks = open.iter().any(|(_, kept)| *kept);
    // None of our signal handlers may run in the guardian.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    // SAFETY: there may be other threads, whose locks would stay locked in the child. So it calls
    // async-signal-safe functions only, allocates nothing, drops nothing and does not return: `stand`
    // makes system calls and computes with numbers.
    let forked = unsafe { fork() };
    if matches!(forked, Ok(ForkResult::Child)) {
        stand(orders.as_fd(), &open, has_marks);
    }
    before.thread_set_mask()?;
    match forked? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => Err(io::ErrorKind::Other.into()),
    }
}

/// Returns the open files, and whether the guardian keeps each. Called before the fork, since listing them allocates.
fn open_files() -> Vec<(RawFd, bool)> {
    let files = std::fs::read_dir("/proc/self/fd").or_else(|_| std::fs::read_dir("/dev/fd"));
    let names = files.into_iter().flatten().filter_map(|file| file.ok()?.file_name().into_string().ok());
    let mut numbers: Vec<RawFd> = names.filter_map(|name| name.parse().ok()).collect();
    if numbers.is_empty() {
        numbers = (0..64).collect();
    }
    numbers.into_iter().map(|number| (number, is_mark(number))).collect()
}

/// Whether it is a mark. The command inherits it; the guardian keeps it open, since the command may close it.
#[expect(unsafe_code, reason = "a file that others have opened")]
fn is_mark(number: RawFd) -> bool {
    // SAFETY: it reads a flag of the file with this number, or fails if there is none.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags == -1 || flags & libc::FD_CLOEXEC != 0 {
        return false;
    }
    let name = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default();
    name.to_string_lossy().trim_end_matches(" (deleted)").ends_with("-alive")
}

/// The main loop of the guardian. Every signal that can be blocked is.
fn stand(orders: BorrowedFd<'_>, open: &[(RawFd, bool)], has_marks: bool) -> ! {
    // A reader of the command's output waits until every writer has closed it.
    for (file, _) in open.iter().filter(|(file, kept)| *file != orders.as_raw_fd() && !kept) {
        let _ = close(*file);
    }
    // So that `killall quorlock` does not kill the guardian.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_name(c"lock-guardian");
    let mut last = None;
    loop {
        let mut news = [PollFd::new(orders, PollFlags::POLLIN)];
        let is_news = poll(&mut news, patience(last)).is_ok_and(|count| count > 0);
        if is_news {
            let mut bytes = [0; Order::LENGTH];
            match read(orders, &mut bytes) {
                Ok(Order::LENGTH) => last = Order::from_bytes(bytes).or(last),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                // End of file: `quorlock` has ended.
                Ok(_) | Err(_) => end(last, has_marks),
            }
        } else if last.is_some_and(|order| now() >= order.until) {
            end(last, has_marks);
        }
    }
}

/// Returns how long to wait for the next message.
fn patience(last: Option<Order>) -> PollTimeout {
    let Some(order) = last else { return PollTimeout::NONE };
    let wait = order.until.since(now()).min(LOOK_EVERY);
    // Rounded up, so that the deadline has passed by then.
    u16::try_from(wait.as_millis() + 1).map_or(PollTimeout::MAX, PollTimeout::from)
}

/// Kills the group, including the guardian.
fn end(last: Option<Order>, has_marks: bool) -> ! {
    if let Some(order) = last {
        if has_marks {
            keep_marks(order);
        }
        // Only as a member: otherwise the group id may have been reused.
        let _ = setpgid(Pid::from_raw(0), order.group);
        if getpgrp() == order.group {
            let _ = killpg(order.group, Signal::SIGKILL);
        }
    }
    loop {
        let _ = kill(Pid::this(), Signal::SIGKILL);
    }
}

/// Forks a process that keeps the marks open until no process of the group runs: a killed one may take time to end, and
/// one of another user is not killed.
#[expect(unsafe_code, reason = "the guardian is killed with the group")]
fn keep_marks(order: Order) {
    const LOOK: u16 = 10;
    // SAFETY: the guardian has one thread, and the child makes system calls and computes with numbers.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
            // Then the lock has expired, even if a process still has a mark.
            while now() < order.until && !members::are_gone(order.group) {
                let _ = poll(&mut [], PollTimeout::from(LOOK));
            }
            loop {
                let _ = kill(Pid::this(), Signal::SIGKILL);
            }
        }
        // The child must have left the group before that is killed.
        Ok(ForkResult::Parent { child }) => {
            let _ = setpgid(child, child);
        }
        // Then the lock may appear free while the last processes of the group end.
        Err(_) => {}
    }
}
