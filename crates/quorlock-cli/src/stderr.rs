//! Everything that is said on stderr while a command runs goes through here.
//!
//! A thread of its own writes it. Whoever reads stderr may stand still, as a pager does, and a
//! write then blocks for as long as it likes: it must not block renewals, nor the end of a command
//! whose lock is lost. What does not fit into the queue is dropped.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

static QUEUE: OnceLock<SyncSender<Item>> = OnceLock::new();

enum Item {
    Text(Vec<u8>),
    /// Tell when all before it has been written.
    Done(Sender<()>),
}

/// Lines that may wait: minutes of talk.
const LENGTH: usize = 1024;
/// How long the end of the program waits for a reader.
const PATIENCE: Duration = Duration::from_millis(500);

/// Says `text`, soon. Never waits.
pub(crate) fn say(text: impl Into<Vec<u8>>) {
    // Full: nobody has been reading for long.
    drop(queue().try_send(Item::Text(text.into())));
}

/// Waits until all is said, but not for long.
pub(crate) fn finish() {
    let (sender, done) = channel();
    if queue().try_send(Item::Done(sender)).is_ok() {
        let _ = done.recv_timeout(PATIENCE);
    }
}

fn queue() -> &'static SyncSender<Item> {
    QUEUE.get_or_init(|| {
        let (sender, items) = sync_channel(LENGTH);
        thread::spawn(move || write_all(&items));
        sender
    })
}

fn write_all(items: &Receiver<Item>) {
    // The command may have the terminal, and then a write from here stops the whole process where
    // `stty tostop` is set; unless this is blocked.
    let mut ttou = SigSet::empty();
    ttou.add(Signal::SIGTTOU);
    let _ = ttou.thread_block();
    for item in items {
        match item {
            // An error means that nobody reads any more.
            Item::Text(text) => drop(io::stderr().write_all(&text)),
            Item::Done(done) => drop(done.send(())),
        }
    }
}
