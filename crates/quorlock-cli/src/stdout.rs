//! Output to stdout: results.

use std::io::{self, Write as _};
use std::thread;

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

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}
