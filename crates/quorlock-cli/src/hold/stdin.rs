//! Watches for the end of stdin, which means that the process that wanted the lock has gone.

use std::future::pending;
use std::io::{self, Read as _};
use std::thread;

use clap::ValueEnum;
use nix::sys::stat::{SFlag, fstat};
use tokio::sync::oneshot;

use crate::failure::Failure;

/// When the end of stdin ends the hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum UntilEof {
    // If stdin is a pipe or a socket. The default, because a script that is killed closes its pipe and must
    // not leave its lock behind, while a service manager, or `&` in a script, gives /dev/null, which ends
    // immediately and means nothing.
    Auto,
    // For every stdin: on a terminal, Ctrl-D.
    Always,
    Never,
}

/// Waits for the end of stdin, or forever if `until` ignores it. Discards what it reads.
///
/// # Errors
///
/// If no thread is left that could wait.
pub(super) async fn closed(until: UntilEof) -> Result<(), Failure> {
    let heeded = match until {
        UntilEof::Auto => is_a_pipe(),
        UntilEof::Always => true,
        UntilEof::Never => false,
    };
    if !heeded {
        return pending().await;
    }
    let (sender, ended) = oneshot::channel();
    // The thread ends with the program, since a read cannot be interrupted.
    let wait = move || {
        let mut rest = [0; 4096];
        loop {
            match io::stdin().lock().read(&mut rest) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let _ = sender.send(());
    };
    thread::Builder::new().spawn(wait).map_err(Failure::to("start a thread for stdin"))?;
    // An error means that the thread has ended, and so stdin.
    drop(ended.await);
    Ok(())
}

fn is_a_pipe() -> bool {
    let kind = fstat(io::stdin()).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
    matches!(kind, Ok(SFlag::S_IFIFO | SFlag::S_IFSOCK))
}
