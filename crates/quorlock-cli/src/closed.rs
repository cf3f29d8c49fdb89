//! Standard streams that were closed when this process started.
//!
//! The standard library opens `/dev/null` in their place before `main`, lest another file get their numbers. The command
//! has them closed, as it would have without `quorlock`.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc::{F_GETFD, fcntl};
use nix::unistd::close;

/// By number.
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

#[expect(unsafe_code, reason = "only code that runs before the standard library can see this")]
#[used]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static AT_START: extern "C" fn() = {
    extern "C" fn look() {
        for (number, closed) in (0..).zip(&CLOSED) {
            // SAFETY: it asks for the flags of a file, open or not.
            let flags = unsafe { fcntl(number, F_GETFD) };
            closed.store(flags == -1 && Errno::last() == Errno::EBADF, Ordering::Relaxed);
        }
    }
    look
};

/// Makes `command` start with those streams closed that were closed when this process started.
#[expect(unsafe_code, reason = "the standard library gives a command every stream")]
pub(crate) fn keep_closed(command: &mut Command) {
    if CLOSED.iter().all(|closed| !closed.load(Ordering::Relaxed)) {
        return;
    }
    let close_again = || {
        for (number, closed) in (0..).zip(&CLOSED) {
            if closed.load(Ordering::Relaxed) {
                close(number)?;
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe functions may be called, and no memory allocated. It makes
    // system calls, and builds errors that own nothing.
    unsafe { command.pre_exec(close_again) };
}
