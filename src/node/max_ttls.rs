//! What `max_ttl` other clients of the deployment have, as far as the nodes tell (rule I-37).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorlock_protocol::{Drift, Quarantine, Quorum};

/// Compares the `max_ttl` of a client with those of others, which each leaves at every node when it
/// introduces itself, and lengthens the quarantine where theirs is larger.
#[derive(Debug)]
pub(crate) struct MaxTtls {
    ours: Duration,
    drift: Drift,
    /// How many nodes must tell of a larger one: fewer may all be wrong, and must not silence the others.
    believed_by: usize,
    /// The largest that each node has ever told of. A node that restarts forgets it; this does not.
    told: Mutex<Vec<Duration>>,
    /// The largest of all that is believed, in nanoseconds; 0 while none is larger than ours.
    believed: AtomicU64,
    /// The last that differs from ours, in nanoseconds; 0 for none.
    differs: AtomicU64,
}

impl MaxTtls {
    pub(crate) fn new(ours: Duration, drift: Drift, quorum: Quorum) -> MaxTtls {
        MaxTtls {
            ours,
            drift,
            believed_by: quorum.blocking(),
            told: Mutex::new(vec![Duration::ZERO; quorum.nodes()]),
            believed: AtomicU64::new(0),
            differs: AtomicU64::new(0),
        }
    }

    /// As it is noted at the nodes.
    pub(crate) fn ours(&self) -> Duration {
        self.ours
    }

    /// The node at `index` has told which one other clients have. Returns it where it is not ours, the
    /// first time that it is told by any.
    pub(crate) fn hear(&self, index: usize, theirs: Duration) -> Option<Duration> {
        if millis(theirs) == millis(self.ours) {
            return None;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(largest) = told.get_mut(index) {
            *largest = theirs.max(*largest);
        }
        let mut sorted = told.clone();
        drop(told);
        sorted.sort_unstable_by(|one, two| two.cmp(one));
        let believed = sorted.get(self.believed_by.saturating_sub(1)).copied().unwrap_or_default();
        if believed > self.ours {
            self.believed.store(nanos(believed), Ordering::Relaxed);
        }
        let is_new = self.differs.swap(nanos(theirs), Ordering::Relaxed) != nanos(theirs);
        is_new.then_some(theirs)
    }

    /// The last that differs from ours.
    pub(crate) fn differing(&self) -> Option<Duration> {
        let differs = self.differs.load(Ordering::Relaxed);
        (differs > 0).then(|| Duration::from_nanos(differs))
    }

    /// The quarantine, long enough for the locks of others as well. `ours` is none where the guard is off.
    pub(crate) fn quarantine(&self, ours: Quarantine) -> Quarantine {
        match self.believed.load(Ordering::Relaxed) {
            0 => ours,
            believed => Quarantine::new(Duration::from_nanos(believed), self.drift),
        }
    }
}

/// What `max_ttl` the clients of a deployment have, as one node tells.
///
/// A node that restarts is not counted for as long as a lock may last, so all clients must have the same
/// [`max_ttl`](crate::Builder::max_ttl). So a node should keep a note of it at its store: each client that
/// connects reads it, says what it has read by [`hear`](MaxTtlNotes::hear), and notes its own if that is larger.
#[derive(Clone, Debug)]
pub struct MaxTtlNotes {
    all: Arc<MaxTtls>,
    node: usize,
}

impl MaxTtlNotes {
    pub(crate) fn of(all: &Arc<MaxTtls>, node: usize) -> MaxTtlNotes {
        MaxTtlNotes { all: Arc::clone(all), node }
    }

    /// That of this client, to be noted at the store.
    #[must_use]
    pub fn ours(&self) -> Duration {
        self.all.ours()
    }

    /// The store has told which one other clients have. To be called before the first vote of a connection
    /// counts: where theirs is larger, restarted nodes are not counted for longer. Returns theirs if it is
    /// not ours, the first time that any node tells it: the node may warn then.
    /// [`Coordinator::warnings`](crate::Coordinator::warnings) has it as a finding.
    #[expect(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn hear(&self, theirs: Duration) -> Option<Duration> {
        self.all.hear(self.node, theirs)
    }
}

/// As it is noted at the nodes.
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
    fn i37_a_larger_max_ttl_lengthens_the_quarantine_once_more_nodes_tell_of_it_than_may_be_wrong() {
        let (ttls, before) = (of_five(), length(&of_five()));
        for node in [0, 1, 1] {
            ttls.hear(node, Duration::MAX);
            assert_eq!(length(&ttls), before, "a minority may be wrong");
        }
        ttls.hear(4, LONGER);
        assert_eq!(
            length(&ttls),
            Quarantine::new(LONGER, Drift::default()).length(),
            "all three say as much"
        );
        ttls.hear(4, OURS);
        ttls.hear(4, Duration::from_secs(1));
        assert_eq!(length(&ttls), Quarantine::new(LONGER, Drift::default()).length(), "it is not forgotten");
    }

    #[test]
    fn a_different_max_ttl_is_told_of_once_and_stays_found() {
        let ttls = of_five();
        assert!(ttls.hear(0, OURS).is_none() && ttls.differing().is_none());
        assert!(ttls.hear(0, LONGER).is_some());
        assert!(ttls.hear(1, LONGER).is_none(), "each node tells of it");
        assert!(ttls.hear(2, LONGER / 4).is_some(), "another one");
        assert!(ttls.hear(3, OURS).is_none());
        assert_eq!(ttls.differing(), Some(LONGER / 4));
    }
}
