//! The status of the nodes, for programs without async.

use std::time::Duration;

use super::background::Background;
use crate::quorum::board::NodeHealth;

/// The status of a coordinator's nodes, now and whenever it changes, as [`crate::health::Health`].
///
/// ```
/// # let coordinator = quorlock::Coordinator::builder().nodes(["a", "b", "c"]).build_blocking()?;
/// let mut health = coordinator.health();
/// std::thread::spawn(move || {
///     while let Some(nodes) = health.changed() {
///         for node in nodes {
///             println!("{node}"); // redis://10.0.0.1:6379: connected
///         }
///     }
/// });
/// # Ok::<(), quorlock::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Health {
    inner: crate::health::Health,
    background: Background,
}

impl Health {
    pub(super) fn new(inner: crate::health::Health, background: &Background) -> Health {
        Health { inner, background: background.clone() }
    }

    /// As [`crate::health::Health::now`]. Empty once the coordinator is gone.
    #[must_use]
    pub fn now(&self) -> Vec<NodeHealth> {
        self.inner.now()
    }

    /// As [`crate::health::Health::changed`]: waits until something has changed since the last time. `None` once
    /// the coordinator is gone, with its clones and all that they have made: locks, semaphores, leases, elections,
    /// observers. [`close`](super::Coordinator::close) does not end it.
    pub fn changed(&mut self) -> Option<Vec<NodeHealth>> {
        self.background.run(self.inner.changed())
    }

    /// As [`changed`](Health::changed), for at most `longest`: `None` if nothing has changed by then,
    /// and an empty list once the coordinator is gone.
    pub fn changed_within(&mut self, longest: Duration) -> Option<Vec<NodeHealth>> {
        let changed = self.background.run_within(longest, self.inner.changed());
        changed.map(Option::unwrap_or_default)
    }
}
