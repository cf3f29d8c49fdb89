//! The largest token, without the data.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Stale, check};
use quorlock_protocol::FencingToken;

/// Remembers the largest fencing token that was admitted, and refuses smaller ones.
///
/// It orders admissions, not the work after them: of two admitted callers, the earlier may still finish last. Use it
/// where the work is done in the order of admission, as in a task that owns the data and handles one message after
/// the other, and as a cheap early check in front of a store that checks for itself. For data that several threads
/// write, use [`Guarded`](super::Guarded).
///
/// It forgets when the process ends. Start it [from](Gate::starting_from) what is stored.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use quorlock::fence::Gate;
///
/// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(3)).build()?;
/// let printer = Gate::new();
/// let lock = coordinator.lock("printer");
///
/// let first = lock.acquire().await?;
/// let late = first.fencing_token(); // in a job that is stuck somewhere
/// first.release().await?;
///
/// let second = lock.acquire().await?;
/// let token = second.fencing_token();
/// printer.admit(token)?;
/// printer.admit(token)?; // the same holder, again
/// assert!(printer.admit(late).is_err(), "it comes too late");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct Gate {
    newest: AtomicU64,
}

impl Gate {
    /// Returns a gate that has admitted no token.
    ///
    /// # Examples
    ///
    /// ```
    /// use quorlock::fence::Gate;
    ///
    /// static ENTRANCE: Gate = Gate::new();
    /// ENTRANCE.admit("33".parse()?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn new() -> Gate {
        Gate { newest: AtomicU64::new(0) }
    }

    /// Returns a gate that has admitted `newest`, before a restart.
    ///
    /// # Examples
    ///
    /// ```
    /// use quorlock::{FencingToken, fence::Gate};
    ///
    /// let stored: FencingToken = "34".parse()?;
    /// assert!(Gate::starting_from(stored).admit("33".parse()?).is_err());
    /// # Ok::<(), quorlock::protocol::FencingTokenError>(())
    /// ```
    #[must_use]
    pub fn starting_from(newest: FencingToken) -> Gate {
        Gate { newest: AtomicU64::new(newest.get()) }
    }

    /// Admits `token`, unless a larger one was admitted before.
    ///
    /// # Errors
    ///
    /// [`Stale`] if one was. Nothing changes then.
    ///
    /// # Examples
    ///
    /// ```
    /// use quorlock::{FencingToken, fence::Gate};
    ///
    /// let (gate, late): (Gate, FencingToken) = (Gate::new(), "33".parse()?);
    /// gate.admit("34".parse()?)?;
    /// assert_eq!(gate.admit(late).unwrap_err().token, late);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn admit(&self, token: FencingToken) -> Result<(), Stale> {
        // Also orders the work of this caller after that of the callers admitted before.
        let newest = self.newest.fetch_max(token.get(), Ordering::AcqRel);
        check(FencingToken::new(newest), token)
    }

    /// Returns the largest token that was admitted, to be stored; [`FencingToken::ZERO`] if there was none.
    ///
    /// # Examples
    ///
    /// ```
    /// use quorlock::{FencingToken, fence::Gate};
    ///
    /// let gate = Gate::new();
    /// assert_eq!(gate.newest(), FencingToken::ZERO);
    /// gate.admit("34".parse()?)?;
    /// assert_eq!(gate.newest().get(), 34);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn newest(&self) -> FencingToken {
        FencingToken::new(self.newest.load(Ordering::Acquire)).unwrap_or(FencingToken::MAX)
    }
}
