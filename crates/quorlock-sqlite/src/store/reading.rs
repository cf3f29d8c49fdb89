//! A database that this user may not write: it is opened for inspections, and stays as it is.

use std::fs;
use std::path::Path;

use quorlock::node::{NodeError, Seams};
use rusqlite::{Connection, OpenFlags};

use super::{About, Store, is_new, read_about, since_boot, wait};
use crate::failure::Failure;
use crate::mark::Marks;
use crate::place;

/// How a database is read that this user may not write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reads {
    /// Whether no program had it open, so that nothing changes it.
    pub(super) is_still: bool,
    /// Whether its locks are of an earlier boot.
    pub(super) is_void: bool,
}

impl Store {
    /// Opens a database that this user may not write, for inspections. Writes nothing, neither into it nor beside it.
    pub(crate) fn open_to_read(path: &Path, boot: &str, seams: &Seams) -> Result<Store, NodeError> {
        let path = place::found(path)?;
        open_to_read(&path, boot, seams).map_err(|failure| failure.explain(&path, false))
    }

    /// Whether it is for inspections only.
    pub(crate) fn only_reads(&self) -> bool {
        self.reads.is_some()
    }
}

fn open_to_read(path: &Path, boot: &str, seams: &Seams) -> Result<Store, Failure> {
    place::check_owners(path)?;
    let is_still = is_still(path);
    let how = if is_still { "immutable=1" } else { "readonly_shm=1" };
    let file = path.display().to_string().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let database = Connection::open_with_flags(format!("file:{file}?mode=ro&{how}"), flags)?;
    database.busy_handler(Some(wait))?;
    if is_new(&database, path)? {
        return Err(place::read_only(path).into());
    }
    let place = place::place_of(path).map_err(Failure::Node)?;
    let marks = Marks::found(&place::beside(path, "alive"));
    let mut about = read_about(&database)?;
    // What `begin` would note.
    let is_void = about.boot != boot;
    if is_void {
        about = About { boot: boot.to_owned(), counted_from: None, floor: about.reserve, ..about };
    }
    if place.may_lack(&about.place, || marks.are_any()) {
        let id = format!("{:032x}", seams.entropy().next_u128());
        let counted_from = Some(since_boot(seams.clock().now()));
        about = About { id, counted_from, ..about };
    }
    let (path, mark, reads, seams) =
        (path.to_owned(), None, Some(Reads { is_still, is_void }), seams.clone());
    Ok(Store { database, path, place, marks, mark, about, reads, seams })
}

/// Whether no program has the database open: each creates these files.
pub(super) fn is_still(path: &Path) -> bool {
    ["wal", "shm"].iter().all(|what| fs::symlink_metadata(place::beside(path, what)).is_err())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Duration;

    use quorlock::node::{Request, Vote};
    use quorlock::protocol::{Claim, Token};

    use super::*;

    const BOOT: &str = "this boot";

    /// Returns the path of a database with a held lock.
    fn with_a_lock(folder: &Path) -> PathBuf {
        let path = folder.join("locks.db");
        let claim = Arc::new(Claim::new("job".into(), Token::new(1, "import")));
        let acquire = Request::Acquire { claim, ttl: Duration::from_secs(600), fence_hint: None };
        let mut store = Store::open(&path, BOOT, false, &Seams::default()).unwrap();
        assert_eq!(store.execute(&acquire).unwrap().0, Vote::Granted);
        path
    }

    fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let mut files: Vec<_> = files.map(|file| (file.clone(), fs::read(file).unwrap())).collect();
        files.sort();
        files
    }

    fn seen(path: &Path, boot: &str) -> Vote {
        let mut store = Store::open_to_read(path, boot, &Seams::default()).unwrap();
        store.execute(&Request::inspect("job")).unwrap().0
    }

    /// As the last connection of a program without our settings leaves it: one file.
    fn let_it_be_still(path: &Path) {
        let database = Connection::open(path).unwrap();
        database.query_row("SELECT count(*) FROM locks", [], |_| Ok(())).unwrap();
        drop(database);
        assert!(is_still(path));
    }

    #[test]
    fn locks_are_seen_with_and_without_a_log_and_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = with_a_lock(folder.path());
        for has_log in [true, false] {
            assert_ne!(is_still(&path), has_log);
            let before = files(folder.path());
            assert!(matches!(seen(&path, BOOT), Vote::Held(_)), "with its log: {has_log}");
            assert_eq!(seen(&path, "the next boot"), Vote::Free, "a boot ends all locks");
            assert!(files(folder.path()) == before, "something was written; with its log: {has_log}");
            let_it_be_still(&path);
        }
    }

    #[test]
    fn a_database_that_was_still_is_opened_anew_when_a_program_uses_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = with_a_lock(folder.path());
        let_it_be_still(&path);
        let store = Store::open_to_read(&path, BOOT, &Seams::default()).unwrap();
        assert!(store.only_reads() && !store.was_replaced());
        let _writer = Store::open(&path, BOOT, false, &Seams::default()).unwrap();
        assert!(store.was_replaced());
    }
}
