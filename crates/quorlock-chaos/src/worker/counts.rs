//! The counters of a worker.

use std::sync::atomic::{AtomicU64, Ordering};

use quorlock_history::Stamp;

use super::Status;

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) attempts: Count,
    pub(super) acquired: Count,
    pub(super) not_acquired: Count,
    pub(super) lost: Count,
    pub(super) overlaps: Count,
    fresh: AtomicU64,
}

impl Counts {
    /// Notes that the own lock was acquired by an attempt that began at `invoked`.
    pub(super) fn freshen(&self, invoked: Stamp) {
        self.fresh.fetch_max(invoked.nanos(), Ordering::Relaxed);
    }

    pub(super) fn status(&self) -> Status {
        Status {
            acquired: self.acquired.get(),
            not_acquired: self.not_acquired.get(),
            lost: self.lost.get(),
            overlaps: self.overlaps.get(),
            fresh: Stamp::from_nanos(self.fresh.load(Ordering::Relaxed)),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Count {
    value: AtomicU64,
}

impl Count {
    /// Increments, and returns the previous value.
    pub(super) fn add(&self) -> u64 {
        self.value.fetch_add(1, Ordering::Relaxed)
    }

    fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}
