//! The same locks for programs without async: every call waits on the thread that makes it.
//!
//! ```
//! use std::time::Duration;
//! use quorlock::{Coordinator, Lost};
//!
//! # let nodes = quorlock_testkit::memory_nodes(3);
//! let coordinator = Coordinator::builder()
//! #   .custom_nodes(nodes).build_blocking()?; let _ = Coordinator::builder()
//!     .nodes(["redis://10.0.0.1", "redis://10.1.0.1", "redis://10.2.0.1"])
//!     .build_blocking()?; // parses all, contacts no one
//!
//! let lock = coordinator.lock("orders/42").ttl(Duration::from_secs(10));
//! let total = lock.with(|lease| {
//!     let sum = 40 + 2;
//!     lease.check()?; // right before the side effect
//!     Ok::<_, Lost>(sum)
//! })?; // Ok: all of it ran while the lease was valid
//! # assert_eq!(total, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Names, options, defaults and promises are those of the async API; what differs is said where it
//! does. There are all kinds of lock: alone or [shared](Lock::shared), with
//! [downgrade](Lease::downgrade), [semaphores](Semaphore) and [elections](Election). Needs the Cargo
//! feature `blocking`.
//!
//! # Where the work is done
//!
//! All coordinators of a program that are made here share one background thread, which is started
//! with the first and named `quorlock`. It carries connections, renewals and releases, so a lease is
//! renewed whatever the thread does that holds it. It never keeps a process from ending: what is
//! still held then ends with its TTL. [`Coordinator::close`] gives it back before.
//!
//! The thread does not survive `fork`: a child process that goes on without `exec` can use nothing
//! that its parent made here.
//!
//! # Async programs
//!
//! A call that waited inside an async context would stall the executor, and for ever if that is also
//! what the wait is for. So within Tokio such calls fail with [`InAsyncContext`], at once and before
//! anything is asked; in `spawn_blocking` and `block_in_place` they work. Of other executors this
//! module knows nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::ballot::Ballot;
use crate::coordinator::{Builder, Shared};
use crate::error::{
    AcquireError, ConfigError, DowngradeError as Refused, InAsyncContext, LossReason, Lost, RenewError,
    WithError,
};
use crate::lock::{Fencing, Renewal};
use crate::owner::Owner;
use crate::protocol::{FencingToken, Mode, Resource, Token};
use crate::wait::{HandOver, Wait, Waiting};

use background::Background;

pub use election::{Election, Leadership, Observer};
pub use semaphore::{Permit, Semaphore};

mod background;
mod election;
mod semaphore;

impl Builder {
    /// As [`build`](Builder::build), for programs without async: see [`blocking`](crate::blocking).
    ///
    /// # Errors
    ///
    /// As `build`, and [`ConfigError::NoBackground`] when the system grants no thread.
    pub fn build_blocking(self) -> Result<Coordinator, ConfigError> {
        Ok(Coordinator { coordinator: self.build()?, background: Background::shared()? })
    }
}

/// Coordinates locks over N independent nodes, as [`crate::Coordinator`] does. Made by
/// [`Builder::build_blocking`]. Cheap to clone, and to be used from as many threads as you like.
#[derive(Clone, Debug)]
pub struct Coordinator {
    coordinator: crate::Coordinator,
    background: Background,
}

impl Coordinator {
    /// As [`crate::Coordinator::lock`].
    pub fn lock(&self, resource: impl AsRef<str>) -> Lock {
        Lock { lock: self.coordinator.lock(resource), background: self.background.clone() }
    }

    /// As [`crate::Coordinator::lock_all`].
    pub fn lock_all(&self, resources: impl IntoIterator<Item = impl AsRef<str>>) -> Lock {
        Lock { lock: self.coordinator.lock_all(resources), background: self.background.clone() }
    }

    /// As [`crate::Coordinator::semaphore`].
    pub fn semaphore(&self, resource: impl AsRef<str>, permits: usize) -> Semaphore {
        Semaphore::new(&self.coordinator, resource.as_ref(), permits, &self.background)
    }

    /// As [`crate::Coordinator::election`].
    pub fn election(&self, resource: impl AsRef<str>) -> Election {
        Election::new(&self.coordinator, resource.as_ref(), &self.background)
    }

