//! A lock for programs without async: a name and options.

use std::time::Duration;

use super::Lease;
use super::background::Background;
use crate::engine::options::{Fencing, Renewal};
use crate::engine::owner::Owner;
use crate::engine::wait::{Handoff, Wait, Waiting};
use crate::error::{AcquireError, ConfigError, Lost};
use crate::forward::{calls, setters};
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
    /// As [`crate::Lock::shared`]: for readers. [`downgrade`](Lease::downgrade) makes a reader of a writer.
    pub fn shared(self) -> Self {
        Lock { lock: self.lock.shared(), ..self }
    }

    /// As [`crate::Lock::validate_retention`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn validate_retention(&self, time: Duration) -> Result<(), ConfigError> {
        self.lock.validate_retention(time)
    }

    setters! { lock, "crate::Lock": handoff(handoff: Handoff) }

    calls! { lock, "crate::Lock":
        log() -> Result<HoldLog, ConfigError>,
        until_free() -> Result<(), AcquireError>,
    }
}

impl<K, F> Lock<K, F> {
    pub(super) fn new(lock: crate::Lock<K, F>, background: &Background) -> Lock<K, F> {
        Lock { lock, background: background.clone() }
    }

    setters! { lock, "crate::Lock":
        ttl(ttl: Duration),
        wait(wait: impl Into<Wait>),
        renewal(renewal: Renewal),
        max_hold(longest: Duration),
        label(label: &str),
        metrics_class(class: &str),
        owner(owner: &Owner),
        on_wait(listener: impl Fn(&Waiting) + Send + Sync + 'static) ". The listener is called on the background \
            thread, which serves all locks, or on one that asks for this one: it must not block",
    }

    /// As [`crate::Lock::unfenced`].
    pub fn unfenced(self) -> Lock<K, Unfenced> {
        Lock { lock: self.lock.unfenced(), background: self.background }
    }

    /// As [`crate::Lock::fencing`].
    pub fn fencing(self, fencing: Fencing) -> Lock<K, Fencing> {
        Lock { lock: self.lock.fencing(fencing), background: self.background }
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

    calls! { lock, "crate::Lock":
        inspect() -> Result<VoteReport, ConfigError>,
        waiters() -> Result<QueueListing, ConfigError>,
        revoke(token: &Token) -> Result<VoteReport, ConfigError>,
    }
}
