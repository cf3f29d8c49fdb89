//! Log records, losses and waits, in queues that Python threads empty.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::mem;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyList;
use quorlock::lock::Waiting;
use quorlock::protocol::Moment;
use quorlock::runtime::{Clock as _, Mutex, SystemClock};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Level, Metadata};

use crate::keywords::for_python;
use crate::process::Process;
use crate::report;

/// At most this many records wait; later ones are dropped, and counted.
const MOST: usize = 10_000;

/// The number of warnings of one kind that are logged within [`WINDOW`]; later ones are counted. An outage has one for each lease.
const ALIKE: u64 = 20;
const WINDOW: Duration = Duration::from_secs(5);

/// The level of warnings in Python's `logging`.
const WARNING: u8 = 30;

/// A queue that one Python thread empties.
pub(crate) struct Events<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
}

struct State<T> {
    queue: VecDeque<T>,
    woken: bool,
    stopped: bool,
}

impl<T> Events<T> {
    pub(crate) const fn new() -> Events<T> {
        let state = State { queue: VecDeque::new(), woken: false, stopped: false };
        Events { state: Mutex::new(state), arrived: Condvar::new() }
    }

    pub(crate) fn push(&self, event: T) {
        self.state.lock().queue.push_back(event);
        self.arrived.notify_one();
    }

    /// Waits for at most `timeout`, and returns all. `None` after [`Events::stop`].
    fn next(&self, timeout: Duration) -> Option<VecDeque<T>> {
        let waiting = |state: &mut State<T>| state.queue.is_empty() && !state.stopped && !state.woken;
        let arrived = self.arrived.wait_timeout_while(self.state.lock(), timeout, waiting);
        let (mut state, _) = arrived.unwrap_or_else(PoisonError::into_inner);
        if state.stopped && state.queue.is_empty() {
            return None;
        }
        state.woken = false;
        Some(mem::take(&mut state.queue))
    }

    fn len(&self) -> usize {
        self.state.lock().queue.len()
    }

    fn wake(&self) {
        self.state.lock().woken = true;
        self.arrived.notify_all();
    }

    fn stop(&self) {
        self.state.lock().stopped = true;
        self.arrived.notify_all();
    }
}

/// What a callback is called with, whose number comes first.
pub(crate) enum Called {
    /// A lease is over, for this reason.
    Lost(u64, &'static str),
    /// A waiter has learnt who holds its lock.
    Waits(u64, Waiting),
}

impl Events<Called> {
    /// Adds the progress of a wait, unless too many wait: the next one will say more.
    pub(crate) fn push_wait(&self, number: u64, waiting: &Waiting) {
        if self.len() < MOST {
            self.push(Called::Waits(number, waiting.clone()));
        }
    }
}

/// A log record: its level in the numbers of Python's `logging`, its target and its text.
pub(crate) type LogRecord = (u8, &'static str, String);

/// What was left out of the log.
pub(crate) struct LeftOut {
    state: Mutex<(Vec<Alike>, u64)>,
}

/// The warnings of one kind within [`WINDOW`].
struct Alike {
    kind: Identifier,
    since: Moment,
    count: u64,
    level: u8,
    target: &'static str,
    /// The last of them.
    message: String,
}

impl Alike {
    fn has_ended(&self, now: Moment) -> bool {
        now.since(self.since) >= WINDOW
    }

    fn summary(self) -> Option<LogRecord> {
        let more = self.count.checked_sub(ALIKE).filter(|more| *more > 0)?;
        let text = format!("{more} more records like this one were left out: {}", self.message);
        Some((self.level, self.target, text))
    }
}

impl LeftOut {
    pub(crate) const fn new() -> LeftOut {
        LeftOut { state: Mutex::new((Vec::new(), 0)) }
    }

    /// Whether the record is to be logged.
    fn admits(&self, kind: Identifier, (level, target, message): &LogRecord, waiting: usize) -> bool {
        let mut state = self.state.lock();
        let (alike, dropped) = &mut *state;
        if waiting >= MOST {
            *dropped += 1;
            return false;
        }
        if *level < WARNING {
            return true;
        }
        let now = SystemClock::default().now();
        // A window that has ended stays until its summary is logged.
        if let Some(seen) = alike.iter_mut().find(|seen| seen.kind == kind && !seen.has_ended(now)) {
            seen.count += 1;
            seen.message.clone_from(message);
            return seen.count <= ALIKE;
        }
        let since = now;
        alike.push(Alike { kind, since, count: 1, level: *level, target, message: message.clone() });
        true
    }

    /// Logs what was left out in windows that have ended, or in all.
    fn summaries(&self, all: bool) -> Vec<LogRecord> {
        let mut state = self.state.lock();
        let (alike, dropped) = &mut *state;
        let now = SystemClock::default().now();
        let ended = alike.extract_if(.., |seen| all || seen.has_ended(now));
        let mut summaries: Vec<LogRecord> = ended.filter_map(Alike::summary).collect();
        if mem::take(dropped) > 0 {
            summaries.push((WARNING, "quorlock", "log records were dropped: too many".to_owned()));
        }
        summaries
    }

    /// Whether a window is to be ended in time: the next warning of its kind is left out, and wakes no one.
    fn is_full(&self) -> bool {
        self.state.lock().0.iter().any(|seen| seen.count >= ALIKE)
    }
}

/// Waits for at most `timeout` seconds, and returns all records. `None` after [`stop_events`].
#[pyfunction]
pub(crate) fn next_records(py: Python<'_>, timeout: f64) -> Option<Vec<LogRecord>> {
    let here = Process::here();
    py.detach(|| {
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX);
        let timeout = if here.left_out.is_full() { timeout.min(WINDOW) } else { timeout };
        let records = here.records.next(timeout);
        let left_out = here.left_out.summaries(records.is_none());
        if records.is_none() && left_out.is_empty() {
            return None;
        }
        Some(records.into_iter().flatten().chain(left_out).collect())
    })
}

/// Waits for at most `timeout` seconds, and adds what callbacks are called with to `into`, where an exception of the thread
/// loses none. Returns `False` after [`stop_events`].
#[pyfunction]
pub(crate) fn next_calls(py: Python<'_>, timeout: f64, into: &Bound<'_, PyList>) -> PyResult<bool> {
    let here = Process::here();
    let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX);
    let Some(called) = py.detach(|| here.called.next(timeout)) else { return Ok(false) };
    called.into_iter().try_for_each(|called| match called {
        Called::Lost(number, reason) => into.append((number, reason)),
        Called::Waits(number, waiting) => into.append((number, report::waiting(py, &waiting)?)),
    })?;
    Ok(true)
}

/// Lets [`next_records`] return what there is.
#[pyfunction]
pub(crate) fn wake_events() {
    Process::here().records.wake();
}

/// Ends the threads that wait in [`next_records`] and [`next_calls`].
#[pyfunction]
pub(crate) fn stop_events() {
    let here = Process::here();
    here.records.stop();
    here.called.stop();
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
        Level::WARN => WARNING,
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
        let message = for_python(text.message + &text.fields);
        let (here, record) = (Process::here(), (level(metadata), metadata.target(), message));
        if here.left_out.admits(metadata.callsite(), &record, here.records.len()) {
            here.records.push(record);
        }
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
