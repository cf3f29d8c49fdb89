//! The signals that `quorlock` receives.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::{Signal, raise};
use tokio::signal::unix::{self, SignalKind};

/// Those that are passed on to the command. The rest keep their usual effect.
const PASSED_ON: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    // Comes here while the command is in the background of the terminal, as within a pipeline.
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// Receives signals.
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Starts receiving.
    ///
    /// A signal that was ignored when `quorlock` started stays so, for the command as well: that
    /// is how `nohup` works, and how shells start commands in the background.
    pub(crate) fn listen() -> io::Result<Signals> {
        let ignored = ignored();
        let streams = PASSED_ON
            .into_iter()
            .filter(|signal| ignored & bit(*signal) == 0)
            .map(|signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?)));
        Ok(Signals { streams: streams.collect::<io::Result<_>>()? })
    }

    /// The next one that asks to end, for when there is no command to pass others on to. SIGTSTP has
    /// its usual effect, which being received has taken from it.
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

    /// The next one.
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

/// Whether `signal` asks to end.
fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT)
}

/// Which signals this process ignores, one bit for each; none where the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}
