//! Marks, by which other processes detect that a holder has crashed before its lock expires.
//!
//! A mark is a lock on one byte of the file `DB-alive`, at a random offset. It belongs to an *open file
//! description*, and ends when its last descriptor is closed, by the process that opened it and by all that
//! have inherited it. The row of a lock names the file and the byte. So if that byte is not locked, no
//! process of the holder is left.
//!
//! The file is named by its device and inode. A file that was deleted and created again is another one while
//! any holder has the old one open. The state of a mark in another file is unknown: then only the expiry
//! decides.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{OFlags, fstat};
use rustix::io::{FdFlags, fcntl_setfd};

/// The file with the marks.
#[derive(Debug)]
pub(crate) struct Marks {
    /// For queries; never locked. Nothing if there is no such file, or this user may not read it.
    look: Option<File>,
    file: String,
}

/// The mark of this process. It lasts until it is dropped here and closed by all processes that have
/// inherited it.
#[derive(Debug)]
pub(crate) struct Mark {
    file: File,
    name: Arc<str>,
}

impl Mark {
    /// The name, as stored in the rows of locks.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl Marks {
    /// Opens the file, creating it if needed.
    pub(crate) fn open(path: &Path) -> io::Result<Marks> {
        let look = open(path)?;
        let file = name_of(&look)?;
        Ok(Marks { look: Some(look), file })
    }

    /// Opens the file to query it, if there is one. Without it no mark is known to be gone.
    pub(crate) fn found(path: &Path) -> Marks {
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let look = OpenOptions::new().read(true).custom_flags(flags).open(path).ok();
        let file = look.as_ref().and_then(|look| name_of(look).ok()).unwrap_or_default();
        Marks { look, file }
    }

    /// Makes a mark that child processes inherit.
    ///
    /// Returns `None` if that is impossible or the file was replaced: then locks have no mark.
    pub(crate) fn make(&self, path: &Path, mut random: impl FnMut() -> u64) -> Option<Mark> {
        let file = open(path).ok().filter(|file| name_of(file).is_ok_and(|name| name == self.file))?;
        // A random offset is already taken once in a billion times.
        let place = (0..3).map(|_| random() >> 34).find(|place| ofd::lock(&file, *place))?;
        let mark = Mark { file, name: format!("{}:{place}", self.file).into() };
        fcntl_setfd(&mark.file, FdFlags::empty()).ok()?;
        Some(mark)
    }

    /// Whether the mark is in this file.
    pub(crate) fn has(&self, mark: &Mark) -> bool {
        mark.name.rsplit_once(':').is_some_and(|(file, _)| file == self.file)
    }

    /// Whether it is certain that all processes with this mark have ended.
    pub(crate) fn is_gone(&self, mark: &str) -> bool {
        let place = mark.rsplit_once(':').filter(|(file, _)| *file == self.file);
        let place = place.and_then(|(_, place)| place.parse().ok());
        self.look.as_ref().zip(place).is_some_and(|(look, place)| ofd::is_free(look, Some(place)))
    }

    /// Whether any process may have a mark.
    pub(crate) fn are_any(&self) -> bool {
        !self.look.as_ref().is_some_and(|look| ofd::is_free(look, None))
    }
}

/// Opens or creates the file; not one that a symbolic link leads to, which another user may have put there.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().create(true).truncate(false).read(true).write(true).custom_flags(flags).open(path)
}

fn name_of(file: &File) -> io::Result<String> {
    let found = fstat(file)?;
    Ok(format!("{}:{}", found.st_dev, found.st_ino))
}

/// Locks of open file descriptions (OFD locks).
#[cfg(any(target_os = "linux", target_os = "android"))]
mod ofd {
    use std::fs::File;

    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc::{F_UNLCK, F_WRLCK, SEEK_SET, flock};

    /// Tries to lock the byte. Returns whether it succeeded.
    pub(super) fn lock(file: &File, place: u64) -> bool {
        bytes(Some(place)).is_some_and(|byte| fcntl(file, FcntlArg::F_OFD_SETLK(&byte)).is_ok())
    }

    /// Whether it is certain that no other open file description has a lock on the byte; if `None`, on any
    /// byte.
    pub(super) fn is_free(file: &File, place: Option<u64>) -> bool {
        let Some(mut bytes) = bytes(place) else { return false };
        let asked = fcntl(file, FcntlArg::F_OFD_GETLK(&mut bytes));
        asked.is_ok() && i32::from(bytes.l_type) == F_UNLCK
    }

    fn bytes(place: Option<u64>) -> Option<flock> {
        let l_start = place.unwrap_or(0).try_into().ok()?;
        let (l_type, l_whence) = (F_WRLCK.try_into().ok()?, SEEK_SET.try_into().ok()?);
        Some(flock { l_type, l_whence, l_start, l_len: place.is_some().into(), l_pid: 0 })
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod ofd {
    use std::fs::File;

    pub(super) fn lock(_file: &File, _place: u64) -> bool {
        false
    }

    pub(super) fn is_free(_file: &File, _place: Option<u64>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_gone_with_its_last_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("alive");
        let marks = Marks::open(&path).unwrap();
        assert!(!marks.are_any());
        let mark = marks.make(&path, || 7 << 34).unwrap();
        let inherited = mark.file.try_clone().unwrap();
        let name = mark.name().to_owned();
        assert!(marks.are_any() && !marks.is_gone(&name));
        drop(mark);
        assert!(!marks.is_gone(&name), "a process that inherited it keeps it");
        drop(inherited);
        assert!(marks.is_gone(&name) && !marks.are_any());
    }

    #[test]
    fn the_state_of_a_mark_in_another_file_is_unknown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("alive");
        let before = Marks::open(&path).unwrap();
        let mark = before.make(&path, || 7 << 34).unwrap();
        std::fs::remove_file(&path).unwrap();
        let after = Marks::open(&path).unwrap();
        assert!(!after.is_gone(mark.name()));
        assert!(!after.is_gone("what:is:this") && !after.is_gone(""));
        assert!(before.make(&path, || 9 << 34).is_none(), "it would be looked for in the other file");
    }
}
