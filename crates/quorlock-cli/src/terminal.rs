//! The terminal, which has one process group in the foreground: only that one may read from it,
//! and it alone gets Ctrl-C.

use std::io::{self, IsTerminal as _};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal on stdin, to be lent to a command. Dropping it takes it back.
pub(crate) struct Terminal {
    /// The group of `quorlock` itself.
    home: Pid,
    /// How it was set up.
    modes: Termios,
    lent_to: Option<Pid>,
}

impl Terminal {
    /// The terminal on stdin, if there is one and this process is in its foreground: a job in the
    /// background must not take it from its owner.
    pub(crate) fn of_stdin() -> Option<Terminal> {
        let (stdin, home) = (io::stdin(), getpgrp());
        let ours = stdin.is_terminal() && tcgetpgrp(&stdin) == Ok(home);
        let modes = if ours { tcgetattr(&stdin).ok() } else { None };
        modes.map(|modes| Terminal { home, modes, lent_to: None })
    }

    /// Whether to lend it before the command asks. Not within a pipeline, `quorlock run … | less`,
    /// where another process of our own group reads from it.
    pub(crate) fn is_undivided() -> bool {
        io::stdout().is_terminal()
    }

    /// Puts `group` into the foreground, unless somebody else has taken it from us.
    pub(crate) fn lend(&mut self, group: Pid) -> bool {
        let present = tcgetpgrp(io::stdin());
        let lent = (present == Ok(self.home) && set_foreground(group)) || present == Ok(group);
        self.lent_to = lent.then_some(group);
        lent
    }

    /// Whether the command has it.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent_to.is_some()
    }

    /// Puts ourselves into the foreground again.
    pub(crate) fn take_back(&mut self) {
        if let Some(group) = self.lent_to.take() {
            // Only from the command: a shell may have given it to somebody else by now.
            if tcgetpgrp(io::stdin()) == Ok(group) {
                set_foreground(self.home);
            }
        }
    }

    /// Undoes what a command that was killed did to it, such as switching the echo off.
    pub(crate) fn restore_modes(&self) {
        let _ = with_ttou_blocked(|| tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.modes));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

fn set_foreground(group: Pid) -> bool {
    with_ttou_blocked(|| tcsetpgrp(io::stdin(), group).is_ok())
}

/// Whoever changes the terminal from the background is stopped by SIGTTOU, unless it is blocked.
fn with_ttou_blocked<T>(change: impl FnOnce() -> T) -> T {
    let mut ttou = SigSet::empty();
    ttou.add(Signal::SIGTTOU);
    let before = ttou.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
    let outcome = change();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    outcome
}
