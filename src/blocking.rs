//! The same locks for programs without async: each call waits on the calling thread.
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
//! Names, options, defaults and promises are those of the async API; differences are documented where they are.
//! Needs the Cargo feature `blocking`.
//!
//! A thread cannot be stopped from outside: `run_until_lost` has no counterpart, and [`Lock::with`],
//! [`Semaphore::with`] and [`Election::lead`] say what they do instead. A call named `…_within` waits for at most
//! the given time, others for as long as it takes.
//!
//! # The background thread
//!
//! All coordinators made here share one background thread per process, named `quorlock` and started with the
//! first. It carries connections, renewals and clean-up, so a lease is renewed whatever its holder's thread does.
//! It never keeps a process from exiting: locks that are held then expire with their TTL.
//! [`Coordinator::close`] releases them before.
//!
//! A process that another one has handed a lock has a second thread, `quorlock offers`, until ten seconds after the last
//! such lock: it renews that lock for the first time if the background thread is late, as where a listener blocks it.
//!
//! The threads do not survive `fork`: a child process that continues without `exec` cannot use anything that
//! its parent made here, and must not drop it, which would act on the parent's sockets. A coordinator that it makes
//! itself gets a thread of its own.
//!
//! # Panics in async code
//!
//! As with Tokio's `Handle::block_on`, a call that waits panics in an async task, where it would stall the
//! executor. Use the async API there, or make the call in `tokio::task::spawn_blocking`.

use std::time::Duration;

use crate::coordinator::Builder;
use crate::doctor::{Finding, Report};
use crate::error::{ConfigError, PermitError};
use crate::forward::getters;
use crate::lock::ListedPage;
use crate::node::ListedKeys;
use quorlock_protocol::LeaseTiming;

pub use background::Background;
pub use election::{Election, Leadership, Observer};
pub use health::Health;
pub use lease::{DowngradeError, Lease, LeaseWatch, MultiLease};
pub use lock::{Lock, MultiLock};
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

/// Coordinates locks over N independent nodes, as [`crate::Coordinator`]. Made by
/// [`Builder::build_blocking`]. Cheap to clone, and usable from any number of threads.
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
    pub fn lock_all(&self, resources: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock {
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
    /// As there.
    pub fn permits(&self, resource: impl AsRef<str>) -> Result<Option<usize>, PermitError> {
        self.background.run(self.coordinator.permits(resource))
    }

    /// As [`crate::Coordinator::list`]: all pages, once all nodes have listed everything or failed.
    pub fn list(&self, prefix: impl AsRef<str>, which: ListedKeys) -> Vec<ListedPage> {
        let mut listing = self.coordinator.list(prefix, which);
        self.background.run(async {
            let mut pages = Vec::new();
            while let Some(page) = listing.next_page().await {
                pages.push(page);
            }
            pages
        })
    }

    /// As [`crate::Coordinator::election`].
    pub fn election(&self, resource: impl AsRef<str>) -> Election {
        Election::new(self.coordinator.election(resource), &self.background)
    }

    /// As [`crate::Coordinator::doctor`].
    #[must_use]
    pub fn doctor(&self) -> Report {
        self.background.run(self.coordinator.doctor())
    }

    getters! { coordinator, "crate::Coordinator":
        warnings() -> Vec<Finding>,
        lease_timing(ttl: Duration) -> LeaseTiming,
    }

    /// As [`crate::Coordinator::health`].
    #[must_use]
    pub fn health(&self) -> Health {
        Health::new(self.coordinator.health(), &self.background)
    }

    /// As [`crate::Coordinator::close`]. Call it before the program exits, so that other clients need not wait for the
    /// TTL of leases that were just dropped.
    pub fn close(&self, timeout: Duration) {
        self.background.run(self.coordinator.close(timeout));
    }
}
