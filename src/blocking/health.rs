//! How the nodes stand, for programs without async.

use std::time::Duration;

use super::background::Background;
use crate::error::InAsyncContext;
use crate::quorum::board::NodeHealth;

/// How the nodes of a coordinator stand, now and whenever that changes, as [`crate::Health`]. Asks no
/// node.
///
/// ```
/// # let coordinator = quorlock::Coordinator::builder().nodes(["a", "b", "c"]).build_blocking()?;
/// let mut health = coordinator.health();
/// std::thread::spawn(move || {
///     while let Ok(Some(nodes)) = health.changed() {
///         for node in nodes {
///             println!("{node}"); // redis://10.0.0.1:6379: connected
///         }
///     }
/// });
/// # Ok::<(), quorlock::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Health {
    inner: crate::Health,
    background: Background,
}

impl Health {
    pub(super) fn new(inner: crate::Health, background: &Background) -> Health {
        Health { inner, background: background.clone() }
    }

    /// As [`crate::Health::now`]. Empty once the coordinator is gone.
    #[must_use]
    pub fn now(&self) -> Vec<NodeHealth> {
        self.inner.now()
    }

    /// As [`crate::Health::changed`]: waits until something has changed since the last time. `None` once
    /// the coordinator is gone, with all its clones, locks and leases.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`].
    pub fn changed(&mut self) -> Result<Option<Vec<NodeHealth>>, InAsyncContext> {
        self.background.run(self.inner.changed())
    }

    /// As [`changed`](Health::changed), but for `longest` at most: `None` if nothing has changed by then,
    /// and no nodes at all once the coordinator is gone.
    ///
    /// # Errors
    ///
    /// [`InAsyncContext`].
    pub fn changed_within(&mut self, longest: Duration) -> Result<Option<Vec<NodeHealth>>, InAsyncContext> {
        let changed = self.background.run_within(longest, self.inner.changed())?;
        Ok(changed.map(Option::unwrap_or_default))
    }
}
