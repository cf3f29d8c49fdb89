//! How many renewals of a coordinator are on their way at once.
//!
//! Leases that were acquired together are due together, and after a standstill of the process all of
//! them are. Each that is on its way needs more room than a lease, and a node refuses more votes at once
//! than it takes in: so those that are due while there are many wait for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock_protocol::most_in_flight;

/// As many are enough to keep near servers busy, and a quarter of what a node takes in: the rest is for those
/// who acquire. Of far ones [more](most_in_flight).
const MANY: u64 = 128;
/// The renewals of a coordinator that wait for their verdict. A node that hangs holds none of them up, as
/// long as it is not needed for that.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    open: AtomicU64,
}

impl Renewals {
    /// One more is on its way, until what is returned is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        self.open.fetch_add(1, Ordering::Relaxed);
        InFlight(self.clone())
    }

    /// Whether so many are on their way that others have to wait. The `round_trip` is that to a quorum.
    pub(crate) fn are_many(&self, round_trip: impl FnOnce() -> Duration) -> bool {
        let open = self.open.load(Ordering::Relaxed);
        open >= MANY && open >= most_in_flight(MANY, round_trip())
    }
}

/// A renewal that is on its way.
pub(crate) struct InFlight(Arc<Renewals>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_renewals_a_second_go_out_to_far_nodes_as_to_near_ones() {
        let renewals = Arc::new(Renewals::default());
        let mut in_flight: Vec<_> = (1..MANY).map(|_| renewals.begin()).collect();
        let are_many = |millis| renewals.are_many(|| Duration::from_millis(millis));
        assert!(!are_many(0));
        in_flight.push(renewals.begin());
        assert!(are_many(0) && are_many(49) && !are_many(300), "twelve times as many at 300 ms");
        in_flight.extend((MANY..12 * MANY).map(|_| renewals.begin()));
        assert!(are_many(300));
        drop(in_flight);
    }
}
