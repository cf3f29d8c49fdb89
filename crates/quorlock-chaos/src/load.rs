//! What workers do, and how often.

use serde::{Deserialize, Serialize};

/// Who takes locks, and what for. The numbers are weights: how often one thing is done against the
/// others.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Load {
    /// Processes.
    pub(crate) workers: usize,
    /// Tasks of each process that contend; one more takes a lock that nobody else wants.
    pub(crate) tasks: usize,
    /// Hold a lock for a moment.
    pub(crate) short: u32,
    /// Hold it for longer than its TTL, renewed.
    pub(crate) long: u32,
    /// Take it only if it is free.
    pub(crate) only_if_free: u32,
    /// Stop waiting for it halfway.
    pub(crate) cancelled: u32,
    /// Take one lock, then a second one.
    pub(crate) nested: u32,
    /// Forget to give it back: the lease is dropped.
    pub(crate) dropped: u32,
    /// Rely on nothing but the fencing token: write without asking whether the lease still holds.
    pub(crate) trusting: u32,
    /// Share it with others who do, and write nothing.
    pub(crate) reading: u32,
    /// Hold it alone, and then share it.
    pub(crate) downgraded: u32,
    /// Hold two or three locks that were taken at once.
    pub(crate) several: u32,
    /// Take one of a semaphore's permits.
    pub(crate) permits: u32,
    /// Take one, believing that there is one more than there is.
    pub(crate) differing: u32,
    /// Campaign, lead for a while, and resign.
    pub(crate) leading: u32,
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
