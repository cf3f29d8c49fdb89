//! Leader election for programs without async.

use std::time::Duration;

use super::background::Background;
use super::{Lease, LeaseWatch};
use crate::election::Observed;
use crate::engine::wait::{Wait, Waiting};
use crate::error::{AcquireError, ConfigError, InAsyncContext, Lost};
use quorlock_protocol::{FencingToken, Resource, Token};

/// An election, as [`crate::Election`], whose calls wait on the thread that makes them.
///
/// ```
/// # let nodes = quorlock_testkit::memory_nodes(5);
/// # let coordinator = quorlock::Coordinator::builder().custom_nodes(nodes).build_blocking()?;
/// use std::time::Duration;
/// use quorlock::Observed;
///
/// let election = coordinator.election("scheduler");
/// let mut observer = election.observe()?;
/// let leadership = election.campaign("http://10.0.0.7:8080")?; // waits until elected
/// if let Some(Observed::Leader(leader)) = observer.changed_within(Duration::from_secs(1))? {
///     assert_eq!(leader.value, "http://10.0.0.7:8080");
/// }
/// leadership.check()?; // right before each side effect
/// leadership.resign()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until somebody campaigns or observes"]
pub struct Election {
    inner: crate::Election,
    background: Background,
}

impl Election {
    pub(super) fn new(inner: crate::Election, background: &Background) -> Election {
        Election { inner, background: background.clone() }
    }

    /// As [`crate::Election::ttl`].
    pub fn ttl(self, ttl: Duration) -> Election {
        Election { inner: self.inner.ttl(ttl), ..self }
    }

    /// As [`crate::Election::wait`]: for ever unless set.
    pub fn wait(self, wait: Wait) -> Election {
        Election { inner: self.inner.wait(wait), ..self }
    }

    /// As [`crate::Election::max_hold`].
    pub fn max_hold(self, longest: Duration) -> Election {
        Election { inner: self.inner.max_hold(longest), ..self }
    }

    /// As [`crate::Election::on_wait`]. The listener is called on the background thread, which serves
    /// all locks, or on one that campaigns: it must not block.
    pub fn on_wait(self, listener: impl Fn(&Waiting) + Send + Sync + 'static) -> Election {
        Election { inner: self.inner.on_wait(listener), ..self }
    }

    /// As [`crate::Election::validate`].
    ///
    /// # Errors
    ///
    /// Says what cannot work, and what would.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.inner.validate()
    }

    /// As [`crate::Election::campaign`]: waits until elected, and announces `value`.
    ///
    /// # Errors
    ///
    /// As there, and [`AcquireError::InAsyncContext`].
    pub fn campaign(&self, value: impl AsRef<str>) -> Result<Leadership, AcquireError> {
        let leadership = self.background.run(self.inner.campaign(value))??;
        Ok(Leadership { lease: Lease::new(leadership.into_lease(), &self.background) })
    }

    /// Campaigns, and runs `work` on this thread while leading; when the leadership was lost before the
    /// work had ended, campaigns again and runs it anew. Gives the output of the first work that ran to
    /// its end within one leadership, which is then resigned.
    ///
    /// Other than [`crate::Election::lead`] it cannot stop the work when the leadership is lost: a thread
    /// runs until it looks. So call [`check`](Leadership::check) right before each side effect, and return
    /// when it fails.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Election::campaign).
    ///
    /// # Panics
    ///
    /// If the work does, which resigns.
    pub fn lead<T>(
        &self,
        value: impl AsRef<str>,
        mut work: impl FnMut(&Leadership) -> T,
    ) -> Result<T, AcquireError> {
        loop {
            let leadership = self.campaign(value.as_ref())?;
            let output = work(&leadership);
            if leadership.check().is_ok() {
                // The work has ended in time; a loss after that concerns nobody.
                drop(leadership.resign());
                return Ok(output);
            }
        }
    }

    /// As [`crate::Election::leader`]: asks all nodes who leads, once.
    ///
    /// # Errors
    ///
    /// As there, and [`AcquireError::InAsyncContext`].
    pub fn leader(&self) -> Result<Observed, AcquireError> {
        self.background.run(self.inner.leader())?
    }

    /// As [`crate::Election::observe`]: somebody who is told who leads, and does not campaign.
    ///
    /// # Errors
    ///
    /// When name or options cannot work.
    pub fn observe(&self) -> Result<Observer, ConfigError> {
        Ok(Observer { inner: self.inner.observe()?, background: self.background.clone() })
    }
}

/// The lead, for as long as it is held, as [`crate::Leadership`]: dropping it resigns in the background.
#[derive(Debug)]
#[must_use = "dropping the leadership resigns at once"]
pub struct Leadership {
    lease: Lease,
}

impl Leadership {
    /// As [`crate::Leadership::resource`].
    #[must_use]
    pub fn resource(&self) -> &Resource {
        self.lease.resource()
    }

    /// As [`crate::Leadership::token`].
    #[must_use]
    pub fn token(&self) -> &Token {
        self.lease.token()
    }

    /// As [`crate::Leadership::fencing_token`].
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.lease.fencing_token()
    }

    /// As [`crate::Leadership::check`]: reads the clock, asks nobody, works anywhere.
    ///
    /// # Errors
    ///
    /// [`Lost`] from the end of validity on, for ever.
    pub fn check(&self) -> Result<(), Lost> {
        self.lease.check()
    }

    /// As [`crate::Leadership::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// As [`crate::Leadership::watch`].
    #[must_use]
    pub fn watch(&self) -> LeaseWatch {
        self.lease.watch()
    }

    /// As [`crate::Leadership::lost`]: waits until the leadership is over.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`].
    pub fn lost(&self) -> Result<Lost, InAsyncContext> {
        self.lease.lost()
    }

    /// As [`Lease::lost_within`]: waits until the leadership is over, or for `longest`.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`].
    pub fn lost_within(&self, longest: Duration) -> Result<Option<Lost>, InAsyncContext> {
        self.lease.lost_within(longest)
    }

    /// As [`Lease::on_lost`].
    pub fn on_lost(&self, listener: impl FnOnce(Lost) + Send + 'static) {
        self.lease.on_lost(listener);
    }

    /// As [`crate::Leadership::resign`]. In an async context it does not wait, as if dropped.
    ///
    /// # Errors
    ///
    /// [`Lost`] when it was over before.
    pub fn resign(self) -> Result<(), Lost> {
        self.lease.release()
    }
}

/// Is told who leads an [election](Election), as [`crate::Observer`].
#[derive(Debug)]
pub struct Observer {
    inner: crate::Observer,
    background: Background,
}

impl Observer {
    /// As [`crate::Observer::changed`]: waits until something else is known than was told last. The first
    /// time it tells what is known at once.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`].
    pub fn changed(&mut self) -> Result<Observed, InAsyncContext> {
        self.background.run(self.inner.changed())
    }

    /// As [`changed`](Observer::changed), but for `longest` at most: `None` if nothing has changed by then.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`].
    pub fn changed_within(&mut self, longest: Duration) -> Result<Option<Observed>, InAsyncContext> {
        self.background.run_within(longest, self.inner.changed())
    }
}
