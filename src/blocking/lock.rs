//! A lock for programs without async: a name and options.

use std::time::Duration;

use super::Lease;
use super::background::Background;
use crate::engine::options::{Fencing, Renewal};
use crate::engine::owner::Owner;
use crate::engine::wait::{Handoff, Wait, Waiting};
use crate::error::{AcquireError, ConfigError, Lost};
use crate::lease::{Fenced, Multi, Single, Unfenced};
use crate::lock::HoldLog;
use crate::node::QueueListing;
use quorlock_protocol::Token;
use quorlock_protocol::votes::VoteReport;

/// A name and options, as [`crate::Lock`], whose calls wait on the thread that makes them.
#[derive(Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock<K = Single, F = Fenced> {
    lock: crate::Lock<K, F>,
    background: Background,
}

/// A lock of several resources, as [`crate::MultiLock`].
pub type MultiLock<F = Fenced> = Lock<Multi, F>;

impl<K, F> Clone for Lock<K, F> {
    fn clone(&self) -> Lock<K, F> {
        Lock { lock: self.lock.clone(), background: self.background.clone() }
    }
}

impl<F> Lock<Single, F> {
    /// As [`crate::Lock::log`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn log(&self) -> Result<HoldLog, ConfigError> {
        self.background.run(self.lock.log())
    }

    /// As [`crate::Lock::shared`]: for readers. [`downgrade`](Lease::downgrade) makes a reader of a writer.
    pub fn shared(self) -> Self {
        Lock { lock: self.lock.shared(), ..self }
    }

    /// As [`crate::Lock::until_free`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn until_free(&self) -> Result<(), AcquireError> {
        self.background.run(self.lock.until_free())
    }

    /// As [`crate::Lock::validate_retention`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn validate_retention(&self, time: Duration) -> Result<(), ConfigError> {
        self.lock.validate_retention(time)
    }

    /// As [`crate::Lock::handoff`].
    pub fn handoff(self, handoff: Handoff) -> Self {
        Lock { lock: self.lock.handoff(handoff), ..self }
    }
}

impl<K, F> Lock<K, F> {
    pub(super) fn new(lock: crate::Lock<K, F>, background: &Background) -> Lock<K, F> {
        Lock { lock, background: background.clone() }
    }

    /// As [`crate::Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Lock { lock: self.lock.ttl(ttl), ..self }
    }

    /// As [`crate::Lock::wait`].
    pub fn wait(self, wait: impl Into<Wait>) -> Self {
        Lock { lock: self.lock.wait(wait), ..self }
    }

    /// As [`crate::Lock::renewal`].
    pub fn renewal(self, renewal: Renewal) -> Self {
        Lock { lock: self.lock.renewal(renewal), ..self }
    }

    /// As [`crate::Lock::max_hold`].
    pub fn max_hold(self, longest: Duration) -> Self {
        Lock { lock: self.lock.max_hold(longest), ..self }
    }

    /// As [`crate::Lock::label`].
    pub fn label(self, label: &str) -> Self {
        Lock { lock: self.lock.label(label), ..self }
    }

    /// As [`crate::Lock::metrics_class`].
    pub fn metrics_class(self, class: &str) -> Self {
        Lock { lock: self.lock.metrics_class(class), ..self }
    }

    /// As [`crate::Lock::unfenced`].
    pub fn unfenced(self) -> Lock<K, Unfenced> {
        Lock { lock: self.lock.unfenced(), background: self.background }
    }

    /// As [`crate::Lock::fencing`].
    pub fn fencing(self, fencing: Fencing) -> Lock<K, Fencing> {
        Lock { lock: self.lock.fencing(fencing), background: self.background }
    }

    /// As [`crate::Lock::on_wait`]. The listener is called on the background thread, which serves
    /// all locks, or on one that asks for this one: it must not block.
    pub fn on_wait(self, listener: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        Lock { lock: self.lock.on_wait(listener), ..self }
    }

    /// As [`crate::Lock::owner`].
    pub fn owner(self, owner: &Owner) -> Self {
        Lock { lock: self.lock.owner(owner), ..self }
    }

    /// As [`crate::Lock::reentrant`], within the same [`Owner::scope_blocking`].
    pub fn reentrant(self) -> Self {
        Lock { lock: self.lock.reentrant(), ..self }
    }

    /// As [`crate::Lock::validate`].
    ///
    /// # Errors
    ///
    /// Names the setting that cannot work, and one that would.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.lock.validate()
    }

    /// As [`crate::Lock::acquire`]: waits until a quorum grants the lock.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire(&self) -> Result<Lease<K, F>, AcquireError> {
        let lease = self.background.run(self.lock.acquire())?;
        Ok(Lease::new(lease, &self.background))
    }

    /// As [`crate::Lock::try_acquire`]: `None` if another client holds it.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<Lease<K, F>>, AcquireError> {
        let lease = self.background.run(self.lock.try_acquire())?;
        Ok(lease.map(|lease| Lease::new(lease, &self.background)))
    }

    /// Acquires the lock, runs `work` under it on this thread, and releases it. `Ok` means that
    /// all of the work ran while the lease was valid.
    ///
    /// Unlike [`crate::Lock::with`], it cannot stop the work when the lease is lost: call
    /// [`check`](Lease::check) right before each side effect.
    ///
    /// # Errors
    ///
    /// The [`AcquireError`] when the work was not started, the work's own error when it failed by itself, and
    /// [`Lost`] when it outlived its lease and some of it may have run without protection, each converted to
    /// [`E`](crate::Lock::with).
    ///
    /// # Panics
    ///
    /// If the work does; the lock is released.
    pub fn with<T, E>(&self, work: impl FnOnce(&Lease<K, F>) -> Result<T, E>) -> Result<T, E>
    where
        E: From<AcquireError> + From<Lost>,
    {
        self.acquire()?.run(work)
    }

    /// As [`crate::Lock::inspect`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn inspect(&self) -> Result<VoteReport, ConfigError> {
        self.background.run(self.lock.inspect())
    }

    /// As [`crate::Lock::waiters`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn waiters(&self) -> Result<QueueListing, ConfigError> {
        self.background.run(self.lock.waiters())
    }

    /// As [`crate::Lock::revoke`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn revoke(&self, token: &Token) -> Result<VoteReport, ConfigError> {
        self.background.run(self.lock.revoke(token))
    }
}
