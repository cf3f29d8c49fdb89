//! The record of a run: a line for each event, on disk before anything else happens.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use quorlock::protocol::Moment;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_history::{Event, Stamp, What};

/// Writes events to a file, each with one write of its own: a process that is killed loses none
/// that it acted upon.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    file: Arc<Mutex<File>>,
}

impl Recorder {
    /// Starts a file, or goes on with one.
    pub(crate) fn at(path: &Path) -> io::Result<Recorder> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Recorder { file: Arc::new(Mutex::new(file)) })
    }

    /// Something has just happened, or is about to.
    pub(crate) fn record(&self, what: What) {
        self.record_at(stamp(), what);
    }

    /// Something happened at that moment.
    ///
    /// # Panics
    ///
    /// If it cannot be written: a record with gaps would prove nothing.
    #[expect(clippy::panic, reason = "a full disk must not pass for a lock that is right")]
    pub(crate) fn record_at(&self, at: Stamp, what: What) {
        let line = Event::new(at, what).to_line();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            panic!("the record cannot be written: {error}");
        }
    }
}

/// Now, on the clock that all processes of this machine share.
pub(crate) fn stamp() -> Stamp {
    of(SystemClock::default().now())
}

/// A moment as records have it.
pub(crate) fn of(moment: Moment) -> Stamp {
    moment.since(Moment::ORIGIN).into()
}
