//! Makes the kernel kill a child as soon as this process has ended. For the command of `quorlock run`, the guardian kills
//! the whole group, slightly later; this works also if both `quorlock` and the guardian were killed.

use std::process::Command;

/// Makes the kernel kill the process started by `command` when the thread that starts it ends, for whatever
/// reason. Linux only; elsewhere it does nothing.
///
/// Affects that one process, not its descendants, and not a set-uid program.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "nothing but code between fork and exec can ask for this")]
pub fn die_with_parent(command: &mut Command) {
    use std::io;
    use std::os::unix::process::CommandExt as _;

    use nix::sys::{prctl, signal::Signal};
    use nix::unistd::{getpid, getppid};

    let parent = getpid();
    let ask = move || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have died before the kernel was asked.
        if getppid() == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: between fork and exec only async-signal-safe functions may be called, and no memory
    // allocated. `ask` makes two system calls, compares two numbers, and builds errors that own
    // nothing.
    unsafe { command.pre_exec(ask) };
}

/// Not supported here.
#[cfg(not(target_os = "linux"))]
pub fn die_with_parent(_command: &mut Command) {}
