//! Leader election for programs without async.

use std::ops::Deref;
use std::time::Duration;

use super::Lease;
use super::background::Background;
use crate::election::Observed;
use crate::engine::wait::{Wait, Waiting};
use crate::error::{AcquireError, ConfigError, Lost};
use crate::forward::setters;

/// An election, as [`crate::Election`], whose calls wait on the thread that makes them.
///
/// ```
/// # let nodes = quorlock_testkit::memory_nodes(5);
/// # let coordinator = quorlock::Coordinator::builder().custom_nodes(nodes).build_blocking()?;
/// use std::time::Duration;
/// use quorlock::election::Observed;
///
/// let election = coordinator.election("scheduler");
/// let mut observer = election.observe()?;
/// let leadership = election.campaign("http://10.0.0.7:8080")?; // waits until elected
/// if let Some(Observed::Leader(leader)) = observer.changed_within(Duration::from_secs(1)) {
///     assert_eq!(leader.value, "http://10.0.0.7:8080");
/// }
/// leadership.check()?; // right before each side effect
/// leadership.resign()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until a candidate campaigns or an observer observes"]
pub struct Election {
    inner: crate::Election,
    background: Background,
}

impl Election {
    pub(super) fn new(inner: crate::Election, background: &Background) -> Election {
        Election { inner, background: background.clone() }
    }

    setters! { inner, "crate::Election":
        ttl(ttl: Duration),
        wait(wait: impl Into<Wait>) ": for ever unless set",
        max_hold(longest: Duration),
        on_wait(listener: impl Fn(&Waiting) + Send + Sync + 'static) ". The listener is called on the background \
            thread, which serves all locks, or on one that campaigns: it must not block",
    }

    /// As [`crate::Election::validate`].
    ///
    /// # Errors
    ///
    /// Names the setting that cannot work, and one that would.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.inner.validate()
    }

    /// As [`crate::Election::campaign`]: waits until elected, and announces `value`.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn campaign(&self, value: impl AsRef<str>) -> Result<Leadership, AcquireError> {
        let leadership = self.background.run(self.inner.campaign(value))?;
        Ok(Leadership { lease: Lease::new(leadership.into_lease(), &self.background) })
    }

    /// Campaigns, and runs `work` on this thread while leading; if the leadership was lost before the work had
    /// ended, campaigns and runs it again. Returns the output of the first work that ran to its end within one
    /// leadership, which is then resigned.
    ///
    /// Unlike [`crate::Election::lead`], it cannot stop the work when the leadership is lost: call
    /// [`check`](Lease::check) right before each side effect, and return when it fails.
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
                // The work has ended in time; a loss after that does not matter.
                drop(leadership.resign());
                return Ok(output);
            }
        }
    }

    /// As [`crate::Election::leader`]: asks all nodes who leads, once.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn leader(&self) -> Result<Observed, ConfigError> {
        self.background.run(self.inner.leader())
    }

    /// As [`crate::Election::observe`].
    ///
    /// # Errors
    ///
    /// When name or options cannot work.
    pub fn observe(&self) -> Result<Observer, ConfigError> {
        Ok(Observer { inner: self.inner.observe()?, background: self.background.clone() })
    }
}

/// A held leadership, as [`crate::Leadership`]. It is a [`Lease`]; dropping it resigns in the background, which a program
/// that ends right after that may not do: [`resign`](Leadership::resign) waits.
#[derive(Debug)]
#[must_use = "dropping the leadership resigns immediately: bind it to a name such as `_leadership`, since `let _ =` drops it, too"]
pub struct Leadership {
    lease: Lease,
}

impl Leadership {
    /// As [`crate::Leadership::resign`].
    ///
    /// # Errors
    ///
    /// [`Lost`] when it was over before.
    pub fn resign(self) -> Result<(), Lost> {
        self.lease.release()
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

/// Follows the leader of an [election](Election), as [`crate::Observer`].
#[derive(Debug)]
pub struct Observer {
    inner: crate::Observer,
    background: Background,
}

impl Observer {
    /// As [`crate::Observer::changed`]: waits until the leader is another than last time. The first call returns the
    /// current leader immediately. Does not return once the coordinator is closed: a thread that is joined at the end asks by
    /// [`changed_within`](Observer::changed_within).
    pub fn changed(&mut self) -> Observed {
        self.background.run(self.inner.changed())
    }

    /// As [`changed`](Observer::changed), for at most `longest`: `None` if nothing has changed by then.
    pub fn changed_within(&mut self, longest: Duration) -> Option<Observed> {
        self.background.run_within(longest, self.inner.changed())
    }
}
