//! The signal dispositions of processes that tests start.

use std::sync::Once;
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Resets ignored signals for processes started from now on: `nohup` ignores SIGHUP, a shell's `&` ignores SIGINT and
/// SIGQUIT, and that is inherited. A handler is not, and tokio never removes one. Other signals are left alone, so that
/// Ctrl-C ends the tests.
pub(crate) fn ignore_none() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let handle = || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            let _within = runtime.enter();
            for number in (1..=31).filter(|number| ignored() & (1 << (number - 1)) != 0) {
                // SIGKILL and SIGSTOP, which cannot be handled, cannot be ignored either.
                drop(signal(SignalKind::from_raw(number)).expect("a handler"));
            }
        };
        thread::spawn(handle).join().expect("handlers for signals");
    });
}

/// Returns the ignored signals, one bit each.
fn ignored() -> u64 {
    const PIPE: u64 = 1 << (nix::libc::SIGPIPE - 1);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    // Ignored by Rust, which resets it in child processes.
    mask & !PIPE
}
