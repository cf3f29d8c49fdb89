//! All output to stderr.
//!
//! Written by a thread of its own: a reader that stops reading, such as a pager, blocks the writer, which must delay
//! neither renewals nor the end of a command whose lock is lost. What does not fit into the queue is dropped. If the
//! system has no thread left, what comes from then on is written by the caller itself.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

/// `None` if there is no thread.
static QUEUE: OnceLock<Option<SyncSender<Item>>> = OnceLock::new();
/// Whether anything was queued or written.
static WAS_USED: AtomicBool = AtomicBool::new(false);

enum Item {
    Text(Vec<u8>),
    /// Reports when everything before it has been written.
    Done(Sender<()>),
}

/// The most queued lines: minutes of output.
const LENGTH: usize = 1024;
/// How long to wait at the end for a reader.
const PATIENCE: Duration = Duration::from_millis(500);

/// Starts the thread, if it can be, before anything has to be said that may not wait.
pub(crate) fn start() {
    queue();
}

/// Queues `text` to be written. Never waits, if there is a thread.
pub(crate) fn say(text: impl Into<Vec<u8>>) {
    WAS_USED.store(true, Ordering::SeqCst);
    match queue() {
        // An error means that the queue is full: stderr has not been read for long.
        Some(queue) => drop(queue.try_send(Item::Text(text.into()))),
        None => drop(io::stderr().write_all(&text.into())),
    }
}

/// Waits until everything is written, for [`PATIENCE`] at most.
pub(crate) fn finish() {
    // Without a thread, it was written by those who said it.
    let (true, Some(Some(queue))) = (WAS_USED.load(Ordering::SeqCst), QUEUE.get()) else { return };
    let (sender, done) = channel();
    if queue.try_send(Item::Done(sender)).is_ok() {
        let _ = done.recv_timeout(PATIENCE);
    }
}

fn queue() -> Option<&'static SyncSender<Item>> {
    let queue = QUEUE.get_or_init(|| {
        let (sender, items) = sync_channel(LENGTH);
        // Not `thread::spawn`, which panics: the panic would be said here.
        thread::Builder::new().name("stderr".to_owned()).spawn(move || write_all(&items)).ok()?;
        Some(sender)
    });
    queue.as_ref()
}

fn write_all(items: &Receiver<Item>) {
    // While the command has the terminal and `stty tostop` is set, a write would stop this process, unless the
    // signal is blocked.
    let mut ttou = SigSet::empty();
    ttou.add(Signal::SIGTTOU);
    let _ = ttou.thread_block();
    for item in items {
        match item {
            // An error means that the reader has gone.
            Item::Text(text) => drop(io::stderr().write_all(&text)),
            Item::Done(done) => drop(done.send(())),
        }
    }
}
