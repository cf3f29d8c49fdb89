//! The database: opens and creates it, and runs one transaction per request.

use std::cell::Cell;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use quorlock::node::record::Outcome;
use quorlock::node::{NodeError, NodeErrorKind, Reason, Request, Seams};
use quorlock::protocol::{FencingToken, Moment, micros};
use quorlock::runtime::{Clock as _, SystemClock};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};
use rustix::fs::{FlockOperation, flock};

use crate::failure::Failure;
use crate::mark::{self, Mark, Marks};
use crate::place::{self, Place};
use crate::table::Table;

mod reading;

use reading::Reads;

/// The version of the tables, in `user_version`.
const TABLES: i64 = 1;
/// Identifies the application, in `application_id`: `qrlk`.
const APPLICATION: i64 = 0x7172_6c6b;

const SCHEMA: &str = "
    CREATE TABLE about (
        one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
        id TEXT NOT NULL,           -- random, of this file
        boot TEXT NOT NULL,         -- all locks are of this boot
        place TEXT NOT NULL,        -- where this was written, by what a copy does not carry
        counted_from INTEGER,       -- from then on nothing is forgotten; NULL: nothing ever was
        reserve INTEGER NOT NULL,   -- no fencing token is above this, even if power is lost
        floor INTEGER NOT NULL      -- the reserve of the boot before
    );
    CREATE TABLE locks (
        key TEXT NOT NULL PRIMARY KEY,
        record TEXT NOT NULL,       -- holder, counter, readers and so on, one a line
        dead_at INTEGER NOT NULL    -- when all of it has expired: microseconds since the boot
    ) WITHOUT ROWID;
    CREATE INDEX locks_by_end ON locks (dead_at);
";

/// How far ahead the reserve is: numbers up to it need no flush to disk.
const RESERVE: Duration = Duration::from_secs(10 * 60);
/// A number further ahead than this of the clock and of the reserve, from a client with a wrong clock, is itself flushed to
/// disk.
const FAR_AHEAD: Duration = Duration::from_secs(60 * 60);
/// The number of pages in the write-ahead log at which it is checkpointed: the next process to open the
/// database reads the whole log.
const LOG_PAGES: i64 = 250;
/// The first pause between two attempts while another transaction runs, how often it doubles, and the number of
/// attempts: together a second and a half.
const PAUSE: Duration = Duration::from_micros(500);
const DOUBLINGS: u32 = 5;
const PAUSES: i32 = 110;

thread_local! {
    /// When a request of this thread gives up before that.
    static UNTIL: Cell<Option<Moment>> = const { Cell::new(None) };
}

/// The number of keys in a page of a listing.
pub(crate) const PAGE: usize = 250;

/// An open database.
#[derive(Debug)]
pub(crate) struct Store {
    database: Connection,
    /// The path of the database.
    path: PathBuf,
    /// Where the data are.
    place: Place,
    marks: Marks,
    mark: Option<Mark>,
    about: About,
    reads: Option<Reads>,
    seams: Seams,
}

/// The metadata in the database. During a boot only the reserve changes, which grows.
#[derive(Clone, Debug)]
struct About {
    id: String,
    boot: String,
    place: String,
    counted_from: Option<u64>,
    reserve: FencingToken,
    floor: FencingToken,
}

/// The name of a history, and its age.
pub(crate) type History = (String, Duration);

impl Store {
    /// Opens the database, creating it if there is none. `again`: whether this process has had it open, so that
    /// locks may be held which a database that is elsewhere now does not have.
    pub(crate) fn open(path: &Path, boot: &str, again: bool, seams: &Seams) -> Result<Store, NodeError> {
        let path = place::found(path)?;
        open(&path, boot, again, seams).map_err(|failure| failure.explain(&path, false))
    }

    /// Whether it must be opened anew: a file that has its data was replaced or deleted, or it has more names; or
    /// a program has opened it that nothing was to change.
    pub(crate) fn was_replaced(&self) -> bool {
        let has_changed = self.reads.is_some_and(|reads| reads.is_still && !reading::is_still(&self.path));
        has_changed || place::place_of(&self.path).ok().as_ref() != Some(&self.place)
    }

    /// Takes the mark, which must outlive the locks that name it.
    pub(crate) fn take_mark(&mut self) -> Option<Mark> {
        self.mark.take()
    }

    /// Goes on with the mark of an earlier opening, if it is one of the same file.
    pub(crate) fn go_on(&mut self, marks: &mut Vec<Mark>) {
        if let Some(at) = marks.iter().position(|mark| self.marks.has(mark)) {
            self.mark = Some(marks.swap_remove(at));
        }
    }

