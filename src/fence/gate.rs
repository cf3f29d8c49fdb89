//! The mark alone.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Stale, check};
use quorlock_protocol::FencingToken;

/// Remembers the largest fencing token that came by, and turns smaller ones away.
///
/// It orders who is let in, not what they do afterwards: of two that were admitted, the earlier
/// one may still finish last. So it is right where whatever follows is done in the order of
/// admission, as in a task that owns the data and takes one message after the other; and as a
/// cheap early *no* in front of a store that checks for itself. For data that several threads
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
/// let late = first.fencing_token(); // in a job that got stuck somewhere
/// first.release().await?;
///
/// let second = lock.acquire().await?;
/// printer.admit(second.fencing_token())?;
/// printer.admit(second.fencing_token())?; // the same holder, again
/// assert!(printer.admit(late).is_err(), "it comes after its time");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct Gate {
    newest: AtomicU64,
}

impl Gate {
    /// Has seen none.
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

    /// Has seen `newest`, in an earlier life.
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

    /// Lets `token` in, unless a larger one has been here.
    ///
    /// # Errors
    ///
    /// [`Stale`] if one has. Nothing changes then.
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
        // Also orders what the one admitted does next after what those before it had done.
        let newest = self.newest.fetch_max(token.get(), Ordering::AcqRel);
        check(FencingToken::new(newest), token)
    }

    /// The largest that was admitted, to be stored; [`FencingToken::ZERO`] if there was none.
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
