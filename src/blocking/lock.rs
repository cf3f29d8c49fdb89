//! A lock for programs without async: a name and options.

use std::time::Duration;

use super::Lease;
use super::background::Background;
use crate::engine::options::{Fencing, Renewal};
use crate::engine::owner::Owner;
use crate::engine::wait::{Handoff, Wait, Waiting};
use crate::error::{AcquireError, ConfigError, Lost};
use crate::node::QueueListing;
use crate::quorum::vote_report::VoteReport;
use quorlock_protocol::Token;

/// A name and options, as [`crate::Lock`], whose calls wait on the thread that makes them.
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    lock: crate::Lock,
    background: Background,
}

impl Lock {
    pub(super) fn new(lock: crate::Lock, background: &Background) -> Lock {
        Lock { lock, background: background.clone() }
    }

    /// As [`crate::Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Lock {
        Lock { lock: self.lock.ttl(ttl), ..self }
    }

    /// As [`crate::Lock::wait`].
    pub fn wait(self, wait: Wait) -> Lock {
        Lock { lock: self.lock.wait(wait), ..self }
    }

    /// As [`crate::Lock::renewal`].
    pub fn renewal(self, renewal: Renewal) -> Lock {
        Lock { lock: self.lock.renewal(renewal), ..self }
    }

    /// As [`crate::Lock::max_hold`].
    pub fn max_hold(self, longest: Duration) -> Lock {
        Lock { lock: self.lock.max_hold(longest), ..self }
    }

    /// As [`crate::Lock::label`].
    pub fn label(self, label: &str) -> Lock {
        Lock { lock: self.lock.label(label), ..self }
    }

    /// As [`crate::Lock::class`].
    pub fn class(self, class: &str) -> Lock {
        Lock { lock: self.lock.class(class), ..self }
    }

    /// As [`crate::Lock::hand_over`].
    pub fn hand_over(self, hand_over: Handoff) -> Lock {
        Lock { lock: self.lock.hand_over(hand_over), ..self }
    }

    /// As [`crate::Lock::shared`]: together with others. [`downgrade`](Lease::downgrade) makes a reader of a writer.
    pub fn shared(self) -> Lock {
        Lock { lock: self.lock.shared(), ..self }
    }

    /// As [`crate::Lock::fencing`].
    pub fn fencing(self, fencing: Fencing) -> Lock {
        Lock { lock: self.lock.fencing(fencing), ..self }
    }

    /// As [`crate::Lock::on_wait`]. The listener is called on the background thread, which serves
    /// all locks, or on one that asks for this one: it must not block.
    pub fn on_wait(self, listener: impl Fn(&Waiting) + Send + Sync + 'static) -> Lock {
        Lock { lock: self.lock.on_wait(listener), ..self }
    }

    /// As [`crate::Lock::owner`].
    pub fn owner(self, owner: &Owner) -> Lock {
        Lock { lock: self.lock.owner(owner), ..self }
    }

    /// As [`crate::Lock::reentrant`], for whoever holds it within the same [`Owner::scope_blocking`].
    pub fn reentrant(self) -> Lock {
        Lock { lock: self.lock.reentrant(), ..self }
    }

    /// As [`crate::Lock::validate`].
    ///
    /// # Errors
    ///
    /// Says what cannot work, and what would.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.lock.validate()
    }

    /// As [`crate::Lock::acquire`]: waits until a quorum grants the lock.
    ///
    /// # Errors
    ///
    /// As there, and [`AcquireError::InAsyncContext`].
    pub fn acquire(&self) -> Result<Lease, AcquireError> {
        let lease = self.background.run(self.lock.acquire())??;
        Ok(Lease::new(lease, &self.background))
    }

    /// As [`crate::Lock::try_acquire`]: `None` if others have it.
    ///
    /// # Errors
    ///
    /// As there, and [`AcquireError::InAsyncContext`].
    pub fn try_acquire(&self) -> Result<Option<Lease>, AcquireError> {
        let lease = self.background.run(self.lock.try_acquire())??;
        Ok(lease.map(|lease| Lease::new(lease, &self.background)))
    }

    /// Acquires the lock, runs `work` under it on this thread, and gives it back. `Ok` means that
    /// all of the work ran while the lease was valid.
    ///
    /// Other than [`crate::Lock::with`] it cannot stop the work when the lease is lost: a thread runs
    /// until it looks. So call [`check`](Lease::check) right before each side effect.
    ///
    /// # Errors
    ///
    /// What an [`AcquireError`] becomes when the work was not started, the work's own error when it failed
    /// by itself, and what [`Lost`] becomes when it outlived its lease, and nobody knows how much of it was
    /// protected. [Which errors](crate::Lock::with) it can have.
    ///
    /// # Panics
    ///
    /// If the work does; the lock is given back.
    pub fn with<T, E>(&self, work: impl FnOnce(&Lease) -> Result<T, E>) -> Result<T, E>
    where
        E: From<AcquireError> + From<Lost>,
    {
        self.acquire()?.run(work)
    }

    /// As [`crate::Lock::inspect`].
    ///
    /// # Errors
    ///
    /// As there, and [`AcquireError::InAsyncContext`].
    pub fn inspect(&self) -> Result<VoteReport, AcquireError> {
        self.background.run(self.lock.inspect())?
    }

    /// As [`crate::Lock::waiters`].
    ///
    /// # Errors
    ///
    /// As there, and [`AcquireError::InAsyncContext`].
    pub fn waiters(&self) -> Result<QueueListing, AcquireError> {
        self.background.run(self.lock.waiters())?
    }

    /// As [`crate::Lock::forget`].
    ///
    /// # Errors
    ///
    /// As there, and [`AcquireError::InAsyncContext`].
    pub fn forget(&self) -> Result<(), AcquireError> {
        self.background.run(self.lock.forget())?
    }

    /// As [`crate::Lock::revoke`]: takes the lock away from the holder of `token`.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Config`] as there, and [`AcquireError::InAsyncContext`].
    pub fn revoke(&self, token: &Token) -> Result<VoteReport, AcquireError> {
        Ok(self.background.run(self.lock.revoke(token))??)
    }
}
