//! The password of the program, as it is when a connection logs in.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::NodeError;
use crate::node::Reason;
use crate::runtime::Mutex;
use crate::runtime::clock::{Clock, within};
use crate::transport::SharedWork;
use quorlock_protocol::Moment;

/// How long a login waits for it.
pub(crate) const READ_WITHIN: Duration = Duration::from_secs(5);
/// Connections that begin so shortly after each other share what a program printed: all nodes do after an outage. A file is
/// read for each, since it may have changed a moment ago.
const SHARED_FOR: Duration = Duration::from_secs(1);
const UNREADABLE: &str = "the password cannot be read";
/// The most that is read of a file.
const LONGEST: u64 = 1 << 16;

/// The password for nodes whose address has none.
#[derive(Clone, Default)]
pub(crate) enum Password {
    #[default]
    None,
    Fixed(Arc<str>),
    Source(Arc<Source>),
}

/// A password that may change.
pub(crate) struct Source {
    read: Arc<dyn Fn() -> io::Result<String> + Send + Sync>,
    /// Whether it takes no longer than a file, and so is read when the settings are checked.
    is_file: bool,
    latest: Mutex<Option<Reading>>,
}

struct Reading {
    began: Moment,
    work: SharedWork<Arc<str>>,
}

/// Shows nothing of it.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Password::None) { "None" } else { "(hidden)" })
    }
}

impl Password {
    pub(crate) fn from_source(read: impl Fn() -> io::Result<String> + Send + Sync + 'static) -> Password {
        Password::Source(Arc::new(Source { read: Arc::new(read), is_file: false, latest: Mutex::default() }))
    }

    /// Reads the first line of this file.
    pub(crate) fn from_file(path: PathBuf) -> Password {
        let read = move || {
            first_line(&path)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        };
        Password::Source(Arc::new(Source { read: Arc::new(read), is_file: true, latest: Mutex::default() }))
    }

    /// Returns why the file cannot be read, if it is in one.
    pub(crate) fn check(&self) -> Result<(), Reason> {
        match self {
            Password::Source(source) if source.is_file => {
                (source.read)().map(drop).map_err(|error| Reason::from(error).within(UNREADABLE))
            }
            Password::None | Password::Fixed(_) | Password::Source(_) => Ok(()),
        }
    }

    /// Returns the password as it is now.
    ///
    /// # Errors
    ///
    /// Why it cannot be read, which may pass.
    ///
    /// # Cancel safety
    ///
    /// The reading goes on, for the next login.
    pub(crate) async fn read(&self, clock: &dyn Clock) -> Result<Option<Arc<str>>, NodeError> {
        let source = match self {
            Password::None => return Ok(None),
            Password::Fixed(password) => return Ok(Some(Arc::clone(password))),
            Password::Source(source) => source,
        };
        let outcome = within(clock, READ_WITHIN, source.outcome(clock.now())).await;
        let late = || Err(format!("it takes longer than {READ_WITHIN:?}").into());
        outcome
            .unwrap_or_else(late)
            .map(Some)
            .map_err(|reason| NodeError::Unreachable { reason: reason.within(UNREADABLE) })
    }
}

impl Source {
    /// Returns the outcome of the latest reading, or of a new one.
    fn outcome(&self, now: Moment) -> impl Future<Output = Result<Arc<str>, Reason>> + use<> {
        let mut latest = self.latest.lock();
        let is_current = |reading: &&Reading| {
            let is_recent = !self.is_file && now.since(reading.began) < SHARED_FOR;
            is_recent || reading.work.is_under_way()
        };
        if let Some(reading) = latest.as_ref().filter(is_current) {
            return reading.work.outcome();
        }
        let read = Arc::clone(&self.read);
        let work = SharedWork::new(move || read().map(Arc::from));
        let outcome = work.outcome();
        *latest = Some(Reading { began: now, work });
        outcome
    }
}

/// Reads the first line, without waiting for the writer of a named pipe in place of the file.
fn first_line(path: &Path) -> io::Result<String> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;

        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let file = options.open(path)?;
    let wrong = |why| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    if !file.metadata()?.is_file() {
        return wrong("it is not a regular file");
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => wrong("it begins with an empty line; its first line is the password"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use futures::FutureExt as _;
    use futures::future::join_all;

    use super::*;

    fn source(read: impl Fn() -> io::Result<String> + Send + Sync + 'static) -> Arc<Source> {
        let Password::Source(source) = Password::from_source(read) else { unreachable!("it is one") };
        source
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(0) + Duration::from_secs(seconds)
    }

    #[tokio::test]
    async fn connections_of_one_moment_share_a_reading_and_later_ones_read_again() {
        let count = AtomicUsize::new(0);
        let source = source(move || Ok(count.fetch_add(1, Ordering::SeqCst).to_string()));
        let storm = join_all((0..64).map(|_| source.outcome(at(1)))).await;
        assert!(storm.iter().all(|password| password.as_deref().unwrap() == "0"), "{storm:?}");
        assert_eq!(&*source.outcome(at(1)).await.unwrap(), "0");
        assert_eq!(&*source.outcome(at(2)).await.unwrap(), "1");
    }

    #[tokio::test]
    async fn a_reading_that_outlasts_its_connection_serves_the_next_and_is_not_started_twice() {
        let count = AtomicUsize::new(0);
        let (go_on, waits) = channel::<()>();
        let waits = Mutex::new(waits);
        let source = source(move || {
            let number = count.fetch_add(1, Ordering::SeqCst);
            waits.lock().recv().map_err(io::Error::other)?;
            Ok(number.to_string())
        });
        assert!(source.outcome(at(1)).now_or_never().is_none(), "it is read");
        let later = source.outcome(at(9));
        go_on.send(()).unwrap();
        assert_eq!(&*later.await.unwrap(), "0");
    }

    #[tokio::test]
    async fn the_password_is_the_first_line_of_a_file_as_it_is_now() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let password = Password::from_file(file.path().to_owned());
        let Password::Source(source) = &password else { unreachable!("it is one") };
        for (text, expected) in [("one", "one"), ("two\nmore", "two"), ("three\r\n", "three")] {
            std::fs::write(file.path(), text).unwrap();
            assert!(password.check().is_ok());
            assert_eq!(&*source.outcome(at(1)).await.unwrap(), expected);
        }
        std::fs::write(file.path(), "\n").unwrap();
        assert!(format!("{:#}", password.check().unwrap_err()).contains("empty line"));
        let refused = Password::from_file("/dev/zero".into()).check().unwrap_err();
        assert!(format!("{refused:#}").contains("/dev/zero: it is not a regular file"), "{refused:#}");
    }
}