    pub(crate) fn history(&self) -> History {
        let About { id, boot, counted_from, .. } = &self.about;
        let now = since_boot(self.seams.clock().now());
        // Grants of an earlier boot have no holders any more.
        let age = counted_from.map_or(Duration::MAX, |from| Duration::from_micros(now.saturating_sub(from)));
        (format!("{id}/{boot}"), age)
    }

    /// Returns a number that changes with each transaction of another connection.
    pub(crate) fn version(&self) -> rusqlite::Result<i64> {
        self.database.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
    }

    /// Carries out a request, in one transaction.
    pub(crate) fn execute(&mut self, request: &Request) -> Result<Outcome, NodeError> {
        // Most acquisitions of a contended lock change nothing.
        if matches!(request, Request::Acquire { .. } | Request::Inspect { .. }) {
            match self.read(|table| table.apply(request)) {
                Err(Failure::MustWrite) => {}
                outcome => return outcome.map_err(|failure| failure.explain(&self.path, false)),
            }
        }
        if request.may_create() {
            self.make_mark();
        }
        self.write(request, false)
    }

    /// Returns a page of the keys of locks that begin with `prefix` and come after `last`, in their order.
    pub(crate) fn keys(&self, prefix: &str, last: &str) -> Result<Vec<String>, NodeError> {
        let read = || -> rusqlite::Result<Vec<String>> {
            let mut page = self.database.prepare_cached(
                "SELECT key FROM locks WHERE substr(record, 1, 7) = 'holder ' AND key >= ?1 AND key > ?2 \
                 ORDER BY key LIMIT ?3",
            )?;
            page.query_map(params![prefix, last, PAGE], |row| row.get(0))?.collect()
        };
        let mut keys = read().map_err(|error| Failure::from(error).explain(&self.path, false))?;
        // After the last key with the prefix come others.
        keys.retain(|key| key.starts_with(prefix));
        Ok(keys)
    }

