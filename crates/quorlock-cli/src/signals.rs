//! The signals that `quorlock` receives.

use std::future::poll_fn;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use nix::sys::signal::{SigHandler, Signal, raise, signal};
use tokio::signal::unix::{self, SignalKind};

/// The signals forwarded to the command. Others keep their default action.
const PASSED_ON: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    // Comes here while the command is in the background of the terminal, as in a pipeline.
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// Receives signals.
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    /// The signals that were ignored when `quorlock` started, one bit each.
    ignored: u64,
}

impl Signals {
    /// Starts receiving.
    ///
    /// A signal that was ignored when `quorlock` started stays ignored, for the command as well: as under
    /// `nohup`, and for background commands of shells.
    pub(crate) fn listen() -> io::Result<Signals> {
        let ignored = ignored();
        let streams = PASSED_ON
            .into_iter()
            .filter(|signal| ignored & bit(*signal) == 0)
            .map(|signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?)));
        Ok(Signals { streams: streams.collect::<io::Result<_>>()?, ignored })
    }

    /// Makes `command` ignore SIGCHLD and SIGPIPE if `quorlock` was started with them ignored, since it cannot
    /// ignore these itself. The others are inherited.
    #[expect(unsafe_code, reason = "the standard library resets SIGPIPE for each command")]
    pub(crate) fn keep_ignored(&self, command: &mut Command) {
        let pipe = PIPE_WAS_IGNORED.load(Ordering::Relaxed).then_some(Signal::SIGPIPE);
        let child = (self.ignored & bit(Signal::SIGCHLD) != 0).then_some(Signal::SIGCHLD);
        if pipe.is_none() && child.is_none() {
            return;
        }
        let ignore = move || {
            for number in [pipe, child].into_iter().flatten() {
                // SAFETY: ignoring a signal installs no handler, so nothing can run in a wrong place.
                unsafe { signal(number, SigHandler::SigIgn) }?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec only async-signal-safe functions may be called, and no memory
        // allocated. `ignore` makes two system calls, and builds errors that own nothing.
        unsafe { command.pre_exec(ignore) };
    }

    /// Waits for the next terminating signal, while there is no command to forward others to. SIGTSTP stops the
    /// process, as without a handler.
    pub(crate) async fn next_end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ends(signal) {
                return signal;
            }
            if signal == Signal::SIGTSTP {
                let _ = raise(Signal::SIGSTOP);
            }
        }
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Whether SIGPIPE was ignored when this process started. The standard library ignores it before `main`.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

#[expect(unsafe_code, reason = "only code that runs before the standard library can see this")]
#[used]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static AT_START: extern "C" fn() = {
    extern "C" fn look() {
        // SAFETY: the standard library does the same right after this; no handler is installed.
        let before = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
        PIPE_WAS_IGNORED.store(matches!(before, Ok(SigHandler::SigIgn)), Ordering::Relaxed);
    }
    look
};

/// Whether `signal` is a terminating one.
pub(crate) fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT)
}

/// Returns the signals that this process ignores, one bit each.
fn ignored() -> u64 {
    (1..=u64::BITS).filter(|number| is_ignored(*number)).fold(0, |mask, number| mask | 1 << (number - 1))
}

#[expect(unsafe_code, reason = "it must not depend on /proc, and the safe functions change what they read")]
fn is_ignored(number: u32) -> bool {
    let Ok(number) = i32::try_from(number) else { return false };
    let mut action = std::mem::MaybeUninit::<nix::libc::sigaction>::uninit();
    // SAFETY: without a new action it changes nothing, and if it succeeds it has written the present one.
    unsafe {
        nix::libc::sigaction(number, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == nix::libc::SIG_IGN
    }
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}
