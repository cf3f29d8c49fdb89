//! The streams that report changes of the locks which are `Watched`.
//!
//! A watch begins with whatever comes next: one that begins in the past is served only every tenth of a second.
//!
//! Watches are made on a stream, with the login of that stream. When it has ended, those that were made go on, and further
//! ones are made on another stream.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::join_all;
use quorlock::node::places::Watched;
use quorlock::protocol::Moment;
use quorlock::runtime::Mutex;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

use crate::error::Failure;
use crate::layout::{HISTORY, is_place, places};
use crate::wire::{WatchCancel, WatchCreate, WatchOp, WatchRequest, WatchResponse};

/// The watches of one connection.
pub(crate) struct Watches(Mutex<State>);

/// A stream of watches, which ends with the last of its watches when there is another one.
#[derive(Clone)]
struct Stream {
    number: usize,
    requests: UnboundedSender<WatchRequest>,
}

struct State {
    last: i64,
    by_lock: HashMap<Arc<str>, Watch>,
    by_id: HashMap<i64, Arc<str>>,
    /// That of the watch of the history, and whether this has been made.
    first: Stream,
    watches_history: bool,
    /// That on which watches are made.
    latest: Stream,
}

struct Watch {
    id: i64,
    stream: Stream,
    is_ready: bool,
    /// Who waits until it has been made, or was refused.
    awaited: Vec<oneshot::Sender<Made>>,
}

/// What has become of a request for a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Made {
    Ready,
    /// Neither the login of the stream nor the rights of the user allow it.
    Refused,
}

/// A lock that has changed, and the places that have gone.
pub(crate) type News = Option<(Arc<str>, Vec<Vec<u8>>)>;

/// The watch of the note of the history.
const OF_HISTORY: i64 = 1;

impl Watches {
    /// Begins with a watch of the note of the history: another client may begin a new one.
    pub(crate) fn new(requests: UnboundedSender<WatchRequest>) -> Watches {
        let key = HISTORY.into();
        let create = WatchOp::Create(WatchCreate { key, range_end: Vec::new(), watch_id: OF_HISTORY });
        drop(requests.send(WatchRequest { op: Some(create) }));
        let first = Stream { number: 0, requests };
        let (by_lock, by_id, watches_history) = (HashMap::new(), HashMap::new(), false);
        let latest = first.clone();
        Watches(Mutex::new(State { last: OF_HISTORY, by_lock, by_id, first, watches_history, latest }))
    }

    /// Makes further watches on another stream, and returns its number.
    pub(crate) fn go_on(&self, requests: UnboundedSender<WatchRequest>) -> usize {
        let mut state = self.0.lock();
        state.latest = Stream { number: state.latest.number + 1, requests };
        state.latest.number
    }

    /// The number of the stream on which watches are made.
    pub(crate) fn stream(&self) -> usize {
        self.0.lock().latest.number
    }

    /// Whether anything depends on this stream.
    pub(crate) fn need(&self, stream: usize) -> bool {
        let state = self.0.lock();
        [&state.first, &state.latest].iter().any(|needed| needed.number == stream)
            || state.by_lock.values().any(|watch| watch.stream.number == stream)
    }

    /// Whether all these locks are watched already, from before now.
    pub(crate) fn are_ready<'a>(&self, mut locks: impl Iterator<Item = &'a Arc<str>>) -> bool {
        let state = self.0.lock();
        locks.all(|lock| state.by_lock.get(lock).is_some_and(|watch| watch.is_ready))
    }

    /// Watches these locks from before it returns. Returns whether etcd allows that to the login of the stream.
    pub(crate) async fn begin(
        &self,
        watched: &Watched<Vec<u8>>,
        locks: impl Iterator<Item = &Arc<str>>,
        now: Moment,
    ) -> Result<bool, Failure> {
        let waits: Vec<_> = locks.filter_map(|lock| self.create(lock, watched.begin(lock, now).1)).collect();
        let made: Result<Vec<Made>, _> = join_all(waits).await.into_iter().collect();
        match made {
            Ok(made) => Ok(made.iter().all(|made| *made == Made::Ready)),
            Err(_) => Err(Failure::Unsent("the stream of watches has ended".into())),
        }
    }

    /// Ends the old ones. Returns what resolves when it is ready; nothing if it is.
    fn create(&self, lock: &Arc<str>, old: Vec<Arc<str>>) -> Option<oneshot::Receiver<Made>> {
        let mut state = self.0.lock();
        for lock in old {
            if let Some(watch) = state.by_lock.remove(&lock) {
                state.by_id.remove(&watch.id);
                let cancel = WatchOp::Cancel(WatchCancel { watch_id: watch.id });
                drop(watch.stream.requests.send(WatchRequest { op: Some(cancel) }));
            }
        }
        let (sender, receiver) = oneshot::channel();
        if let Some(watch) = state.by_lock.get_mut(lock) {
            if watch.is_ready {
                return None;
            }
            watch.awaited.push(sender);
            return Some(receiver);
        }
        state.last += 1;
        let id = state.last;
        state.by_id.insert(id, Arc::clone(lock));
        let stream = state.latest.clone();
        let requests = stream.requests.clone();
        let watch = Watch { id, stream, is_ready: false, awaited: vec![sender] };
        state.by_lock.insert(Arc::clone(lock), watch);
        let (key, range_end) = places(lock);
        let create = WatchOp::Create(WatchCreate { key, range_end, watch_id: id });
        drop(requests.send(WatchRequest { op: Some(create) }));
        Some(receiver)
    }

    /// A stream has ended: a caller that waits for a watch waits in vain.
    pub(crate) fn end(&self) {
        let mut state = self.0.lock();
        state.by_lock.clear();
        state.by_id.clear();
    }

    /// Takes a message on this stream. Returns what to tell, or `None` if the server has ended a watch, or the history has
    /// changed.
    pub(crate) fn receive(&self, message: WatchResponse, stream: usize) -> Option<News> {
        let mut state = self.0.lock();
        let is_unmade = stream == state.first.number && !state.watches_history;
        if message.watch_id == OF_HISTORY {
            state.watches_history |= message.created;
            let is_over = message.canceled || !message.events.is_empty();
            return (!is_over).then_some(None);
        }
        // Some versions do not say which they have refused. All that wait for this stream may have the next one.
        if message.created && message.canceled {
            state.refuse(stream);
            return (!is_unmade).then_some(None);
        }
        // It may be of a watch that has been cancelled.
        let Some(lock) = state.by_id.get(&message.watch_id).cloned() else { return Some(None) };
        if message.canceled {
            return None;
        }
        let watch = state.by_lock.get_mut(&lock)?;
        if message.created {
            watch.is_ready = true;
            watch.awaited.drain(..).for_each(|waits| _ = waits.send(Made::Ready));
        }
        let (mut gone, mut is_changed) = (Vec::new(), false);
        for event in message.events {
            let Some(kv) = event.kv.filter(|kv| is_place(&lock, &kv.key)) else { continue };
            if event.kind == 1 {
                gone.push(kv.key);
            }
            is_changed = true;
        }
        Some(is_changed.then_some((lock, gone)))
    }
}

impl State {
    /// Forgets what was asked for on this stream and has not been made.
    fn refuse(&mut self, stream: usize) {
        let State { by_lock, by_id, .. } = self;
        by_lock.retain(|_, watch| {
            let is_kept = watch.is_ready || watch.stream.number != stream;
            if !is_kept {
                by_id.remove(&watch.id);
                watch.awaited.drain(..).for_each(|waits| _ = waits.send(Made::Refused));
            }
            is_kept
        });
    }
}
