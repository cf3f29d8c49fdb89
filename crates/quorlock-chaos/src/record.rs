//! The record of a run: a line for each event, written before the process continues.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use quorlock::protocol::Moment;
use quorlock::runtime::{Clock as _, Mutex, SystemClock};
use quorlock_history::{Event, Stamp, What};

/// Writes events to a file immediately, so that a killed process loses no event that
/// it acted upon.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    file: Arc<Mutex<File>>,
}

impl Recorder {
    /// Opens a file for appending, or creates it.
    pub(crate) fn at(path: &Path) -> io::Result<Recorder> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Recorder { file: Arc::new(Mutex::new(file)) })
    }

    /// Records an event that has just happened or is about to happen.
    pub(crate) fn record(&self, what: What) {
        self.record_at(stamp(), what);
    }

    /// Records an event with this time.
    pub(crate) fn record_at(&self, at: Stamp, what: What) {
        self.record_all([(at, what)]);
    }

    /// Records events in one write: all of them, or none if the process is killed.
    ///
    /// # Panics
    ///
    /// If the write fails: a record with gaps would prove nothing.
    #[expect(clippy::panic, reason = "a full disk must not pass for a correct lock")]
    pub(crate) fn record_all(&self, events: impl IntoIterator<Item = (Stamp, What)>) {
        let lines: String = events.into_iter().map(|(at, what)| Event::new(at, what).to_line()).collect();
        let mut file = self.file.lock();
        if let Err(error) = file.write_all(lines.as_bytes()) {
            panic!("cannot write the record: {error}");
        }
    }
}

/// Returns the current time on the clock that all processes of this machine share.
pub(crate) fn stamp() -> Stamp {
    of(SystemClock::default().now())
}

/// Converts a moment to a stamp.
pub(crate) fn of(moment: Moment) -> Stamp {
    moment.since(Moment::ORIGIN).into()
}
