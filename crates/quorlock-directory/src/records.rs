//! The files of the store, one per key, read and written under an exclusive lock.
//!
//! ```text
//! DIR/lock               locked while a request is carried out
//! DIR/identity           id 5f0c…, created MICROSECONDS since 1970
//! DIR/keys/HASH          key orders/42, ends MICROSECONDS, and one of: lock TOKEN, counter NUMBER, tombstone
//! ```
//!
//! A file has one line per word. Tokens are in hexadecimal.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use quorlock::protocol::{FencingToken, Token, micros};
use rustix::fs::{FlockOperation, flock};

/// The value of a key, and its expiry in microseconds since 1970; `None` if it never expires.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) what: What,
    pub(crate) ends: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Lock(Held),
    Counter(FencingToken),
    Tombstone,
}

/// The holder of a lock.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) token: Token,
    /// The fencing token.
    pub(crate) number: Option<FencingToken>,
    /// The first token that was refused while this one held the lock.
    pub(crate) wanted: Option<Token>,
}

/// The store, locked until this is dropped.
///
/// Every request opens everything again: the directory may have been replaced, for instance by mounting a
/// file system over it.
#[derive(Debug)]
pub(crate) struct Records {
    directory: PathBuf,
    keys: PathBuf,
    now: u64,
    wrote: bool,
    _lock: File,
}

impl Records {
    /// Waits until no other process holds the lock. The directory must exist: one that is created by mistake,
    /// before its file system is mounted, would be another store.
    pub(crate) fn lock(directory: &Path, wall: impl FnOnce() -> Duration) -> io::Result<Records> {
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
        Ok(Records { directory: directory.to_owned(), keys, now, wrote: false, _lock: lock })
    }

    /// Returns the name of this history of the data, and its age.
    pub(crate) fn identity(&self, random: impl FnOnce() -> u128) -> io::Result<(String, Duration)> {
        let file = self.directory.join("identity");
        if let Some(words) = words(&file)? {
            let id = words.get("id").cloned().ok_or_else(|| wrong("the identity has no id"))?;
            let created = number(&words, "created")?.ok_or_else(|| wrong("the identity has no age"))?;
            return Ok((id, Duration::from_micros(self.now.saturating_sub(created))));
        }
        let id = format!("{:032x}", random());
        replace(&file, &format!("id {id}\ncreated {}\n", self.now))?;
        sync(&self.directory)?;
        Ok((id, Duration::ZERO))
    }

    /// Returns the current time in microseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Returns the time after this duration.
    pub(crate) fn after(&self, time: Duration) -> u64 {
        self.now.saturating_add(micros(time))
    }

    /// Whether anything was written: from then on a failed request may have taken effect.
    pub(crate) fn wrote(&self) -> bool {
        self.wrote
    }

    /// Returns the value of `key`, unless it has expired.
    pub(crate) fn read(&self, key: &str) -> io::Result<Option<Record>> {
        let Some(words) = words(&self.file(key))? else { return Ok(None) };
        if words.get("key") != Some(&key.escape_default().to_string()) {
            return Err(wrong("the file of the key belongs to another key"));
        }
        let ends = number(&words, "ends")?;
        let what = match (words.get("lock"), number(&words, "counter")?, words.get("tombstone")) {
            (Some(token), None, None) => What::Lock(Held {
                token: token_of(token)?,
                number: number(&words, "number")?.and_then(FencingToken::new),
                wanted: words.get("wanted").map(|token| token_of(token)).transpose()?,
            }),
            (None, Some(counter), None) => What::Counter(
                FencingToken::new(counter).ok_or_else(|| wrong("the counter is beyond its end"))?,
            ),
            (None, None, Some(_)) => What::Tombstone,
            _ => return Err(wrong("the file of the key does not hold a lock")),
        };
        Ok(ends.is_none_or(|ends| ends > self.now).then_some(Record { what, ends }))
    }

    pub(crate) fn write(&mut self, key: &str, Record { what, ends }: &Record) -> io::Result<()> {
        let mut text = format!("key {}\n", key.escape_default());
        if let Some(ends) = ends {
            let _ = writeln!(text, "ends {ends}");
        }
        match what {
            What::Lock(Held { token, number, wanted }) => {
                let _ = writeln!(text, "lock {}", hex(token));
                if let Some(number) = number {
                    let _ = writeln!(text, "number {number}");
                }
                if let Some(wanted) = wanted {
                    let _ = writeln!(text, "wanted {}", hex(wanted));
                }
            }
            What::Counter(number) => drop(writeln!(text, "counter {number}")),
            What::Tombstone => text.push_str("tombstone yes\n"),
        }
        self.wrote |= replace(&self.file(key), &text).map(|()| true)?;
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: &str) -> io::Result<()> {
        fs::remove_file(self.file(key))?;
        self.wrote = true;
        Ok(())
    }

    /// Flushes all changes to disk, after which they may be acknowledged.
    pub(crate) fn commit(&self) -> io::Result<()> {
        if self.wrote { sync(&self.keys) } else { Ok(()) }
    }

    /// Deletes expired records, mostly tombstones, which are never read again.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.keys)? {
            let file = entry?.path();
            // Unreadable files are left for the administrator.
            let ends = words(&file).ok().flatten().and_then(|words| number(&words, "ends").ok()?);
            if ends.is_some_and(|ends| ends <= self.now) {
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
    let new = file.with_extension("new");
    let mut opened = File::create(&new)?;
    opened.write_all(text.as_bytes())?;
    opened.sync_all()?;
    fs::rename(new, file)
}

/// Flushes a directory, which makes the names of new files durable.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Returns the words at the beginnings of lines, each with the rest of its line. `None` if there is no such
/// file.
fn words(file: &Path) -> io::Result<Option<BTreeMap<String, String>>> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let words = text.lines().filter_map(|line| line.split_once(' '));
    Ok(Some(words.map(|(word, rest)| (word.to_owned(), rest.to_owned())).collect()))
}

fn number(words: &BTreeMap<String, String>, word: &str) -> io::Result<Option<u64>> {
    words.get(word).map(|text| text.parse().map_err(|_| wrong("a number cannot be parsed"))).transpose()
}

fn token_of(text: &str) -> io::Result<Token> {
    let digits = text.as_bytes().chunks(2).map(|digits| std::str::from_utf8(digits).ok());
    let bytes: Option<Vec<u8>> = digits.map(|digits| u8::from_str_radix(digits?, 16).ok()).collect();
    bytes.map(|bytes| Token::found(&bytes)).ok_or_else(|| wrong("a token cannot be parsed"))
}

fn hex(token: &Token) -> String {
    token.as_bytes().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn wrong(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
