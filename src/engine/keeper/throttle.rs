//! How many renewals of a coordinator are on their way at once.
//!
//! Leases that were acquired together are due together, and after a standstill of the process all of
//! them are. Each that is on its way needs more room than a lease, and a node refuses more votes at once
//! than it takes in: so those that are due while there are many wait for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::protocol::{Moment, fraction};

/// As many are enough to keep servers busy, and a quarter of what a node takes in: the rest is for those
/// who acquire.
const MANY: usize = 128;
/// A renewal is put off by no more than this part of the TTL, however many are on their way and whatever
/// the nodes do: 1 s of 30, where it is due after 10 s and the lease ends after 30.
const SLACK: u32 = 30;
/// And by at most this part at a time: at random, so that those that were due together are not for ever.
const STEP: u32 = 100;

/// The renewals of a coordinator that wait for their verdict. A node that hangs holds none of them up, as
/// long as it is not needed for that.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    open: AtomicUsize,
}

impl Renewals {
    /// One more is on its way, until what is returned is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> OnItsWay {
        self.open.fetch_add(1, Ordering::Relaxed);
        OnItsWay(self.clone())
    }

    /// Whether so many are on their way that others have to wait.
    pub(crate) fn are_many(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= MANY
    }

    /// Until when at `now` to put off one that was due at `due`, if at all. `random` is uniform over all
    /// of `u64`.
    pub(crate) fn put_off(
        &self,
        due: Moment,
        ttl: Duration,
        now: Moment,
        random: impl FnOnce() -> u64,
    ) -> Option<Moment> {
        let latest = due + ttl / SLACK;
        (self.are_many() && now < latest).then(|| latest.min(now + fraction(ttl / STEP, random())))
    }
}

/// A renewal that is on its way.
pub(crate) struct OnItsWay(Arc<Renewals>);

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
