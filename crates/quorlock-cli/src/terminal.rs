//! The terminal and its foreground process group, which alone may read from it and gets Ctrl-C.

use std::io::{self, IsTerminal as _};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::SpecialCharacterIndices::{VMIN, VTIME};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal on stdin, to lend to a command, or to read keys from. Dropping it takes the terminal back.
pub(crate) struct Terminal {
    /// The group of `quorlock` itself.
    home: Pid,
    /// Its modes at the start.
    modes: Termios,
    lent_to: Option<Pid>,
}

impl Terminal {
    /// Returns the terminal on stdin, if there is one and this process is in its foreground: a background job must
    /// not take it.
    pub(crate) fn of_stdin() -> Option<Terminal> {
        let (stdin, home) = (io::stdin(), getpgrp());
        let ours = stdin.is_terminal() && tcgetpgrp(&stdin) == Ok(home);
        let modes = if ours { tcgetattr(&stdin).ok() } else { None };
        modes.map(|modes| Terminal { home, modes, lent_to: None })
    }

    /// Whether to lend it before the command asks. Not in a pipeline, `quorlock run … | less`, where another
    /// process of our own group reads from it.
    pub(crate) fn is_undivided() -> bool {
        io::stdout().is_terminal()
    }

    /// Puts `group` into the foreground, unless another group is; returns whether `group` is.
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

    /// Puts this process's group into the foreground again.
    pub(crate) fn take_back(&mut self) {
        if let Some(group) = self.lent_to.take() {
            // Only from the command: a shell may have given it to another group by now.
            if tcgetpgrp(io::stdin()) == Ok(group) {
                set_foreground(self.home);
            }
        }
    }

    /// Has keys delivered as they are typed, without an echo. Reading does not wait for one. Ctrl-C and Ctrl-Z still
    /// send their signals.
    pub(crate) fn read_keys(&self) -> bool {
        let mut modes = self.modes.clone();
        modes.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        for (index, least) in [(VMIN, 0), (VTIME, 0)] {
            if let Some(setting) = modes.control_chars.get_mut(index as usize) {
                *setting = least;
            }
        }
        with_ttou_blocked(|| tcsetattr(io::stdin(), SetArg::TCSANOW, &modes)).is_ok()
    }

    /// Restores the modes that [`read_keys`](Terminal::read_keys) has changed, or that a killed command may
    /// have, such as the echo.
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

/// Blocks SIGTTOU, which stops a background process that changes the terminal.
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
