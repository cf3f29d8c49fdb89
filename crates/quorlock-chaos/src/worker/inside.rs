//! Tracks which tasks of this process hold a lock, to detect overlaps.

use quorlock::protocol::Mode;
use quorlock::runtime::Mutex;

use super::wanted::LeaseWatch;

/// The leases under which tasks hold one lock.
#[derive(Debug, Default)]
pub(super) struct Inside {
    holders: Mutex<Vec<LeaseWatch>>,
}

impl Inside {
    /// Adds a lease. Returns whether it conflicts with another one: both are valid, and at least one is
    /// exclusive.
    pub(super) fn enter(&self, lease: &LeaseWatch) -> bool {
        let mut holders = self.holders.lock();
        let alone = |other: &LeaseWatch| other.mode() == Mode::Exclusive || lease.mode() == Mode::Exclusive;
        let meets = |other: &LeaseWatch| alone(other) && other.check().is_ok();
        let overlaps = holders.iter().any(meets) && lease.check().is_ok();
        holders.push(lease.clone());
        overlaps
    }

    /// Removes a lease.
    pub(super) fn leave(&self, lease: &LeaseWatch) {
        let mut holders = self.holders.lock();
        holders.retain(|other| other.token() != lease.token());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use quorlock::{Coordinator, Fencing, Renewal, runtime::Clock};
    use quorlock_testkit::{TokioClock, memory_nodes_on};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn two_valid_leases_of_one_lock_overlap() {
        let lease = async || {
            // Each call has nodes of its own, so the leases do not exclude each other.
            let clock: Arc<dyn Clock> = Arc::new(TokioClock::default());
            let coordinator =
                Coordinator::builder().custom_nodes(memory_nodes_on(&clock, 3)).clock(clock).build().unwrap();
            coordinator
                .lock("a")
                .ttl(Duration::from_secs(1))
                .renewal(Renewal::Manual)
                .fencing(Fencing::On)
                .acquire()
                .await
                .unwrap()
        };
        let (one, two, three) = (lease().await, lease().await, lease().await);
        let inside = Inside::default();
        assert!(!inside.enter(&one.watch()), "alone");
        assert!(inside.enter(&two.watch()), "together");
        inside.leave(&one.watch());
        inside.leave(&two.watch());
        assert!(!inside.enter(&three.watch()), "alone again");
    }
}
