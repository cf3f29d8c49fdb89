//! The record of the commands, with one clock for all processes of the machine.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::runtime::{Clock as _, SystemClock};
use tempfile::TempDir;

/// A process ran at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: Duration,
    pub(crate) lock: String,
    pub(crate) fence: u64,
    pub(crate) runner: u32,
    pub(crate) pid: u32,
    pub(crate) part: Part,
}

/// The relation of a process to its command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// In its process group.
    Group,
    /// Outside the group, with `--wait-for-descendants`.
    WaitedFor,
    /// Outside the group, and so not covered by the lock.
    Daemon,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(word: &str) -> Result<Part, String> {
        let all = [Part::Group, Part::WaitedFor, Part::Daemon];
        all.into_iter().find(|part| format!("{part:?}") == word).ok_or_else(|| word.to_owned())
    }
}

pub(crate) struct Record {
    folder: TempDir,
}

impl Record {
    pub(crate) fn new() -> Record {
        Record { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("record")
    }

    pub(crate) fn read(&self) -> Vec<Entry> {
        let text = fs::read_to_string(self.path()).unwrap_or_default();
        text.lines().map(parse).collect()
    }
}

/// Appends a line in one write, atomically among concurrent writers.
pub(crate) fn append(path: &str, entry: &Entry) {
    let Entry { at, lock, fence, runner, pid, part } = entry;
    let line = format!("{} {lock} {fence} {runner} {pid} {part:?}\n", at.as_nanos());
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

fn parse(line: &str) -> Entry {
    let words: Vec<&str> = line.split(' ').collect();
    Entry {
        at: Duration::from_nanos(words[0].parse().unwrap()),
        lock: words[1].to_owned(),
        fence: words[2].parse().unwrap(),
        runner: words[3].parse().unwrap(),
        pid: words[4].parse().unwrap(),
        part: words[5].parse().unwrap(),
    }
}

/// Returns the time since boot: the same clock in every process, and the one of leases.
pub(crate) fn now() -> Duration {
    SystemClock::default().now().since(Moment::since_origin(Duration::ZERO))
}

pub(crate) async fn pause(time: Duration) {
    let clock = SystemClock::default();
    clock.sleep_until(clock.now() + time).await;
}

/// Whether the process, which runs this program, has ended. Its id may be reused; a zombie counts as ended.
pub(crate) fn is_gone(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
    matches!(state, None | Some('Z' | 'X')) || program != std::env::current_exe().ok()
}