    /// As [`crate::Coordinator::close`]. Call it before the program ends, so that others need not
    /// wait for the TTL of what was just dropped.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`]: then nothing is closed.
    pub fn close(&self, patience: Duration) -> Result<(), InAsyncContext> {
        let coordinator = self.coordinator.clone();
        self.background.run(async move { coordinator.close(patience).await }).map(|_| ())
    }
}

/// A name and options, as [`crate::Lock`], whose calls wait on the thread that makes them.
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    lock: crate::Lock,
    background: Background,
}

impl Lock {
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

    /// As [`crate::Lock::hand_over`].
    pub fn hand_over(self, hand_over: HandOver) -> Lock {
        Lock { lock: self.lock.hand_over(hand_over), ..self }
    }

    /// As [`crate::Lock::fair`].
    pub fn fair(self) -> Lock {
        Lock { lock: self.lock.fair(), ..self }
    }

    /// As [`crate::Lock::shared`]: together with others. [`Lease::downgrade`] makes a reader of a writer.
    pub fn shared(self) -> Lock {
        Lock { lock: self.lock.shared(), ..self }
    }

    /// As [`crate::Lock::fencing`].
    pub fn fencing(self, fencing: Fencing) -> Lock {
        Lock { lock: self.lock.fencing(fencing), ..self }
    }

    /// As [`crate::Lock::on_wait`]. The listener is called on the background thread, which serves
    /// all locks: it must not block.
    pub fn on_wait(self, listener: impl Fn(&Waiting) + Send + Sync + 'static) -> Lock {
        Lock { lock: self.lock.on_wait(listener), ..self }
    }

    /// As [`crate::Lock::owner`].
    pub fn owner(self, owner: &Owner) -> Lock {
        Lock { lock: self.lock.owner(owner), ..self }
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
        let lock = self.lock.clone();
        let lease = self.background.ask(async move { lock.acquire().await })?;
        Ok(self.lease(lease))
    }

    /// As [`crate::Lock::try_acquire`]: `None` if others have it.
    ///
    /// # Errors
    ///
    /// As there, and [`AcquireError::InAsyncContext`].
    pub fn try_acquire(&self) -> Result<Option<Lease>, AcquireError> {
        let lock = self.lock.clone();
        let lease = self.background.ask(async move { lock.try_acquire().await })?;
        Ok(lease.map(|lease| self.lease(lease)))
    }

    /// Acquires the lock, runs `work` under it on this thread, and gives it back. `Ok` means that
    /// all of the work ran while the lease was valid.
    ///
    /// Other than [`crate::Lock::with`] it cannot stop the work when the lease is lost: a thread runs
    /// until it looks. So call [`check`](Lease::check) right before each side effect.
    ///
    /// # Errors
    ///
    /// [`WithError::Acquire`] when the work was not started, [`WithError::Work`] when it failed by
    /// itself, [`WithError::Lost`] when it outlived its lease, and nobody knows how much of it was
    /// protected.
    ///
    /// # Panics
    ///
    /// If the work does; the lock is given back.
    pub fn with<T, E>(&self, work: impl FnOnce(&Lease) -> Result<T, E>) -> Result<T, WithError<E>> {
        self.acquire().map_err(WithError::Acquire)?.run(work)
    }

    /// As [`crate::Lock::inspect`].
    ///
    /// # Errors
    ///
    /// As there, and [`AcquireError::InAsyncContext`].
    pub fn inspect(&self) -> Result<Ballot, AcquireError> {
        let lock = self.lock.clone();
        self.background.ask(async move { lock.inspect().await })
    }

    fn lease(&self, lease: crate::Lease) -> Lease {
        let (shared, _) = self.lock.parts();
        Lease::new(lease, shared, &self.background)
    }
}

/// A held lock, as [`crate::Lease`]: it renews itself in the background, and ends by itself when that
/// fails.
///
/// Dropping it gives the lock back in the background, and does not wait, on whatever thread and also
/// while one panics. A program that ends right after that may be gone before the nodes have heard
/// of it: [`release`](Lease::release) waits, and so does [`Coordinator::close`].
#[derive(Debug)]
#[must_use = "dropping the lease gives the lock back at once"]
pub struct Lease {
    held: Arc<crate::Lease>,
    shared: Arc<Shared>,
    background: Background,
}

impl Lease {
    fn new(lease: crate::Lease, shared: &Arc<Shared>, background: &Background) -> Lease {
        Lease { held: Arc::new(lease), shared: shared.clone(), background: background.clone() }
    }

