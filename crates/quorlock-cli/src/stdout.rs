//! Output to stdout: results.

use std::future::pending;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::oneshot;

use crate::failure::Failure;

/// Prints `text`, and returns when it is written.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(text).map_err(Failure::to_write)
}

/// Prints `text` on a thread of its own, while a lock is held: a reader that stops reading must delay neither the
/// renewal of the lock nor noticing its loss.
///
/// # Cancel safety
///
/// When the future is dropped the text may still be written.
pub(crate) async fn print_aside(text: String) -> Result<(), Failure> {
    let (sender, written) = oneshot::channel();
    thread::Builder::new()
        .spawn(move || drop(sender.send(write(&text))))
        .map_err(Failure::to("start a thread for the output"))?;
    let written = written.await.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
    written.map_err(Failure::to_write)
}

/// Waits until the reader of what is printed has gone, and returns that as the failure to print it: what prints seldom
/// would otherwise run on without a reader. A file is always read, and so waited for without end.
///
/// # Cancel safety
///
/// A thread waits on until the program ends.
pub(crate) async fn unread() -> Failure {
    let (sender, noticed) = oneshot::channel();
    let wait = move || {
        let stdout = io::stdout();
        // What is asked for without any event is whether the other end is gone.
        let mut other_end = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
        loop {
            match poll(&mut other_end, PollTimeout::NONE) {
                Err(Errno::EINTR) => {}
                Err(_) => return,
                Ok(_) => break,
            }
        }
        // An error means that its caller has gone.
        let _ = sender.send(());
    };
    // Without a thread, what is printed next tells.
    drop(thread::Builder::new().spawn(wait));
    match noticed.await {
        Ok(()) => Failure::BrokenPipe,
        Err(_) => pending().await,
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}
