//! The `max_ttl` of the other clients of the deployment, as far as the nodes report it (rule I-37).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::runtime::Mutex;
use quorlock_protocol::{Drift, Quarantine, Quorum};

/// Compares the `max_ttl` of this client with those that other clients have recorded on the nodes, and
/// extends the quarantine if theirs is larger.
#[derive(Debug)]
pub(crate) struct MaxTtls {
    ours: Duration,
    drift: Drift,
    /// How many nodes must report a larger one: fewer may all be wrong, and must not silence the others.
    believed_by: usize,
    /// The largest that each node has ever reported. Kept when a node restarts and forgets it.
    reported: Mutex<Vec<Duration>>,
    /// The largest that enough nodes have reported, in nanoseconds; 0 while none is larger than ours.
    believed: AtomicU64,
    /// The last one that differs from ours, in nanoseconds; 0 for none.
    differs: AtomicU64,
}

impl MaxTtls {
    pub(crate) fn new(ours: Duration, drift: Drift, quorum: Quorum) -> MaxTtls {
        MaxTtls {
            ours,
            drift,
            believed_by: quorum.blocking(),
            reported: Mutex::new(vec![Duration::ZERO; quorum.nodes()]),
            believed: AtomicU64::new(0),
            differs: AtomicU64::new(0),
        }
    }

    /// Returns the `max_ttl` of this client, which is recorded on the nodes.
    pub(crate) fn ours(&self) -> Duration {
        self.ours
    }

    /// Records the `max_ttl` of other clients that the node at `index` has reported. Returns it if it differs
    /// from ours and no node has reported it before.
    pub(crate) fn hear(&self, index: usize, theirs: Duration) -> Option<Duration> {
        if millis(theirs) == millis(self.ours) {
            return None;
        }
        let mut reported = self.reported.lock();
        if let Some(largest) = reported.get_mut(index) {
            *largest = theirs.max(*largest);
        }
        let mut sorted = reported.clone();
        drop(reported);
        sorted.sort_unstable_by(|one, two| two.cmp(one));
        let believed = sorted.get(self.believed_by.saturating_sub(1)).copied().unwrap_or_default();
        if believed > self.ours {
            // Another node may have reported a larger one since the mutex was released.
            self.believed.fetch_max(nanos(believed), Ordering::Relaxed);
        }
        let is_new = self.differs.swap(nanos(theirs), Ordering::Relaxed) != nanos(theirs);
        is_new.then_some(theirs)
    }

    /// Returns the last one that differs from ours.
    pub(crate) fn differing(&self) -> Option<Duration> {
        let differs = self.differs.load(Ordering::Relaxed);
        (differs > 0).then(|| Duration::from_nanos(differs))
    }

    /// Returns the quarantine, long enough for the locks of other clients as well. Zero in `ours` means that
    /// the guard is off.
    pub(crate) fn quarantine(&self, ours: Quarantine) -> Quarantine {
        match self.believed.load(Ordering::Relaxed) {
            0 => ours,
            believed => Quarantine::new(Duration::from_nanos(believed), self.drift),
        }
    }
}

/// The `max_ttl` of a deployment's clients, as one node reports it.
#[derive(Clone, Debug)]
pub(crate) struct MaxTtlNotes {
    all: Arc<MaxTtls>,
    node: usize,
}

impl MaxTtlNotes {
    pub(crate) fn of(all: &Arc<MaxTtls>, node: usize) -> MaxTtlNotes {
        MaxTtlNotes { all: Arc::clone(all), node }
    }

    pub(crate) fn ours(&self) -> Duration {
        self.all.ours()
    }

    pub(crate) fn drift(&self) -> Drift {
        self.all.drift
    }

    /// See [`Seams::hear_max_ttl`](crate::node::Seams::hear_max_ttl).
    pub(crate) fn hear(&self, theirs: Duration) -> Option<Duration> {
        self.all.hear(self.node, theirs)
    }
}

/// Returns the value that is recorded on the nodes, in milliseconds.
pub(crate) fn millis(max_ttl: Duration) -> u64 {
    u64::try_from(max_ttl.as_millis()).unwrap_or(u64::MAX)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Duration = Duration::from_secs(30);
    const LONGER: Duration = Duration::from_secs(60);

    fn of_five() -> MaxTtls {
        MaxTtls::new(OURS, Drift::default(), Quorum::majority(5))
    }

    fn length(ttls: &MaxTtls) -> Duration {
        ttls.quarantine(Quarantine::new(OURS, Drift::default())).length()
    }

    #[test]
    fn i37_a_larger_max_ttl_from_enough_nodes_extends_the_quarantine() {
        let (ttls, before) = (of_five(), length(&of_five()));
        for node in [0, 1, 1] {
            ttls.hear(node, Duration::MAX);
            assert_eq!(length(&ttls), before, "a minority may be wrong");
        }
        ttls.hear(4, LONGER);
        assert_eq!(
            length(&ttls),
            Quarantine::new(LONGER, Drift::default()).length(),
            "three nodes agree on at least this"
        );
        ttls.hear(4, OURS);
        ttls.hear(4, Duration::from_secs(1));
        assert_eq!(length(&ttls), Quarantine::new(LONGER, Drift::default()).length(), "it is kept");
    }

    #[test]
    fn i37_what_two_nodes_report_at_the_same_time_does_not_shorten_the_quarantine() {
        let ttls = MaxTtls::new(OURS, Drift::default(), Quorum::majority(1));
        let report = |odd: u64| {
            for millis in (0..100_000).map(|step| 60_000 + 2 * step + odd) {
                let theirs = Duration::from_millis(millis);
                ttls.hear(0, theirs);
                let least = Quarantine::new(theirs, Drift::default()).length();
                assert!(length(&ttls) >= least, "it is shorter than {theirs:?}");
            }
        };
        std::thread::scope(|threads| {
            threads.spawn(|| report(0));
            report(1);
        });
    }

    #[test]
    fn a_different_max_ttl_is_reported_once_and_kept() {
        let ttls = of_five();
        assert!(ttls.hear(0, OURS).is_none() && ttls.differing().is_none());
        assert!(ttls.hear(0, LONGER).is_some());
        assert!(ttls.hear(1, LONGER).is_none(), "each node reports it");
        assert!(ttls.hear(2, LONGER / 4).is_some(), "another value");
        assert!(ttls.hear(3, OURS).is_none());
        assert_eq!(ttls.differing(), Some(LONGER / 4));
    }
}