    /// Runs `work` and gives the lock back.
    fn run<T, E>(self, work: impl FnOnce(&Lease) -> Result<T, E>) -> Result<T, WithError<E>> {
        let outcome = work(&self);
        let released = self.release();
        // The work's own error says more than a loss that came after it.
        let value = outcome.map_err(WithError::Work)?;
        released.map_err(WithError::Lost)?;
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
    /// If fencing is [off](Fencing::Off) for the lock.
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

    /// Waits until the lease is over, or for `longest`: `None` if it is not over by then. For a
    /// thread that watches over those who work.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`].
    pub fn lost_within(&self, longest: Duration) -> Result<Option<Lost>, InAsyncContext> {
        let (watch, shared) = (self.held.watch(), self.shared.clone());
        let waiting = async move {
            tokio::select! {
                biased;
                lost = watch.lost() => Some(lost),
                () = shared.sleep_until(shared.now() + longest) => None,
            }
        };
        Ok(self.background.run(waiting)?.flatten())
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
        let lease = self.held.clone();
        let renewing = async move {
            let renewed = lease.renew().await;
            // Before the caller goes on, who may release it.
            drop(lease);
            renewed
        };
        let closed = || Err(Lost::new(self.resource().clone(), LossReason::Closed).into());
        self.background.run(renewing)?.unwrap_or_else(closed)
    }

    /// As [`crate::Lease::downgrade`]: others may share the lock from now on, and it cannot fail as long
    /// as the lease holds.
    ///
    /// # Errors
    ///
    /// As there; and [`DowngradeError::InAsyncContext`], with the lease as it was.
    pub fn downgrade(self) -> Result<Lease, DowngradeError> {
        let Lease { held, shared, background } = self;
        let lease = |held| Lease { held, shared, background: background.clone() };
        if let Err(misuse) = background.may_wait() {
            return Err(DowngradeError::InAsyncContext { lease: lease(held), misuse });
        }
        let (resource, closed) = (held.resource().clone(), LossReason::Closed);
        let outcome = match Arc::into_inner(held) {
            Some(held) => background.run(held.downgrade()).ok().flatten(),
            None => None,
        };
        match outcome {
            Some(Ok(held)) => Ok(lease(Arc::new(held))),
            Some(Err(Refused::HeldAgain { lease: held })) => {
                Err(DowngradeError::HeldAgain { lease: lease(Arc::new(held)) })
            }
            Some(Err(Refused::Several { lease: held })) => {
                Err(DowngradeError::Several { lease: lease(Arc::new(held)) })
            }
            Some(Err(Refused::Lost(lost))) => Err(DowngradeError::Lost(lost)),
            None => Err(DowngradeError::Lost(Lost::new(resource, closed))),
        }
    }

    /// As [`crate::Lease::release`]: gives the lock back, waits until a quorum has confirmed, and
    /// says whether the lease held until now. In an async context it does not wait, as if dropped.
    ///
    /// # Errors
    ///
    /// [`Lost`] when the lease was over before.
    pub fn release(self) -> Result<(), Lost> {
        let held = self.check();
        match (self.background.may_wait(), Arc::into_inner(self.held)) {
            (Ok(()), Some(lease)) => self.background.run(lease.release()).ok().flatten().unwrap_or(held),
            (Err(InAsyncContext), _) | (_, None) => held,
        }
    }
}

/// Why a writer did not become a reader, as [`crate::DowngradeError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DowngradeError {
    /// The lease is over.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// Its owner has acquired the lock more than once, and another of its leases may rely on being
    /// alone. Nothing has changed.
    #[error("`{}` is held more than once by its owner; downgrade the last lease that is left", .lease.resource())]
    HeldAgain {
        /// The lease, as it was.
        lease: Lease,
    },
    /// The lease is of several resources, which are not shared. Nothing has changed.
    #[error("`{}` are several resources at once, which cannot be shared; lock each alone to downgrade it", .lease.resource())]
    Several {
        /// The lease, as it was.
        lease: Lease,
    },
    /// It was called where it must not wait. Nothing has changed.
    #[error("{misuse}")]
    InAsyncContext {
        /// The lease, as it was.
        lease: Lease,
        /// What to do instead.
        misuse: InAsyncContext,
    },
}
