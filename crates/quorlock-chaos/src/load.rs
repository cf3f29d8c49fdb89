//! The load: what workers do with locks, and how often.

use serde::{Deserialize, Serialize};

/// The load of a scenario. `workers` and `tasks` are counts; the other numbers are relative weights of
/// operations.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Load {
    /// Worker processes.
    pub(crate) workers: usize,
    /// Contending tasks of each process; one more task acquires an uncontended lock.
    pub(crate) tasks: usize,
    /// Hold a lock for 1 to 15 ms.
    pub(crate) short: u32,
    /// Hold a lock for one to two TTLs, so that it is renewed.
    pub(crate) long: u32,
    /// Acquire a lock only if it is free.
    pub(crate) only_if_free: u32,
    /// Cancel the wait for a lock.
    pub(crate) cancelled: u32,
    /// Acquire a second lock while holding one.
    pub(crate) nested: u32,
    /// Drop the lease without releasing it.
    pub(crate) dropped: u32,
    /// Write without checking the lease, relying on the fencing token alone.
    pub(crate) trusting: u32,
    /// Hold a shared lock, and write nothing.
    pub(crate) reading: u32,
    /// Hold a lock exclusively, then downgrade it.
    pub(crate) downgraded: u32,
    /// Acquire two or three locks in one call.
    pub(crate) several: u32,
    /// Acquire a permit of a semaphore.
    pub(crate) permits: u32,
    /// Acquire a permit with a configuration of one permit too many.
    pub(crate) differing: u32,
    /// Campaign in an election, lead, and resign.
    pub(crate) leading: u32,
}

impl Load {
    /// Whether a task writes to the guarded resource: all but those do that only read.
    pub(crate) fn writes(&self) -> bool {
        let Load { short, long, only_if_free, cancelled, nested, dropped, trusting, .. } = *self;
        let Load { downgraded, several, permits, differing, leading, .. } = *self;
        let writing = [short, long, only_if_free, cancelled, nested, dropped, trusting];
        let more = [downgraded, several, permits, differing, leading];
        self.tasks > 0 && writing.iter().chain(&more).any(|weight| *weight > 0)
    }
}

impl Default for Load {
    fn default() -> Load {
        Load {
            workers: 4,
            tasks: 4,
            short: 120,
            long: 2,
            only_if_free: 20,
            cancelled: 20,
            nested: 6,
            dropped: 6,
            trusting: 2,
            reading: 0,
            downgraded: 0,
            several: 0,
            permits: 0,
            differing: 0,
            leading: 0,
        }
    }
}
