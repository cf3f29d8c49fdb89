//! A held lock for programs without async.

use std::time::Duration;

use super::background::Background;
use crate::error::{InAsyncContext, Lost, RenewError, RetainError};
use crate::quorum::vote_report::VoteReport;
use quorlock_protocol::{FencingToken, Mode, Resource, Token};

/// A held lock, as [`crate::Lease`]: it renews itself in the background, and ends by itself when that
/// fails.
///
/// Dropping it gives the lock back in the background, and does not wait, on whatever thread and also
/// while one panics. A program that ends right after that may be gone before the nodes have heard
/// of it: [`release`](Lease::release) waits, and so does [`Coordinator::close`](super::Coordinator::close).
#[derive(Debug)]
#[must_use = "dropping the lease gives the lock back at once"]
pub struct Lease {
    held: crate::Lease,
    background: Background,
}

impl Lease {
    pub(super) fn new(held: crate::Lease, background: &Background) -> Lease {
        Lease { held, background: background.clone() }
    }

    /// Runs `work` and gives the lock back.
    pub(super) fn run<T, E: From<Lost>>(self, work: impl FnOnce(&Lease) -> Result<T, E>) -> Result<T, E> {
        let outcome = work(&self);
        let released = self.release();
        // The work's own error says more than a loss that came after it.
        let value = outcome?;
        released?;
        Ok(value)
    }

    /// As [`crate::Lease::resource`].
    #[must_use]
    pub fn resource(&self) -> &Resource {
        self.held.resource()
    }

    /// As [`crate::Lease::token`].
    #[must_use]
    pub fn token(&self) -> &Token {
        self.held.token()
    }

    /// As [`crate::Lease::fencing_token`].
    ///
    /// # Panics
    ///
    /// If fencing is [off](crate::Fencing::Off) for the lock.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.held.fencing_token()
    }

    /// As [`crate::Lease::try_fencing_token`].
    #[must_use]
    pub fn try_fencing_token(&self) -> Option<FencingToken> {
        self.held.try_fencing_token()
    }

    /// As [`crate::Lease::mode`].
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.held.mode()
    }

    /// As [`crate::Lease::check`]: reads the clock, asks nobody, works anywhere.
    ///
    /// # Errors
    ///
    /// [`Lost`] from the end of validity on, for ever.
    pub fn check(&self) -> Result<(), Lost> {
        self.held.check()
    }

    /// As [`crate::Lease::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// As [`crate::Lease::watch`]: for a thread that watches over those who work, and cannot release.
    #[must_use]
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch { watch: self.held.watch(), background: self.background.clone() }
    }

    /// As [`crate::Lease::lost`]: waits until the lease is over.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`].
    pub fn lost(&self) -> Result<Lost, InAsyncContext> {
        self.background.run(self.held.lost())
    }

    /// As [`lost`](Lease::lost), but for `longest` at most: `None` if it is not over by then.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`].
    pub fn lost_within(&self, longest: Duration) -> Result<Option<Lost>, InAsyncContext> {
        self.background.run_within(longest, self.held.lost())
    }

    /// Calls `listener` once when the lease is over, for whatever reason, a release among them. It
    /// is called on a thread of its own, and may block.
    pub fn on_lost(&self, listener: impl FnOnce(Lost) + Send + 'static) {
        let watch = self.held.watch();
        self.background.call_after(async move { watch.lost().await }, listener);
    }

    /// As [`crate::Lease::renew`].
    ///
    /// # Errors
    ///
    /// As there, and [`RenewError::InAsyncContext`].
    pub fn renew(&self) -> Result<(), RenewError> {
        self.background.run(self.held.renew())?
    }

    /// As [`crate::Lease::downgrade`]: others may share the lock from now on, and it cannot fail as long
    /// as the lease holds.
    ///
    /// # Errors
    ///
    /// As there; and [`DowngradeError::InAsyncContext`], with the lease as it was.
    pub fn downgrade(self) -> Result<Lease, DowngradeError> {
        let thread = match self.background.may_wait() {
            Ok(thread) => thread,
            Err(misuse) => return Err(DowngradeError::InAsyncContext { lease: self, misuse }),
        };
        let lease = |held| Lease::new(held, &self.background);
        thread.block_on(self.held.downgrade()).map(lease).map_err(|error| error.of(lease))
    }

    /// As [`crate::Lease::retain`]: ends the lease and leaves the lock taken for another `time`, held by no
    /// process.
    ///
    /// # Errors
    ///
    /// As there; and [`RetainError::InAsyncContext`], where the lease is given back.
    pub fn retain(self, time: Duration, note: &str) -> Result<(), RetainError> {
        self.background.may_wait()?.block_on(self.held.retain(time, note))
    }

    /// As [`crate::Lease::release`]: gives the lock back, waits until a quorum has confirmed, and
    /// says whether the lease held until now. In an async context it does not wait, as if dropped.
    ///
    /// # Errors
    ///
    /// [`Lost`] when the lease was over before.
    pub fn release(self) -> Result<(), Lost> {
        match self.background.may_wait() {
            Ok(thread) => thread.block_on(self.held.release()),
            Err(InAsyncContext) => self.check(),
        }
    }
}

/// Watches over a lease, as [`crate::LeaseWatch`]: can be cloned and given to other threads, and
/// cannot release it. [`Lease::watch`] makes one.
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    watch: crate::LeaseWatch,
    background: Background,
}

impl LeaseWatch {
    /// As [`Lease::resource`].
    #[must_use]
    pub fn resource(&self) -> &Resource {
        self.watch.resource()
    }

    /// As [`LeaseWatch::unconfirmed_release`](crate::LeaseWatch::unconfirmed_release).
    #[must_use]
    pub fn unconfirmed_release(&self) -> Option<VoteReport> {
        self.watch.unconfirmed_release()
    }

    /// As [`Lease::token`].
    #[must_use]
    pub fn token(&self) -> &Token {
        self.watch.token()
    }

    /// As [`Lease::fencing_token`].
    ///
    /// # Panics
    ///
    /// If fencing is [off](crate::Fencing::Off) for the lock.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.watch.fencing_token()
    }

    /// As [`Lease::try_fencing_token`].
    #[must_use]
    pub fn try_fencing_token(&self) -> Option<FencingToken> {
        self.watch.try_fencing_token()
    }

    /// As [`Lease::mode`].
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.watch.mode()
    }

    /// As [`Lease::check`].
    ///
    /// # Errors
    ///
    /// [`Lost`] from the end of validity on, for ever.
    pub fn check(&self) -> Result<(), Lost> {
        self.watch.check()
    }

    /// As [`Lease::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.watch.remaining()
    }

    /// As [`Lease::lost`].
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`].
    pub fn lost(&self) -> Result<Lost, InAsyncContext> {
        self.background.run(self.watch.lost())
    }

    /// As [`Lease::lost_within`].
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`].
    pub fn lost_within(&self, longest: Duration) -> Result<Option<Lost>, InAsyncContext> {
        self.background.run_within(longest, self.watch.lost())
    }
}

/// Why a writer did not become a reader.
pub type DowngradeError = crate::DowngradeError<Lease>;
