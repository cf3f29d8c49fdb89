//! Puts off due renewals while many of a coordinator are in flight: by a thirtieth of the TTL at most, and never one that the
//! holder asks for.
//!
//! Leases acquired together are due together, and after a suspension of the process all of them
//! are. A renewal needs more memory than an idle lease, and a node refuses votes beyond its request
//! limit; so due renewals wait for a moment while many are in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock_protocol::most_in_flight;

/// Enough to keep nearby servers busy, and a quarter of what a node accepts; the rest is left for
/// acquisitions. For distant servers there are [more](most_in_flight).
const MANY: u64 = 128;

/// The renewals of a coordinator that wait for their verdict. A hanging node delays none of them
/// unless its vote is needed.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    open: AtomicU64,
}

impl Renewals {
    /// Counts a renewal as in flight until the returned value is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        self.open.fetch_add(1, Ordering::Relaxed);
        InFlight(self.clone())
    }

    /// Whether the limit is reached, so that others must wait. `round_trip` is that to a quorum.
    pub(crate) fn are_many(&self, round_trip: impl FnOnce() -> Duration) -> bool {
        let open = self.open.load(Ordering::Relaxed);
        open >= MANY && open >= most_in_flight(MANY, round_trip())
    }
}

/// A renewal in flight.
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
    fn distant_nodes_get_as_many_renewals_a_second_as_near() {
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
