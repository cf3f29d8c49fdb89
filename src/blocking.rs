//! The same locks for programs without async: every call waits on the thread that makes it.
//!
//! ```
//! use std::time::Duration;
//! use quorlock::{Coordinator, WithError};
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
//!     Ok::<_, WithError>(sum)
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
//! What stops work from outside is not there, because nothing can stop a thread: `run_until_lost` has
//! no counterpart, and [`Lock::with`], [`Semaphore::with`] and [`Election::lead`] say what they do
//! instead. What waits for an event waits for a time where it is called `…_within`, and as long as it
//! takes where it is not. Nor are there streams.
//!
//! # Where the work is done
//!
//! All coordinators of a program that are made here share one background thread, which is started
//! with the first and named `quorlock`. It carries connections, renewals and clean-up, so a lease is
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

use std::time::Duration;

use crate::coordinator::Builder;
use crate::doctor::{Examination, Finding};
use crate::error::{ConfigError, InAsyncContext};

use background::Background;

pub use election::{Election, Leadership, Observer};
pub use health::Health;
pub use lease::{DowngradeError, Lease, LeaseWatch};
pub use lock::Lock;
pub use semaphore::{Permit, Semaphore};

mod background;
mod election;
mod health;
mod lease;
mod lock;
mod semaphore;

impl Builder {
    /// As [`build`](Builder::build), for programs without async: see [`blocking`](crate::blocking).
    ///
    /// # Errors
    ///
    /// As `build`, and [`ConfigError::NoBackground`] when the system grants no thread.
    pub fn build_blocking(self) -> Result<Coordinator, ConfigError> {
        let coordinator = self.build()?;
        let background = Background::beside(&coordinator)?;
        Ok(Coordinator { coordinator, background })
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
        Lock::new(self.coordinator.lock(resource), &self.background)
    }

    /// As [`crate::Coordinator::lock_all`].
    pub fn lock_all(&self, resources: impl IntoIterator<Item = impl AsRef<str>>) -> Lock {
        Lock::new(self.coordinator.lock_all(resources), &self.background)
    }

    /// As [`crate::Coordinator::semaphore`].
    pub fn semaphore(&self, resource: impl AsRef<str>, permits: usize) -> Semaphore {
        Semaphore::new(self.coordinator.semaphore(resource, permits), &self.background)
    }

    /// As [`crate::Coordinator::permits`].
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`].
    pub fn permits(&self, resource: impl AsRef<str>) -> Result<Option<usize>, InAsyncContext> {
        self.background.run(self.coordinator.permits(resource))
    }

    /// As [`crate::Coordinator::election`].
    pub fn election(&self, resource: impl AsRef<str>) -> Election {
        Election::new(self.coordinator.election(resource), &self.background)
    }

    /// As [`crate::Coordinator::examine`]: asks each node all that bears on locks.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`]: then nobody is asked.
    pub fn examine(&self) -> Result<Examination, InAsyncContext> {
        self.background.run(self.coordinator.examine())
    }

    /// As [`crate::Coordinator::noticed`]. Asks nobody.
    #[must_use]
    pub fn noticed(&self) -> Vec<Finding> {
        self.coordinator.noticed()
    }

    /// As [`crate::Coordinator::health`]: how the nodes stand, now and whenever that changes.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::new(self.coordinator.health(), &self.background)
    }

    /// As [`crate::Coordinator::close`]. Call it before the program ends, so that others need not
    /// wait for the TTL of what was just dropped.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`]: then nothing is closed.
    pub fn close(&self, patience: Duration) -> Result<(), InAsyncContext> {
        self.background.run(self.coordinator.close(patience))
    }
}
