//! The nodes of a deployment, as rounds ask them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::alarm::Alarms;
use crate::clock::Clock;
use crate::health::{Board, Eye};
use crate::max_ttls::MaxTtls;
use crate::meter::NodeMeter;
use crate::node::Node;
use crate::protocol::{Quarantine, Quorum, node_limit, smoothed};

/// The nodes of a deployment, and what is needed to count their votes.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(super) members: Vec<Member>,
    pub(crate) quorum: Quorum,
    pub(crate) clock: Arc<dyn Clock>,
    /// By our own settings.
    quarantine: Quarantine,
    /// What other clients have said.
    pub(crate) max_ttls: Arc<MaxTtls>,
    /// How long a round waits for a node whose round trip is short.
    pub(crate) base_limit: Duration,
    pub(crate) board: Arc<Board>,
    pub(crate) alarms: Arc<Alarms>,
    /// Whether the next round need not wait for connections.
    pub(crate) introduced: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) node: Arc<dyn Node>,
    pub(super) name: Arc<str>,
    /// The smoothed round trip in nanoseconds; 0 before the first answer.
    round_trip: AtomicU64,
    pub(super) meter: Arc<NodeMeter>,
}

impl Nodes {
    pub(crate) fn new(
        nodes: Vec<Arc<dyn Node>>,
        quorum: Quorum,
        clock: Arc<dyn Clock>,
        (quarantine, max_ttls): (Quarantine, Arc<MaxTtls>),
        base_limit: Duration,
    ) -> Nodes {
        let board = Board::new(nodes.len(), (quarantine, max_ttls.clone()), clock.now());
        let introduced = Arc::<AtomicBool>::default();
        let member = |(index, node): (usize, Arc<dyn Node>)| {
            let (name, meter) = (Arc::<str>::from(node.name()), NodeMeter::new(node.name()));
            node.observe(Arc::new(Eye {
                board: board.clone(),
                index,
                name: name.clone(),
                meter: meter.clone(),
                clock: clock.clone(),
                introduced: introduced.clone(),
            }));
            Member { node, name, round_trip: AtomicU64::new(0), meter }
        };
        let members = nodes.into_iter().enumerate().map(member).collect();
        let alarms = Alarms::new(clock.clone());
        Nodes { members, quorum, clock, quarantine, max_ttls, base_limit, board, alarms, introduced }
    }

    /// The same, each as `made` of the node that it is here, and counted as that.
    pub(crate) fn each(&self, made: impl Fn(Arc<dyn Node>) -> Arc<dyn Node>) -> Nodes {
        let member = |known: &Member| Member {
            node: made(known.node.clone()),
            name: known.name.clone(),
            round_trip: AtomicU64::new(known.round_trip.load(Ordering::Relaxed)),
            meter: known.meter.clone(),
        };
        Nodes {
            members: self.members.iter().map(member).collect(),
            quorum: self.quorum,
            clock: self.clock.clone(),
            quarantine: self.quarantine,
            max_ttls: self.max_ttls.clone(),
            base_limit: self.base_limit,
            // How they stand is seen where they came from.
            board: Board::new(0, (self.quarantine, self.max_ttls.clone()), self.clock.now()),
            alarms: self.alarms.clone(),
            introduced: self.introduced.clone(),
        }
    }

    /// For how long a node that restarted does not vote, by all that is known.
    pub(crate) fn quarantine(&self) -> Quarantine {
        self.max_ttls.quarantine(self.quarantine)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Node>> {
        self.members.iter().map(|member| &member.node)
    }

    /// The smoothed round trip of the node at `index`, once it has answered.
    pub(crate) fn round_trip(&self, index: usize) -> Option<Duration> {
        let nanos = self.members.get(index)?.round_trip.load(Ordering::Relaxed);
        (nanos > 0).then_some(Duration::from_nanos(nanos))
    }

    pub(crate) fn name(&self, index: usize) -> Arc<str> {
        self.members.get(index).map_or_else(|| "?".into(), |member| member.name.clone())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.board.close();
    }
}

impl Member {
    pub(super) fn limit(&self, base: Duration, ttl: Duration) -> Duration {
        node_limit(base, Duration::from_nanos(self.round_trip.load(Ordering::Relaxed)), ttl)
    }

    pub(super) fn answered_after(&self, sample: Duration) {
        let old = Duration::from_nanos(self.round_trip.load(Ordering::Relaxed));
        let new = u64::try_from(smoothed(old, sample).as_nanos()).unwrap_or(u64::MAX);
        // Two answers at once may lose one sample; the next one makes up for it.
        self.round_trip.store(new, Ordering::Relaxed);
    }
}
