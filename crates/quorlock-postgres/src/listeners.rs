//! Listeners for changes of keys and for the state of the connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::runtime::Mutex;
use quorlock::{
    node::facts::Facts,
    node::{ConnectionState, Hint, HintListener, Observers, StatusListener},
};

/// State that the connections of a node share with its listeners.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    inner: Mutex<Inner>,
    observers: Mutex<Observers>,
    order_lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    hints: Vec<Arc<dyn HintListener>>,
    facts: Option<Arc<Facts>>,
    round_trip: Option<Duration>,
    /// The numbers of the connections that receive notifications.
    hearing: Vec<usize>,
}

impl Listeners {
    pub(crate) fn listen(&self, listener: Arc<dyn HintListener>) {
        self.inner.lock().hints.push(listener);
    }

    pub(crate) fn observe(&self, observer: Arc<dyn StatusListener>) {
        self.observers.lock().add(observer);
    }

    pub(crate) fn facts(&self) -> Option<Arc<Facts>> {
        self.inner.lock().facts.clone()
    }

    /// The round-trip time that was measured when the last connection was made.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.inner.lock().round_trip
    }

    pub(crate) fn set_facts(&self, facts: Facts, round_trip: Duration) {
        let mut inner = self.inner.lock();
        inner.facts = Some(Arc::new(facts));
        inner.round_trip = Some(round_trip);
    }

    /// The number of open connections.
    pub(crate) fn connected(&self) -> usize {
        self.inner.lock().hearing.len()
    }

    /// Marks the connection as receiving notifications for its keys, before it answers any request.
    pub(crate) fn subscribed(&self, line: usize) {
        self.inner.lock().hearing.push(line);
        self.say(Hint::Subscribed);
    }

    /// Marks the connection as ended.
    pub(crate) fn unsubscribed(&self, line: usize) {
        let (heard, others) = {
            let mut inner = self.inner.lock();
            let before = inner.hearing.len();
            inner.hearing.retain(|other| *other != line);
            (inner.hearing.len() < before, !inner.hearing.is_empty())
        };
        if heard {
            self.say(Hint::Unsubscribed);
            if others {
                self.say(Hint::Subscribed);
            }
        }
    }

    /// Returns how often a connection went on, though its predecessor may still execute what it was sent.
    pub(crate) fn order_lost(&self) -> u64 {
        self.order_lost.load(Ordering::Relaxed)
    }

    /// Counts that: what was asked before may overtake what the predecessor was sent (rule I-5).
    pub(crate) fn lose_order(&self) {
        self.order_lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn say(&self, hint: Hint<'_>) {
        let hints = self.inner.lock().hints.clone();
        for listener in &hints {
            listener.on_hint(hint);
        }
    }

    /// Notifies the observers of the connection's state.
    pub(crate) fn notify(&self, state: ConnectionState) {
        self.observers.lock().notify(state);
    }
}
