//! Leader election: one of many candidates leads, until it resigns or loses its lease.
//!
//! [`Election`] is made by [`Coordinator::election`](crate::Coordinator::election); [`Leadership`] is the
//! winner's, and an [`Observer`] reports the [`Leader`] to others.

use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use crate::engine::wait::{Wait, Waiting};
use crate::error::{AcquireError, ConfigError, Lost};
use crate::forward::setters;
use crate::lease::{Lease, LeaseWatch};
use crate::lock::Lock;

pub use observer::{Leader, Observed, Observer};

mod observer;

/// An election: the holder of the lock of its name leads, and announces a value, such as the address
/// at which it can be reached.
///
/// It promises what a [`Lock`] does: as long as clocks drift less than allowed and nodes do not forget, no
/// two candidates lead at the same time *by their own leases*, and a leader is notified by the end of its
/// validity. A leader that dies is replaced within a TTL, one that resigns immediately.
///
/// It does not promise that no former leader acts. A leader that is paused, by the scheduler, a debugger or a
/// suspended machine, continues where it was when it wakes up, and by then another may lead.
/// [`check`](Lease::check) right before each side effect makes the window small; only a resource that checks
/// the [fencing token](Lease::fencing_token) closes it, so every leader has one. What an [`Observer`]
/// reports was true on the nodes when they were asked.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use quorlock::election::Observed;
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
#[must_use = "an election does nothing until a candidate campaigns or an observer observes"]
pub struct Election {
    lock: Lock,
}

impl Election {
    pub(crate) fn new(lock: Lock) -> Election {
        Election { lock: lock.wait(Wait::Forever) }
    }

    setters! { lock, "Lock":
        ttl(ttl: Duration) ": a leader that dies is replaced within this time. Default: 30 s",
        wait(wait: impl Into<Wait>) ". Default: forever, since most candidates are there to wait",
        max_hold(longest: Duration) ": how long a candidate may lead in a row. Default: no limit",
        on_wait(listener: impl Fn(&Waiting) + Send + Sync + 'static),
    }

    /// Checks name and options, as [`Lock::validate`].
    ///
    /// # Errors
    ///
    /// Names the setting that cannot work, and one that would.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.lock.validate()
    }

    /// Waits until elected, and announces `value`: up to 200 bytes that observers, and clients that inspect the
    /// lock, can read.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]. During an outage it continues to wait, unless a [wait](Election::wait) is set.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`]: dropped at whatever point, it leaves nothing on the nodes.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn campaign(&self, value: impl AsRef<str>) -> Result<Leadership, AcquireError> {
        let lease = self.lock.clone().label(value.as_ref()).acquire().await?;
        Ok(Leadership { lease })
    }

    /// Campaigns, and runs `work` while leading; on a loss, drops the work at the point where it waits and
    /// campaigns again. Returns the output of the first work that ran to its end within one leadership, which is
    /// then resigned.
    ///
    /// `work` starts again in each leadership, and must not rely on what an earlier one left half-done.
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
    /// Outside a Tokio runtime. If the work panics, the leadership is resigned.
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
                // The work has ended in time; a loss after that does not matter.
                drop(leadership.resign().await);
                return Ok(output);
            }
        }
    }

    /// Asks all nodes who leads, once.
    ///
    /// # Errors
    ///
    /// When name or options cannot work.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the nodes.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn leader(&self) -> Result<Observed, ConfigError> {
        Ok(Observed::of(self.lock.inspect().await?))
    }

    /// Returns an observer, which is notified of the leader and does not campaign. One for a program is enough:
    /// each asks the nodes for itself.
    ///
    /// # Errors
    ///
    /// When name or options cannot work.
    pub fn observe(&self) -> Result<Observer, ConfigError> {
        self.validate()?;
        Ok(Observer::new(&self.lock))
    }
}

/// A held leadership. It is a [`Lease`], renewed in the background, and lost when that fails.
///
/// Dropping it resigns in the background, which a runtime that ends right after that may not do: as with a [`Lease`],
/// [`resign`](Leadership::resign) waits. It cannot be cloned: [`watch`](Lease::watch) returns a view that
/// cannot resign.
#[derive(Debug)]
#[must_use = "dropping the leadership resigns immediately: bind it to a name such as `_leadership`, since `let _ =` drops it, too"]
pub struct Leadership {
    lease: Lease,
}

impl Leadership {
    /// Resigns, and says whether the leadership was valid until now: as [`Lease::release`]. The next candidate
    /// leads as soon as a node has notified it.
    ///
    /// # Errors
    ///
    /// [`Lost`] when it was over before.
    ///
    /// # Cancel safety
    ///
    /// It is resigned even when the future is dropped, at whatever point.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime, and it is resigned all the same.
    pub async fn resign(self) -> Result<(), Lost> {
        self.lease.release().await
    }

    /// Returns its lease.
    pub fn into_lease(self) -> Lease {
        self.lease
    }
}

impl Deref for Leadership {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}