    /// Reads without changing anything.
    pub(crate) fn read<T>(
        &self,
        look: impl FnOnce(&mut Table<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let transaction = self.database.unchecked_transaction()?;
        look(&mut self.table(&transaction, false))
    }

    fn write(&mut self, request: &Request, durably: bool) -> Result<Outcome, NodeError> {
        let explain = |failure: Failure| failure.explain(&self.path, false);
        if durably {
            set_durable(&self.database, true).map_err(explain)?;
        }
        let transaction =
            rusqlite::Transaction::new_unchecked(&self.database, TransactionBehavior::Immediate);
        let transaction = transaction.map_err(|error| explain(error.into()))?;
        let mut table = self.table(&transaction, true);
        let outcome = table.apply(request).map_err(explain)?;
        let (largest, wall) = (table.largest, table.wall);
        let mut reserve = self.about.reserve;
        // What a clock that was ahead has drawn is below the reserve, though no clock explains it any more.
        let near = wall.max(Duration::from_micros(reserve.get())).saturating_add(FAR_AHEAD);
        let is_near = largest.get() <= micros(near);
        if largest > reserve {
            if !durably {
                // `synchronous` can be set only outside of a transaction.
                drop(transaction);
                let outcome = self.write(request, true);
                // Keeping the durable mode by mistake is slower, but harmless.
                drop(set_durable(&self.database, false));
                return outcome;
            }
            if is_near {
                let ahead = largest.get().saturating_add(micros(RESERVE));
                reserve = FencingToken::new(ahead).unwrap_or(FencingToken::MAX);
                let moved =
                    transaction.execute("UPDATE about SET reserve = max(reserve, ?1)", [reserve.get()]);
                moved.map_err(|error| explain(error.into()))?;
            }
        }
        transaction.commit().map_err(|error| Failure::from(error).explain(&self.path, true))?;
        self.about.reserve = reserve;
        Ok(outcome)
    }

    fn table<'a>(&'a self, database: &'a Connection, may_write: bool) -> Table<'a> {
        let clock = self.seams.clock();
        Table {
            database,
            marks: &self.marks,
            mark: self.mark.as_ref().map(Mark::name),
            // Read after waiting for other transactions.
            now: since_boot(clock.now()),
            wall: clock.wall(),
            floor: self.about.floor,
            is_void: self.reads.is_some_and(|reads| reads.is_void),
            may_write,
            largest: FencingToken::ZERO,
        }
    }

    fn make_mark(&mut self) {
        if self.mark.is_none() && self.seams.kept_by_children() {
            self.mark =
                self.marks.make(&place::beside(&self.path, "alive"), || self.seams.entropy().next_u64());
        }
    }
}

fn open(path: &Path, boot: &str, again: bool, seams: &Seams) -> Result<Store, Failure> {
    place::make(path);
    place::check_owners(path)?;
    // The path has no symbolic links, and one that appears now was not put there by us.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let database = Connection::open_with_flags(path, flags)?;
    database.busy_handler(Some(wait))?;
    // The next process usually opens the database soon and needs no checkpoint; and no request should wait
    // for the disk now.
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Before anything is read, for which SQLite would create its files beside it.
    if database.is_readonly("main")? {
        return Err(place::read_only(path).into());
    }
    set_durable(&database, false)?;
    database.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
    let marks = open_marks(path)?;
    // Only holders make marks, and have the database open.
    let is_in_use = || again || marks.are_any();
    if is_new(&database, path)? {
        create(&database, path, boot, is_in_use, seams)?;
    }
    let mut about = read_about(&database)?;
    // What has been read now has a log.
    let place = place::place_of(path).map_err(Failure::Node)?;
    if about.boot != boot || about.place != place.noted() {
        about = begin(&database, (boot, &place), &marks, is_in_use, seams)?;
    }
    let (path, mark, reads, seams) = (path.to_owned(), None, None, seams.clone());
    Ok(Store { database, path, place, marks, mark, about, reads, seams })
}

/// Sets whether a commit waits for the disk.
fn set_durable(database: &Connection, durable: bool) -> Result<(), Failure> {
    Ok(database.pragma_update(None, "synchronous", if durable { "FULL" } else { "NORMAL" })?)
}

/// Whether the database is still empty. Fails if it belongs to another program.
fn is_new(database: &Connection, path: &Path) -> Result<bool, Failure> {
    // All of one moment, as another process may be creating the tables.
    let transaction = database.unchecked_transaction()?;
    let number = |pragma| transaction.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let (application, tables) = (number("application_id")?, number("user_version")?);
    let shown = path.display();
    if application == APPLICATION {
        if tables == TABLES {
            return Ok(false);
        }
        let words = format!(
            "`{shown}` was created by another version of quorlock (its tables are of version {tables}, this program \
             knows {TABLES}): use one version on this host, or name another file"
        );
        return Err(unfit(NodeErrorKind::Unsupported, words));
    }
    let sql = "SELECT count(*) FROM sqlite_schema";
    let empty = transaction.query_row(sql, [], |row| row.get::<_, i64>(0))? == 0;
    if application == 0 && tables == 0 && empty {
        return Ok(true);
    }
    let words = format!("`{shown}` is the database of another program: name a file for locks alone");
    Err(unfit(NodeErrorKind::WrongServer, words))
}

fn unfit(kind: NodeErrorKind, words: String) -> Failure {
    Failure::Node(NodeError::Unfit { kind, reason: Reason::new(words) })
}

/// Creates the tables, in one process at a time: SQLite does not wait for others when it starts its log.
fn create(
    database: &Connection,
    path: &Path,
    boot: &str,
    is_in_use: impl FnOnce() -> bool,
    seams: &Seams,
) -> Result<(), Failure> {
    let _turn = turn(path)?;
    if !is_new(database, path)? {
        return Ok(());
    }
    database.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    let transaction = rusqlite::Transaction::new_unchecked(database, TransactionBehavior::Immediate)?;
    transaction.execute_batch(SCHEMA)?;
    // If it is in use but has no locks yet, a database was deleted, and locks may be lost.
    let counted_from = is_in_use().then(|| since_boot(seams.clock().now()));
    let id = format!("{:032x}", seams.entropy().next_u128());
    let place = place::place_of(path).map_err(Failure::Node)?.noted();
    let insert = "INSERT INTO about VALUES (1, ?1, ?2, ?3, ?4, 0, 0)";
    transaction.execute(insert, params![id, boot, place, counted_from])?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", TABLES)?;
    Ok(transaction.commit()?)
}

/// Begins a new history: deletes all locks if they are of an earlier boot and therefore void, or notes that those of
/// this boot may be missing if the file was restored or copied, or its log deleted.
fn begin(
    database: &Connection,
    (boot, place): (&str, &Place),
    marks: &Marks,
    is_in_use: impl FnOnce() -> bool,
    seams: &Seams,
) -> Result<About, Failure> {
    let transaction = rusqlite::Transaction::new_unchecked(database, TransactionBehavior::Immediate)?;
    // Another process may have been first.
    let noted = read_about(&transaction)?;
    if noted.boot != boot {
        let (mark, floor) = (None, FencingToken::ZERO);
        let (now, wall) = (since_boot(seams.clock().now()), seams.clock().wall());
        let (is_void, may_write, largest) = (true, true, FencingToken::ZERO);
        Table { database: &transaction, marks, mark, now, wall, floor, is_void, may_write, largest }
            .begin_boot()?;
        let sql = "UPDATE about SET boot = ?1, counted_from = NULL, floor = reserve";
        transaction.execute(sql, [boot])?;
    }
    if noted.place != place.noted() {
        transaction.execute("UPDATE about SET place = ?1", [place.noted()])?;
        if place.may_lack(&noted.place, is_in_use) {
            let id = format!("{:032x}", seams.entropy().next_u128());
            let from = since_boot(seams.clock().now());
            transaction.execute("UPDATE about SET id = ?1, counted_from = ?2", params![id, from])?;
        }
    }
    let about = read_about(&transaction)?;
    transaction.commit()?;
    Ok(about)
}

fn read_about(database: &Connection) -> Result<About, Failure> {
    let number =
        |found: i64| u64::try_from(found).ok().and_then(FencingToken::new).unwrap_or(FencingToken::MAX);
    Ok(database.query_row("SELECT id, boot, place, counted_from, reserve, floor FROM about", [], |row| {
        Ok(About {
            id: row.get(0)?,
            boot: row.get(1)?,
            place: row.get(2)?,
            counted_from: row.get::<_, Option<i64>>(3)?.map(|from| u64::try_from(from).unwrap_or(0)),
            reserve: number(row.get(4)?),
            floor: number(row.get(5)?),
        })
    })?)
}

/// Opens the file with the marks. It belongs to the owner of the database, like SQLite's own files next to
/// it.
fn open_marks(path: &Path) -> Result<Marks, Failure> {
    let marks = place::beside(path, "alive");
    let is_new = place::make(&marks);
    let opened = Marks::open(&marks).map_err(|error| Failure::Node(place::failed_to_open(&marks, &error)))?;
    if is_new && let Ok(database) = fs::metadata(path) {
        // Only root can change the owner; other users share the file by its mode.
        drop(std::os::unix::fs::chown(&marks, Some(database.uid()), Some(database.gid())));
        drop(fs::set_permissions(&marks, database.permissions()));
    }
    Ok(opened)
}

/// Waits until no other process is creating the tables.
fn turn(path: &Path) -> Result<File, Failure> {
    let marks = place::beside(path, "alive");
    let file = mark::open(&marks).map_err(|error| Failure::Node(place::failed_to_open(&marks, &error)))?;
    let mut pauses = 0;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if !wait(pauses) {
            let words =
                format!("another process has been creating `{}` for too long: end it", path.display());
            let reason = Reason::new(words);
            return Err(Failure::Node(NodeError::Failed { kind: NodeErrorKind::Busy, reason }));
        }
        pauses += 1;
    }
    Ok(file)
}

