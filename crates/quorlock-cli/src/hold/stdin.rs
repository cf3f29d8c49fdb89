//! The end of stdin, as a sign that whoever wanted the lock has gone.

use std::future::pending;
use std::io::{self, Read as _};
use std::thread;

use clap::ValueEnum;
use nix::sys::stat::{SFlag, fstat};
use tokio::sync::oneshot;

/// When the end of stdin ends the hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum UntilEof {
    // When somebody is at its other end. The default, because it is safe both ways: a script that is
    // killed closes its pipe, and must not leave its lock behind; a service manager, or `&` in a
    // script, gives /dev/null, which ends at once and means nothing.
    Auto,
    // Whatever it is: on a terminal, Ctrl-D.
    Always,
    // The end of stdin means nothing.
    Never,
}

/// Ends when stdin has ended, if that means anything. What is read from it is dropped.
pub(super) async fn closed(until: UntilEof) {
    let heeded = match until {
        UntilEof::Auto => is_a_pipe(),
        UntilEof::Always => true,
        UntilEof::Never => false,
    };
    if !heeded {
        return pending().await;
    }
    let (sender, ended) = oneshot::channel();
    // It ends with the program: reading cannot be interrupted.
    thread::spawn(move || {
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
    });
    // An error means that the thread has ended, and so has stdin.
    drop(ended.await);
}

fn is_a_pipe() -> bool {
    let kind = fstat(io::stdin()).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
    matches!(kind, Ok(SFlag::S_IFIFO | SFlag::S_IFSOCK))
}
