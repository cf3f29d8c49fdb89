//! Leader election: one of many leads, until it resigns or is lost.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::engine::wait::{Wait, Waiting};
use crate::error::{AcquireError, ConfigError, Lost};
use crate::lease::{Lease, LeaseWatch};
use crate::lock::Lock;
use quorlock_protocol::{FencingToken, Resource, Token};

pub use observer::{Leader, Observed, Observer};

mod observer;

/// An election: whoever holds the lock of its name leads, and announces a value, such as the address
/// at which it can be reached.
///
/// It promises what a [`Lock`] does: as long as clocks drift less than allowed and nodes do not
/// forget, no two candidates lead at once *by their own leases*, and a leader is told of the end by
/// the end of its validity. Whoever dies is followed within a TTL, whoever resigns at once.
///
/// It does not promise that nobody acts as leader who leads no longer. A leader that is paused, by
/// the scheduler, a debugger or a suspended machine, goes on where it was when it wakes up, and by
/// then another may lead. [`Leadership::check`] right before each side effect makes the window small;
/// only a resource that checks the [fencing token](Leadership::fencing_token) closes it, so every
/// leader has one. And what an [`Observer`] tells was true at the nodes when they were asked.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use quorlock::Observed;
///
/// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
/// let election = coordinator.election("scheduler");
/// let mut observer = election.observe()?;
///
/// let leadership = election.campaign("http://10.0.0.7:8080").await?; // waits until elected
/// if let Observed::Leader(leader) = observer.changed().await {
///     assert_eq!(leader.value, "http://10.0.0.7:8080");
/// }
/// leadership.check()?; // right before each side effect
/// leadership.resign().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until somebody campaigns or observes"]
pub struct Election {
    lock: Lock,
}

impl Election {
    pub(crate) fn new(lock: Lock) -> Election {
        Election { lock: lock.wait(Wait::Forever) }
    }

    /// As [`Lock::ttl`]: a leader that dies is followed this much later. 30 s unless set.
    pub fn ttl(self, ttl: Duration) -> Election {
        Election { lock: self.lock.ttl(ttl) }
    }

    /// As [`Lock::wait`], but for ever unless set: most candidates are there to wait.
    pub fn wait(self, wait: Wait) -> Election {
        Election { lock: self.lock.wait(wait) }
    }

    /// As [`Lock::max_hold`]: how long one may lead in a row. No limit unless set.
    pub fn max_hold(self, longest: Duration) -> Election {
        Election { lock: self.lock.max_hold(longest) }
    }

    /// As [`Lock::on_wait`].
    pub fn on_wait(self, listener: impl Fn(&Waiting) + Send + Sync + 'static) -> Election {
        Election { lock: self.lock.on_wait(listener) }
    }

    /// Checks name and options, as [`Lock::validate`].
    ///
    /// # Errors
    ///
    /// Says what cannot work, and what would.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.lock.validate()
    }

    /// Waits until elected, and announces `value`: up to 200 bytes that observers and whoever
    /// inspects the lock can read.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]. During an outage it goes on waiting, unless a [wait](Election::wait) is
    /// set.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`]: dropped at whatever point, it leaves nothing behind.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn campaign(&self, value: impl AsRef<str>) -> Result<Leadership, AcquireError> {
        let lease = self.lock.clone().label(value.as_ref()).acquire().await?;
        Ok(Leadership { lease })
    }

    /// Campaigns, and runs `work` while leading; when the leadership is lost, drops the work where it
    /// waits and campaigns again. Ends with the output of the first work that ran to its end within
    /// one leadership, which is then resigned.
    ///
    /// So `work` starts anew in each leadership, and must not rely on what an earlier one has left
    /// half-done. It is the loop that every candidate needs, with the two mistakes left out: taking a
    /// loss for the end, and going on with the work after it.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Election::campaign).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and resigns in the background.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime. A panic of the work resigns.
    pub async fn lead<T, Work, Running>(
        &self,
        value: impl AsRef<str>,
        mut work: Work,
    ) -> Result<T, AcquireError>
    where
        Work: FnMut(LeaseWatch) -> Running,
        Running: Future<Output = T>,
    {
        loop {
            let leadership = self.campaign(value.as_ref()).await?;
            let running = work(leadership.watch());
            if let Ok(output) = leadership.run_until_lost(running).await {
                // The work has ended in time; a loss after that concerns nobody.
                drop(leadership.resign().await);
                return Ok(output);
            }
        }
    }

    /// Asks all nodes who leads, once.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Config`] when name or options cannot work.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping the future.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn leader(&self) -> Result<Observed, AcquireError> {
        Ok(Observed::of(self.lock.inspect().await?))
    }

    /// Somebody who is told who leads, and does not campaign. One for a program is enough: each asks
    /// the nodes for itself.
    ///
    /// # Errors
    ///
    /// When name or options cannot work.
    pub fn observe(&self) -> Result<Observer, ConfigError> {
        self.validate()?;
        Ok(Observer::new(&self.lock))
    }
}

/// The lead, for as long as it is held: renewed in the background, and over by itself when that
/// fails.
///
/// Dropping it resigns in the background. It cannot be cloned: [`watch`](Leadership::watch) gives
/// others something that cannot resign.
#[must_use = "dropping the leadership resigns at once"]
pub struct Leadership {
    lease: Lease,
}

impl Leadership {
    /// The lease behind it.
    #[cfg(feature = "blocking")]
    pub(crate) fn into_lease(self) -> Lease {
        self.lease
    }

    /// What is led.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        self.lease.resource()
    }

    /// The token that stands at the nodes: what an [`Observer`] of this leadership sees.
    #[must_use]
    pub fn token(&self) -> &Token {
        self.lease.token()
    }

    /// A number larger than that of every leader before, for resources to check: see
    /// [`fence`](crate::fence). Nothing else keeps a leader out that was paused.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.lease.fencing_token()
    }

    /// As [`Lease::check`]: whether the lead is held at this moment.
    ///
    /// # Errors
    ///
    /// [`Lost`] from the end of validity on, for ever.
    pub fn check(&self) -> Result<(), Lost> {
        self.lease.check()
    }

    /// As [`Lease::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// As [`Lease::lost`]: ends when the leadership does, no later than its validity.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping the future; call again.
    pub async fn lost(&self) -> Lost {
        self.lease.lost().await
    }

    /// As [`Lease::run_until_lost`].
    ///
    /// # Errors
    ///
    /// [`Lost`] when the leadership ended first; the work is dropped where it waits.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work. The leadership stays.
    pub async fn run_until_lost<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        self.lease.run_until_lost(work).await
    }

    /// Somebody who watches this leadership, in any task.
    #[must_use]
    pub fn watch(&self) -> LeaseWatch {
        self.lease.watch()
    }

    /// Gives the lead back, and says whether it was held until now: as [`Lease::release`]. The next
    /// candidate leads as soon as the nodes have told it.
    ///
    /// # Errors
    ///
    /// [`Lost`] when it was over before.
    ///
    /// # Cancel safety
    ///
    /// It is given back when the future is dropped, at whatever point.
    pub async fn resign(self) -> Result<(), Lost> {
        self.lease.release().await
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.lease).finish()
    }
}
