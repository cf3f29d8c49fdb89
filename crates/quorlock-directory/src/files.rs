//! The files of the store, one per key, read and written under an exclusive lock.
//!
//! ```text
//! DIR/lock               locked while a request is carried out
//! DIR/identity           id 5f0c…, created MICROSECONDS since 1970, place INODE:BIRTH of this file
//! DIR/keys/HASH          key orders/42, and below it the record, as text
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use quorlock::node::Reason;
use quorlock::node::record::Record;
use quorlock::protocol::micros;
use rustix::fs::{FlockOperation, flock};

/// The store, locked until this is dropped.
///
/// Every request opens everything again: the directory may have been replaced, for instance by mounting a
/// file system over it.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    keys: PathBuf,
    now: u64,
    wrote: bool,
    _lock: File,
}

impl Files {
    /// Waits until no other process holds the lock. The directory must exist: one that is created by mistake,
    /// before its file system is mounted, would be another store.
    pub(crate) fn lock(directory: &Path, wall: impl FnOnce() -> Duration) -> io::Result<Files> {
        let path = directory.join("lock");
        // For this user alone: who may read a file can lock it.
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let keys = directory.join("keys");
        if !keys.exists() {
            DirBuilder::new().mode(0o700).create(&keys)?;
            if directory.metadata()?.mode() & SETGID != 0 {
                // Its users share a group. A mode at creation would be subject to the umask.
                fs::set_permissions(&keys, Permissions::from_mode(SETGID | 0o770))?;
                fs::set_permissions(&path, Permissions::from_mode(0o660))?;
            }
            sync(directory)?;
        }
        // Read the clock after the wait.
        let now = micros(wall());
        Ok(Files { directory: directory.to_owned(), keys, now, wrote: false, _lock: lock })
    }

    /// Returns the name of this history of the data, and its age. A file that was restored or copied is another one,
    /// and begins a new history.
    pub(crate) fn identity(&self, random: impl FnOnce() -> u128) -> io::Result<(String, Duration)> {
        let file = self.directory.join("identity");
        let text = text(&file)?.unwrap_or_default();
        let word = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        if let Some(place) = word("place")
            && place == place_of(&file.metadata()?)
        {
            let id = word("id").ok_or_else(|| wrong("the identity has no id"))?;
            let created = word("created").and_then(|created| created.parse().ok());
            let created = created.ok_or_else(|| wrong("the identity has no age"))?;
            return Ok((id.to_owned(), Duration::from_micros(self.now.saturating_sub(created))));
        }
        let id = format!("{:032x}", random());
        replace_by(&file, |new| format!("id {id}\ncreated {}\nplace {}\n", self.now, place_of(new)))?;
        sync(&self.directory)?;
        Ok((id, Duration::ZERO))
    }

    /// Returns the current time in microseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Whether anything was written: from then on a failed request may have taken effect.
    pub(crate) fn wrote(&self) -> bool {
        self.wrote
    }

    /// Returns the record of `key`; or, if its file has something else, why not.
    pub(crate) fn read(&self, key: &str) -> io::Result<Result<Record, Reason>> {
        let Some(text) = text(&self.file(key))? else { return Ok(Ok(Record::default())) };
        Ok(match decoded(&text) {
            Some((name, _)) if name != key.escape_default().to_string() => {
                Err("the file of the key belongs to another key".into())
            }
            Some((_, Some(record))) => Ok(record),
            Some((_, None)) | None => Err("the file of the key does not hold a lock".into()),
        })
    }

    /// Writes the record of `key`.
    pub(crate) fn write(&mut self, key: &str, record: &Record) -> io::Result<()> {
        replace(&self.file(key), &format!("key {}\n{}", key.escape_default(), record.encode()))?;
        self.wrote = true;
        Ok(())
    }

    /// Flushes all changes to disk, after which they may be acknowledged.
    pub(crate) fn commit(&self) -> io::Result<()> {
        if self.wrote { sync(&self.keys) } else { Ok(()) }
    }

    /// Deletes expired records.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.keys)? {
            let file = entry?.path();
            // Unreadable files are left for the administrator.
            let text = text(&file).ok().flatten();
            let record = text.and_then(|text| decoded(&text)?.1);
            if record.is_some_and(|record| record.at(self.now) == Record::default()) {
                fs::remove_file(file)?;
            }
        }
        Ok(())
    }

    fn file(&self, key: &str) -> PathBuf {
        self.keys.join(file_name(key))
    }
}

/// The bit of a directory that passes its group on to what is created in it.
const SETGID: u32 = 0o2000;

/// Returns the file name of a key: a hash (FNV-1a), because a key may be longer than a file name and contain
/// any character. The file contains its key, so two keys with the same hash are an error and never the same
/// lock.
pub(crate) fn file_name(key: &str) -> String {
    let hash = key.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    format!("{hash:032x}")
}

/// Replaces a file atomically: after a crash it has either the old text or the new one.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    replace_by(file, |_| text.to_owned())
}

/// The same, by a text about the new file.
fn replace_by(file: &Path, text: impl FnOnce(&fs::Metadata) -> String) -> io::Result<()> {
    let new = file.with_extension("new");
    let mut opened = File::create(&new)?;
    let text = text(&opened.metadata()?);
    opened.write_all(text.as_bytes())?;
    opened.sync_all()?;
    fs::rename(new, file)
}

/// Where a file is, by what a copy does not have: the inode, and when that was made.
fn place_of(found: &fs::Metadata) -> String {
    let born = found.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    format!("{}:{}", found.ino(), born.as_nanos())
}

/// Flushes a directory, which makes the names of new files durable.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Returns the text of a file. `None` if there is no such file.
fn text(file: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the key that a file names, and its record, if it has one.
fn decoded(text: &str) -> Option<(&str, Option<Record>)> {
    let (key, record) = text.strip_prefix("key ")?.split_once('\n')?;
    Some((key, Record::decode(record.as_bytes())))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