/// Pauses while another process has a transaction. Returns `false` once the maximum is reached.
///
/// The pauses become longer: with two hundred processes that look every half millisecond, the one with the transaction
/// gets no processor to end it, all others time out, and taking back what they asked for keeps it so.
fn wait(before: i32) -> bool {
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread is the node's own, and waits for other processes"
    )]
    thread::sleep(pause(before));
    before < PAUSES && UNTIL.get().is_none_or(|until| SystemClock::default().now() < until)
}

/// Lets a request that was asked at this moment, and whose client waits this long, wait for the transactions of others for a
/// part of that, so that the client hears what it has waited for.
pub(crate) fn be_patient_for(awaited: Duration, asked: Moment) {
    UNTIL.set(Some(asked + awaited * 3 / 4));
}

/// Returns how long to pause after so many pauses.
fn pause(before: i32) -> Duration {
    let doublings = u32::try_from(before / 4).unwrap_or_default().min(DOUBLINGS);
    PAUSE * 2_u32.pow(doublings)
}

/// Returns the boot clock, in microseconds.
pub(crate) fn since_boot(now: Moment) -> u64 {
    micros(now.since(Moment::ORIGIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_a_second_and_a_half_and_looks_ever_less_often() {
        let pauses: Vec<Duration> = (0..=PAUSES).map(pause).collect();
        assert!(pauses.is_sorted() && pauses[0] == PAUSE && pauses[100] == Duration::from_millis(16));
        assert!((1400..1600).contains(&pauses.iter().sum::<Duration>().as_millis()));
    }
}
