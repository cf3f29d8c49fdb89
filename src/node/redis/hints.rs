//! Who listens to a node, and what its server pushes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::wire::bytes;
use crate::node::{Hint, Listener};

/// Who listens to a node, shared by its handle and its task.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    audience: Mutex<Audience>,
}

#[derive(Debug, Default)]
struct Audience {
    listeners: Vec<Arc<dyn Listener>>,
    /// Whether the connection tells changes.
    hearing: bool,
}

impl Listeners {
    /// Listeners are called under the lock, so that each hears what happens in order. They do not
    /// block.
    fn audience(&self) -> MutexGuard<'_, Audience> {
        self.audience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, listener: Arc<dyn Listener>) {
        let mut audience = self.audience();
        if audience.hearing {
            listener.hear(Hint::Hearing);
        }
        audience.listeners.push(listener);
    }

    /// Whether anybody listens.
    pub(crate) fn any(&self) -> bool {
        !self.audience().listeners.is_empty()
    }

    /// A connection that tells changes has begun.
    pub(crate) fn hearing(&self) {
        let mut audience = self.audience();
        audience.hearing = true;
        audience.tell(Hint::Hearing);
    }

    /// The connection has ended.
    pub(crate) fn deaf(&self) {
        let mut audience = self.audience();
        if std::mem::take(&mut audience.hearing) {
            audience.tell(Hint::Deaf);
        }
    }

    fn tell(&self, hint: Hint<'_>) {
        self.audience().tell(hint);
    }
}

impl Audience {
    fn tell(&self, hint: Hint<'_>) {
        for listener in &self.listeners {
            listener.hear(hint);
        }
    }
}

/// The most changes kept back. A server that pushes more of them between two answers is heard to
/// say that all has changed.
const KEPT: usize = 1024;
/// The longest key that is kept, in bytes. A change of a longer one is told as one of all.
const LONGEST_KEY: usize = 4096;

/// Where a connection puts what its server pushes, and from where it is told.
///
/// Between the two there is room for so many changes and no more: a server can push faster than
/// anybody listens, and nobody does before it has introduced itself.
pub(crate) fn pushes() -> (Inlet, Pushes) {
    let (queue, inbox) = mpsc::channel(KEPT);
    let flood = Arc::new(AtomicBool::new(false));
    (Inlet { queue, flood: Arc::clone(&flood) }, Pushes { inbox, flood, kept: VecDeque::new() })
}

/// Takes in what the server pushes.
pub(crate) struct Inlet {
    queue: Sender<Change>,
    flood: Arc<AtomicBool>,
}

