use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use super::{Stale, check};
use quorlock_protocol::FencingToken;

/// Data in memory for many readers or one writer at a time, each with its fencing token.
///
/// Readers that [share](crate::Lock::shared) a lock at the same time may have different tokens. With one mark that
/// reads raise, the reader with the smaller of two valid tokens would be refused; with one that they do not raise, a
/// late write would change what was just read. So there are two: the largest token that was *shown*, by a reader or a
/// writer, and the largest that has *written*:
///
/// | | accepted if | then |
/// |---|---|---|
/// | a write with token *t* | *t* is not smaller than the largest shown | both marks rise to *t* |
/// | a read with token *t* | *t* is not smaller than the largest written | the mark of tokens shown rises to *t* |
///
/// A reader's token is above those of all writers before it and below those of all after it (rule S-7 in
/// `docs/rules.md`). So a late write is refused once a later reader has read, a reader that slept through
/// its lease is refused once a later writer has written, and readers never refuse each other. A writer
/// that [downgrades](crate::Lease::downgrade) keeps its token, and may go on reading with it.
///
/// # Examples
///
/// ```
/// use quorlock::{FencingToken, fence::SharedGuarded};
///
/// let balance = SharedGuarded::new(100);
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
pub struct SharedGuarded<T> {
    /// The largest that was shown. Readers raise it concurrently.
    shown: AtomicU64,
    inside: RwLock<Inner<T>>,
}

#[derive(Debug, Default)]
struct Inner<T> {
    written: Option<FencingToken>,
    data: T,
}

impl<T> SharedGuarded<T> {
    /// Guards `data`, for which no token was seen.
    #[must_use]
    pub const fn new(data: T) -> SharedGuarded<T> {
        SharedGuarded { shown: AtomicU64::new(0), inside: RwLock::new(Inner { written: None, data }) }
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
