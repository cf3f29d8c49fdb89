//! The check for data that is read under shared leases: two marks instead of one.
//!
//! Readers that [share](crate::Lock::shared) a lock at the same time may have different fencing tokens.
//! With one mark that reads raise, the reader with the smaller of two valid tokens would be refused; with
//! one that they do not raise, a late write would change what was just read. So the resource keeps the
//! largest token that was *shown*, by a reader or a writer, and the largest that has *written*:
//!
//! | | accepted if | then |
//! |---|---|---|
//! | a write with token *t* | *t* is not smaller than the largest shown | both marks rise to *t* |
//! | a read with token *t* | *t* is not smaller than the largest written | the mark of tokens shown rises to *t* |
//!
//! A reader's token is above those of all writers before it and below those of all after it (rule S-7 in
//! `docs/rules.md`). So a late write is refused once a later reader has read, a reader that slept through
//! its lease is refused once a later writer has written, and readers never refuse each other. A writer
//! that [downgrades](crate::Lease::downgrade) keeps its token, and may go on reading with it.
//!
//! All access to the data uses these checks, writers too: a write by one of the checks with one mark is not seen
//! here. In SQL and Redis a read raises a mark, which is a write for the database: show the token once for a lease,
//! not for each row.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use super::{Stale, check};
use quorlock_protocol::FencingToken;

/// Data in memory for many readers or one writer at a time, each with its fencing token.
///
/// # Examples
///
/// ```
/// use quorlock::{FencingToken, fence::shared::Guarded};
///
/// let balance = Guarded::new(100);
/// let (ann, ben): (FencingToken, FencingToken) = ("33".parse()?, "34".parse()?); // two readers
/// assert_eq!(balance.read(ben, |balance| *balance)?, 100);
/// assert_eq!(balance.read(ann, |balance| *balance)?, 100); // they do not refuse each other
///
/// assert!(balance.write(ann, |_| unreachable!("34 has read")).is_err());
/// balance.write("35".parse()?, |balance| *balance += 50)?;
/// assert!(balance.read(ben, |_| unreachable!("35 has written")).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Guarded<T> {
    /// The largest that was shown. Readers raise it concurrently.
    shown: AtomicU64,
    inside: RwLock<Inner<T>>,
}

#[derive(Debug, Default)]
struct Inner<T> {
    written: Option<FencingToken>,
    data: T,
}

impl<T> Guarded<T> {
    /// Guards `data`, for which no token was seen.
    #[must_use]
    pub const fn new(data: T) -> Guarded<T> {
        Guarded { shown: AtomicU64::new(0), inside: RwLock::new(Inner { written: None, data }) }
    }

    /// Runs `work` on the data, together with other readers, unless a larger token has written.
    ///
    /// # Errors
    ///
    /// [`Stale`] if one has. `work` is not run then.
    pub fn read<R>(&self, token: FencingToken, work: impl FnOnce(&T) -> R) -> Result<R, Stale> {
        let inside = self.inside.read().unwrap_or_else(PoisonError::into_inner);
        check(inside.written, token)?;
        // Before the data is read; a writer waits until all readers are done.
        self.shown.fetch_max(token.get(), Ordering::Relaxed);
        Ok(work(&inside.data))
    }

    /// Runs `work` on the data, exclusively, unless a larger token was shown. If `work` panics, the data stays
    /// as it left it and the token counts as seen.
    ///
    /// # Errors
    ///
    /// [`Stale`] if one was. `work` is not run then.
    pub fn write<R>(&self, token: FencingToken, work: impl FnOnce(&mut T) -> R) -> Result<R, Stale> {
        let mut inside = self.inside.write().unwrap_or_else(PoisonError::into_inner);
        check(FencingToken::new(self.shown.load(Ordering::Relaxed)), token)?;
        self.shown.store(token.get(), Ordering::Relaxed);
        inside.written = Some(token);
        Ok(work(&mut inside.data))
    }
}

/// Makes the guard table with two marks, unless it is there. For PostgreSQL and SQLite.
pub const CREATE_GUARD_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS quorlock_fence_shared (
    resource TEXT NOT NULL PRIMARY KEY,
    shown BIGINT NOT NULL,
    written BIGINT NOT NULL
)";

/// Shows a writer's token at the beginning of its transaction, as [`sql::GUARD`](super::sql::GUARD):
/// parameter 1 is the name of the lock, 2 the token. Writes one row, or none if a larger token was shown:
/// give that to [`sql::written`](super::sql::written).
///
/// # Examples
///
/// ```
/// use quorlock::fence::{shared, sql};
/// # use quorlock::FencingToken;
/// # let database = rusqlite::Connection::open_in_memory()?;
/// database.execute_batch(shared::CREATE_GUARD_TABLE)?;
/// let show = |guard: &str, token: FencingToken| -> Result<(), Box<dyn std::error::Error>> {
///     let rows = database.execute(guard, rusqlite::params!["account/7", i64::from(token)])?;
///     Ok(sql::written(rows, token)?)
/// };
/// show(shared::WRITE_GUARD, "33".parse()?)?;
/// show(shared::READ_GUARD, "35".parse()?)?;
/// show(shared::READ_GUARD, "34".parse()?)?; // another reader at the same time
/// assert!(show(shared::WRITE_GUARD, "34".parse()?).is_err(), "35 has read");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub const WRITE_GUARD: &str = "\
INSERT INTO quorlock_fence_shared (resource, shown, written) VALUES ($1, $2, $2)
    ON CONFLICT (resource) DO UPDATE SET shown = excluded.shown, written = excluded.written
    WHERE quorlock_fence_shared.shown <= excluded.shown";

/// Shows a reader's token before it reads, as [`WRITE_GUARD`] does a writer's. Writes one row, or none if
/// a larger token has written.
///
/// It locks the resource's row until the end of the transaction. Where readers should not wait for each other, run it
/// in a transaction of its own before the one that reads: a later writer may then write in between, which the reader
/// sees, and a late writer cannot.
pub const READ_GUARD: &str = "\
INSERT INTO quorlock_fence_shared (resource, shown, written) VALUES ($1, $2, 0)
    ON CONFLICT (resource) DO UPDATE SET shown =
        CASE WHEN quorlock_fence_shared.shown < excluded.shown THEN excluded.shown ELSE quorlock_fence_shared.shown END
    WHERE quorlock_fence_shared.written <= excluded.shown";

/// Reads from or writes to a hash in Redis or Valkey, if the fencing token is not too old: as
/// [`redis::SCRIPT`](super::redis::SCRIPT), with two marks.
///
/// - `KEYS`: the hash.
/// - `ARGV`: `read` and the token; or `write`, the token, then name and value of each field.
/// - Returns the mark that it was compared with, or its own token if it was accepted: give that to
///   [`check`].
///
/// The fields `fencing_token` and `fencing_token:written` are the script's own.
pub const SCRIPT: &str = include_str!("shared.lua");
