//! Semaphores for programs without async.

use std::ops::Deref;
use std::time::Duration;

use super::Lease;
use super::background::Background;
use super::lease::ended;
use crate::engine::options::{Fencing, Renewal};
use crate::engine::wait::{Handoff, Wait, Waiting};
use crate::error::{ConfigError, Lost, PermitError};
use crate::forward::setters;
use crate::lease::{Fenced, Single, Unfenced};
use quorlock_protocol::votes::VoteReport;

/// A semaphore of K permits, as [`crate::Semaphore`], whose calls wait on the thread that makes them.
///
/// ```
/// # let nodes = quorlock_testkit::memory_nodes(5);
/// # let coordinator = quorlock::Coordinator::builder().custom_nodes(nodes).build_blocking()?;
/// let exports = coordinator.semaphore("exports", 2);
/// let first = exports.acquire()?;
/// let second = exports.acquire()?;
/// assert_ne!(first.number(), second.number());
/// assert!(exports.try_acquire()?.is_none(), "both are taken");
/// first.release()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a semaphore does nothing until a permit is acquired"]
pub struct Semaphore<F = Fenced> {
    inner: crate::Semaphore<F>,
    background: Background,
}

/// A held permit of a semaphore, as [`crate::Permit`]. It is a [`Lease`] with a number: what is said there of dropping
/// it at the end of a program holds here, too.
#[derive(Debug)]
#[must_use = "dropping the permit releases it immediately: bind it to a name such as `_permit`, since `let _ =` drops it, too"]
pub struct Permit<F = Fenced> {
    number: usize,
    lease: Lease<Single, F>,
}

impl<F> Permit<F> {
    /// As [`crate::Permit::number`].
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// As [`Lease::release`].
    ///
    /// # Errors
    ///
    /// [`Lost`] when it was over before.
    pub fn release(self) -> Result<(), Lost> {
        self.lease.release()
    }

    /// Returns its lease.
    pub fn into_lease(self) -> Lease<Single, F> {
        self.lease
    }
}

impl<F> Deref for Permit<F> {
    type Target = Lease<Single, F>;

    fn deref(&self) -> &Lease<Single, F> {
        &self.lease
    }
}

impl<F> Semaphore<F> {
    pub(super) fn new(inner: crate::Semaphore<F>, background: &Background) -> Semaphore<F> {
        Semaphore { inner, background: background.clone() }
    }

    setters! { inner, "crate::Semaphore":
        ttl(ttl: Duration),
        wait(wait: impl Into<Wait>),
        renewal(renewal: Renewal),
        max_hold(longest: Duration),
        label(label: &str),
        handoff(handoff: Handoff),
        on_wait(listener: impl Fn(&Waiting) + Send + Sync + 'static) ". The listener is called on the background \
            thread, which serves all locks, or on one that asks for a permit: it must not block",
    }

    /// As [`crate::Semaphore::unfenced`].
    pub fn unfenced(self) -> Semaphore<Unfenced> {
        Semaphore { inner: self.inner.unfenced(), background: self.background }
    }

    /// As [`crate::Semaphore::fencing`].
    pub fn fencing(self, fencing: Fencing) -> Semaphore<Fencing> {
        Semaphore { inner: self.inner.fencing(fencing), background: self.background }
    }

    /// As [`crate::Semaphore::validate`].
    ///
    /// # Errors
    ///
    /// Names the setting that cannot work, and one that would.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.inner.validate()
    }

    /// As [`crate::Semaphore::validate_retention`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn validate_retention(&self, time: Duration) -> Result<(), ConfigError> {
        self.inner.validate_retention(time)
    }

    /// As [`crate::Semaphore::acquire`]: waits until a permit is free, and takes it.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire(&self) -> Result<Permit<F>, PermitError> {
        let permit = self.background.run(self.inner.acquire())?;
        Ok(self.permit(permit))
    }

    /// As [`crate::Semaphore::try_acquire`]: `None` if all are taken.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<Permit<F>>, PermitError> {
        let permit = self.background.run(self.inner.try_acquire())?;
        Ok(permit.map(|permit| self.permit(permit)))
    }

    /// Acquires a permit, runs `work` under it on this thread, and releases it, as
    /// [`Lock::with`](super::Lock::with): it cannot stop the work.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Panics
    ///
    /// If the work does; the permit is released.
    pub fn with<T, E>(&self, work: impl FnOnce(&Permit<F>) -> Result<T, E>) -> Result<T, E>
    where
        E: From<PermitError> + From<Lost>,
    {
        let permit = self.acquire()?;
        ended(work(&permit), permit.release())
    }

    /// As [`crate::Semaphore::inspect`]: who holds each permit, by number.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn inspect(&self) -> Result<Vec<VoteReport>, ConfigError> {
        self.background.run(self.inner.inspect())
    }

    fn permit(&self, permit: crate::Permit<F>) -> Permit<F> {
        Permit { number: permit.number(), lease: Lease::new(permit.into_lease(), &self.background) }
    }
}
