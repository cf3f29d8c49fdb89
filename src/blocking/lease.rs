//! A held lock for programs without async.

use std::time::Duration;

use super::background::Background;
use crate::engine::options::Fencing;
use crate::error::{Lost, RenewError, RetainError};
use crate::forward::{calls, getters};
use crate::lease::{Fenced, Multi, Single};
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{FencingToken, Mode, Resource, Token};

/// A held lock, as [`crate::Lease`]: it renews itself in the background, and is lost when that fails.
///
/// Dropping it releases the lock in the background without waiting, on any thread, and also during a panic. A
/// program that ends right after that may be gone before the nodes have received it:
/// [`release`](Lease::release) waits, and so does [`Coordinator::close`](super::Coordinator::close).
#[derive(Debug)]
#[must_use = "dropping the lease releases the lock immediately: bind it to a name such as `_lease`, since `let _ =` drops it, too"]
pub struct Lease<K = Single, F = Fenced> {
    held: crate::Lease<K, F>,
    background: Background,
}

/// A held lock of several resources, as [`crate::MultiLease`].
pub type MultiLease<F = Fenced> = Lease<Multi, F>;

impl<K> Lease<K> {
    /// As [`crate::Lease::fencing_token`].
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.held.fencing_token()
    }
}

impl<K> Lease<K, Fencing> {
    /// As [`crate::Lease::fencing_token`]; `None` if fencing is [off](Fencing::Off).
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.held.fencing_token()
    }
}

impl<K, F> Lease<K, F> {
    pub(super) fn new(held: crate::Lease<K, F>, background: &Background) -> Lease<K, F> {
        Lease { held, background: background.clone() }
    }

    /// Runs `work` and releases the lock.
    pub(super) fn run<T, E: From<Lost>>(
        self,
        work: impl FnOnce(&Lease<K, F>) -> Result<T, E>,
    ) -> Result<T, E> {
        ended(work(&self), self.release())
    }

    getters! { held, "crate::Lease":
        resource() -> &Resource,
        token() -> &Token,
        store_revision() -> Option<u64>,
        mode() -> Mode,
        remaining() -> Duration,
    }

    calls! { held, "crate::Lease":
        renew() -> Result<(), RenewError>,
        extend(ttl: Duration) -> Result<(), RenewError>,
    }

    /// As [`crate::Lease::check`]: reads the clock, sends nothing, works anywhere.
    ///
    /// # Errors
    ///
    /// [`Lost`] once validity has ended, and forever after.
    pub fn check(&self) -> Result<(), Lost> {
        self.held.check()
    }

    /// As [`crate::Lease::watch`]: a read-only view, for other threads.
    #[must_use]
    pub fn watch(&self) -> LeaseWatch<F> {
        LeaseWatch { watch: self.held.watch(), background: self.background.clone() }
    }

    /// As [`crate::Lease::lost`]: waits until the lease is over.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.background.run(self.held.lost())
    }

    /// As [`lost`](Lease::lost), for at most `longest`: `None` if it is not over by then.
    #[must_use]
    pub fn lost_within(&self, longest: Duration) -> Option<Lost> {
        self.background.run_within(longest, self.held.lost())
    }

    /// Calls `listener` once when the lease is over, for any reason, including a release. It runs on a thread of
    /// its own, and may block.
    pub fn on_lost(&self, listener: impl FnOnce(Lost) + Send + 'static)
    where
        F: 'static,
    {
        let watch = self.held.watch();
        self.background.call_after(async move { watch.lost().await }, listener);
    }

    /// As [`crate::Lease::release`]: releases the lock, waits until a quorum has confirmed, and says whether the
    /// lease was valid until now.
    ///
    /// # Errors
    ///
    /// [`Lost`] when the lease was over before.
    pub fn release(self) -> Result<(), Lost> {
        self.background.run(self.held.release())
    }
}

/// The outcome of work under a lease that was released then.
pub(super) fn ended<T, E: From<Lost>>(work: Result<T, E>, released: Result<(), Lost>) -> Result<T, E> {
    // The work's own error says more than a loss that came after it.
    let value = work?;
    released?;
    Ok(value)
}

impl<F> Lease<Single, F> {
    /// As [`crate::Lease::downgrade`]: other readers may share the lock from now on.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn downgrade(self) -> Result<Lease<Single, F>, DowngradeError<F>> {
        let lease = |held| Lease::new(held, &self.background);
        let downgraded = self.background.run(self.held.downgrade());
        downgraded.map(lease).map_err(|error| error.map_lease(lease))
    }

    /// As [`crate::Lease::retain`]: ends the lease and keeps the lock taken for `time`, held by no process.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn retain(self, time: Duration, note: &str) -> Result<(), RetainError> {
        self.background.run(self.held.retain(time, note))
    }
}

/// A read-only view of a lease, as [`crate::LeaseWatch`]. [`Lease::watch`] returns it.
#[derive(Clone, Debug)]
pub struct LeaseWatch<F = Fenced> {
    watch: crate::LeaseWatch<F>,
    background: Background,
}

impl LeaseWatch {
    /// As [`crate::Lease::fencing_token`].
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.watch.fencing_token()
    }
}

impl LeaseWatch<Fencing> {
    /// As [`crate::Lease::fencing_token`]; `None` if fencing is [off](Fencing::Off).
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.watch.fencing_token()
    }
}

impl<F> LeaseWatch<F> {
    getters! { watch, "crate::LeaseWatch":
        resource() -> &Resource,
        token() -> &Token,
        store_revision() -> Option<u64>,
        mode() -> Mode,
        remaining() -> Duration,
        is_at_max_hold() -> bool,
        unconfirmed_release() -> Option<VoteReport>,
    }

    /// As [`Lease::check`].
    ///
    /// # Errors
    ///
    /// [`Lost`] once validity has ended, and forever after.
    pub fn check(&self) -> Result<(), Lost> {
        self.watch.check()
    }

    /// As [`Lease::lost`].
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.background.run(self.watch.lost())
    }

    /// As [`Lease::lost_within`].
    #[must_use]
    pub fn lost_within(&self, longest: Duration) -> Option<Lost> {
        self.background.run_within(longest, self.watch.lost())
    }
}

/// Why a lease was not downgraded.
pub type DowngradeError<F = Fenced> = crate::DowngradeError<Lease<Single, F>>;
