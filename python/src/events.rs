//! Log records and losses, in a queue that a Python thread empties.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::mem;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use quorlock::runtime::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Level, Metadata};

use crate::process::Process;

/// So many records wait at most; later ones are dropped, and counted.
const MOST: usize = 10_000;

pub(crate) struct Events {
    state: Mutex<State>,
    arrived: Condvar,
}

struct State {
    queue: VecDeque<Event>,
    dropped: u64,
    woken: bool,
    stopped: bool,
}

/// Something for Python.
pub(crate) enum Event {
    Log { level: u8, target: &'static str, message: String },
    Lost { number: u64, reason: &'static str },
}

impl Events {
    pub(crate) const fn new() -> Events {
        let state = State { queue: VecDeque::new(), dropped: 0, woken: false, stopped: false };
        Events { state: Mutex::new(state), arrived: Condvar::new() }
    }

    pub(crate) fn push(&self, event: Event) {
        let mut state = self.state.lock();
        if state.queue.len() >= MOST && matches!(event, Event::Log { .. }) {
            state.dropped += 1;
            return;
        }
        state.queue.push_back(event);
        drop(state);
        self.arrived.notify_one();
    }
}

/// What Python gets of one event: the level of a record or 0, its target or the number of the loss, and its text or
/// the reason.
type Told = (u8, String, String);

/// Waits for at most `timeout` seconds, and returns all events. `None` after [`stop_events`].
#[pyfunction]
pub(crate) fn next_events(py: Python<'_>, timeout: f64) -> Option<Vec<Told>> {
    let events = &Process::here().events;
    py.detach(|| {
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX);
        let waiting = |state: &mut State| state.queue.is_empty() && !state.stopped && !state.woken;
        let arrived = events.arrived.wait_timeout_while(events.state.lock(), timeout, waiting);
        let (mut state, _) = arrived.unwrap_or_else(PoisonError::into_inner);
        if state.stopped && state.queue.is_empty() {
            return None;
        }
        state.woken = false;
        let (queue, dropped) = (mem::take(&mut state.queue), mem::take(&mut state.dropped));
        drop(state);
        let mut told: Vec<Told> = queue.into_iter().map(tell).collect();
        if dropped > 0 {
            told.push((30, "quorlock".to_owned(), format!("{dropped} log records were dropped: too many")));
        }
        Some(told)
    })
}

fn tell(event: Event) -> Told {
    match event {
        Event::Log { level, target, message } => (level, target.to_owned(), message),
        Event::Lost { number, reason } => (0, number.to_string(), reason.to_owned()),
    }
}

/// Lets [`next_events`] return what there is.
#[pyfunction]
pub(crate) fn wake_events() {
    let events = &Process::here().events;
    events.state.lock().woken = true;
    events.arrived.notify_all();
}

/// Ends the thread that waits in [`next_events`].
#[pyfunction]
pub(crate) fn stop_events() {
    let events = &Process::here().events;
    events.state.lock().stopped = true;
    events.arrived.notify_all();
}

/// Records below this level, in the numbers of Python's `logging`, are not collected.
static LEAST: AtomicU8 = AtomicU8::new(u8::MAX);

/// Collects records of this level and above. The first call installs the collector.
#[pyfunction]
pub(crate) fn log_above(level: u8) {
    if LEAST.swap(level, Ordering::Relaxed) != level {
        // An error means that the program has a collector of its own.
        drop(tracing::subscriber::set_global_default(Collector));
        tracing::callsite::rebuild_interest_cache();
    }
}

/// The level in `logging`; what happens in every round is below its DEBUG.
fn level(metadata: &Metadata<'_>) -> u8 {
    match *metadata.level() {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        _ => 5,
    }
}

struct Collector;

impl Subscriber for Collector {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Asked again when the level changes.
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && metadata.target().starts_with("quorlock")
            && level(metadata) >= LEAST.load(Ordering::Relaxed)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let message = text.message + &text.fields;
        Process::here().events.push(Event::Log {
            level: level(metadata),
            target: metadata.target(),
            message,
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message of an event, and its fields as ` name=value`.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}