impl Inlet {
    pub(crate) fn take(&self, push: PushInfo) {
        for change in changes(push) {
            if self.queue.try_send(change).is_err() {
                self.flood.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// What the server pushes over one connection, until it may be told.
///
/// A change may be told only after the answers that came before it were handed out: whoever hears
/// of a change before hearing that there is something to wait for would wait for the next.
pub(crate) struct Pushes {
    inbox: Receiver<Change>,
    /// More came than there was room for.
    flood: Arc<AtomicBool>,
    kept: VecDeque<Kept>,
}

struct Kept {
    change: Change,
    /// The batch of questions that must be answered first.
    after: Option<u64>,
}

#[derive(PartialEq, Eq, Debug)]
enum Change {
    Key(Vec<u8>),
    All,
}

/// The oldest questions in flight, none of which has been handed its answer.
#[derive(Clone, Copy)]
pub(crate) struct Oldest {
    /// Counts the batches of a connection.
    pub(crate) batch: u64,
    /// How many questions were sent in that batch.
    pub(crate) questions: usize,
}

impl Pushes {
    /// Tells what may be told, when all answers that are complete have been handed out and these
    /// are the oldest questions without.
    pub(crate) fn tell(&mut self, oldest: Option<Oldest>, listeners: &Listeners) {
        // Some of a batch's answers may have come before the change, and are handed out with its
        // last. A single question has no answer yet.
        let after = oldest.filter(|oldest| oldest.questions > 1).map(|oldest| oldest.batch);
        while let Ok(change) = self.inbox.try_recv() {
            self.kept.push_back(Kept { change, after });
        }
        if self.flood.swap(false, Ordering::Relaxed) || self.kept.len() > KEPT {
            self.kept.clear();
            self.kept.push_back(Kept { change: Change::All, after });
        }
        let open = |after: Option<u64>| after.is_some() && after == oldest.map(|oldest| oldest.batch);
        while let Some(kept) = self.kept.front()
            && !open(kept.after)
        {
            match &kept.change {
                Change::Key(key) => listeners.tell(Hint::Changed(key)),
                Change::All => listeners.tell(Hint::AllChanged),
            }
            self.kept.pop_front();
        }
    }
}

/// The changes that a push tells of.
fn changes(push: PushInfo) -> Vec<Change> {
    if push.kind != PushKind::Invalidate {
        return Vec::new();
    }
    let mut said = push.data.into_iter();
    if let Some(Value::Array(keys)) = said.next() {
        let change = |key: Vec<u8>| if key.len() > LONGEST_KEY { Change::All } else { Change::Key(key) };
        keys.into_iter().filter_map(bytes).map(change).collect()
    } else {
        // Nothing instead of keys means all of them; anything else is not known, and asking again
        // is never wrong.
        vec![Change::All]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Ear;
    use super::*;

    fn listening() -> (Listeners, Arc<Ear>, Pushes, Inlet) {
        let (inlet, pushes) = pushes();
        let (listeners, ear) = (Listeners::default(), Arc::new(Ear::default()));
        listeners.add(Arc::clone(&ear) as Arc<dyn Listener>);
        (listeners, ear, pushes, inlet)
    }

    fn invalidate(said: Value) -> PushInfo {
        PushInfo { kind: PushKind::Invalidate, data: vec![said] }
    }

    fn key(key: &str) -> PushInfo {
        invalidate(Value::Array(vec![Value::BulkString(key.into())]))
    }

    fn oldest(batch: u64, questions: usize) -> Oldest {
        Oldest { batch, questions }
    }

    #[test]
    fn a_change_between_the_answers_of_a_batch_is_told_after_all_of_them() {
        let (listeners, ear, mut pushes, server) = listening();
        server.take(key("a"));
        pushes.tell(Some(oldest(7, 2)), &listeners);
        assert!(ear.heard().is_empty(), "one of the two may have been answered before it");
        server.take(key("b"));
        pushes.tell(Some(oldest(8, 2)), &listeners);
        assert_eq!(ear.heard(), ["a"]);
        pushes.tell(None, &listeners);
        assert_eq!(ear.heard(), ["b"]);
    }

    #[test]
    fn a_change_while_one_question_or_none_is_open_is_told_at_once() {
        let (listeners, ear, mut pushes, server) = listening();
        for oldest in [None, Some(oldest(7, 1))] {
            server.take(key("a"));
            pushes.tell(oldest, &listeners);
            assert_eq!(ear.heard(), ["a"]);
        }
    }

    #[test]
    fn nothing_instead_of_keys_means_all_and_a_flood_does_too() {
        let (listeners, ear, mut pushes, server) = listening();
        server.take(invalidate(Value::Nil));
        server.take(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
        pushes.tell(None, &listeners);
        assert_eq!(ear.heard(), ["AllChanged"]);
        for _ in 0..=KEPT {
            server.take(key("a"));
        }
        pushes.tell(None, &listeners);
        assert_eq!(ear.heard(), ["AllChanged"]);
        server.take(key(&"k".repeat(LONGEST_KEY + 1)));
        pushes.tell(None, &listeners);
        assert_eq!(ear.heard(), ["AllChanged"], "nobody keeps so long a key");
    }

    #[test]
    fn a_late_listener_is_told_that_changes_are_heard() {
        let (listeners, early, ..) = listening();
        listeners.deaf();
        listeners.hearing();
        let late = Arc::new(Ear::default());
        listeners.add(Arc::clone(&late) as Arc<dyn Listener>);
        listeners.deaf();
        assert_eq!(early.heard(), ["Hearing", "Deaf"]);
        assert_eq!(late.heard(), ["Hearing", "Deaf"]);
    }
}
