//! A mutex that a panic does not poison.

use std::fmt;
use std::sync::{MutexGuard, PoisonError, TryLockError};

/// [`std::sync::Mutex`], except that a panic of a thread that has locked it does not poison it.
///
/// Poisoning would turn one failed call into the failure of every later one, in other tasks and for other
/// locks, and a lease that is valid could no longer be released. So what such a mutex guards has to be
/// consistent after each statement that changes it.
///
/// As with that of the standard library, do not hold the guard over an await: it blocks the thread. Clippy's
/// `await_holding_lock` detects it, because the guard is the standard library's own.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Makes an unlocked mutex.
    #[must_use]
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex; waits, and blocks the thread, while it is locked.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the mutex if it is not locked.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(value) => f.debug_tuple("Mutex").field(&&*value).finish(),
            None => f.write_str("Mutex(<locked>)"),
        }
    }
}
