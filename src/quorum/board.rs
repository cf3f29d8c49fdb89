//! How each node stands, as it has told: for health, metrics and the log.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::{debug, info, warn};

use crate::node::max_ttls::MaxTtls;
use crate::node::{ConnectionState, Identity, NodeError, StatusListener};
use crate::runtime::clock::Clock;
use crate::telemetry::NodeMeter;
use quorlock_protocol::{Moment, Quarantine};

/// How one node stands.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct NodeHealth {
    /// The node's name: its address without the password.
    pub node: Arc<str>,
    /// Whether it can be asked, and whether its vote counts.
    pub status: NodeStatus,
    /// For how long it has been connected, stalled or unreachable.
    pub lasted: Duration,
    /// The history of data that answered last, if one ever has: of a Redis server, its process.
    pub identity: Option<Arc<Identity>>,
    /// How often another process was found at its address.
    pub restarts: u64,
    /// The smoothed round trip, once it has answered.
    pub round_trip: Option<Duration>,
}

/// Whether a node can be asked, and whether its vote counts.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NodeStatus {
    /// It has not been contacted yet, or is a node of a kind that does not tell.
    Unknown,
    /// It answers, and votes.
    Connected,
    /// It answers, but has restarted too recently for its vote to count.
    Quarantined {
        /// For so much longer.
        left: Duration,
    },
    /// Some of the servers that it is made of answer, and vote for the keys that are there.
    Partial {
        /// Which do not, and why.
        reason: NodeError,
    },
    /// Its connection is open, and it does not answer.
    Stalled {
        /// For how long it had not when that was noticed.
        reason: NodeError,
    },
    /// There is no connection.
    Unreachable {
        /// Why there is none.
        reason: NodeError,
    },
}

impl fmt::Display for NodeHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.status)
    }
}

impl fmt::Display for NodeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeStatus::Unknown => f.write_str("not contacted yet"),
            NodeStatus::Connected => f.write_str("connected"),
            NodeStatus::Quarantined { left } => {
                let left = crate::duration::format(*left);
                write!(f, "connected, restarted too recently to vote: {left} to go (restart guard)")
            }
            NodeStatus::Partial { reason } => write!(f, "in part, {reason:#}"),
            NodeStatus::Stalled { reason } => write!(f, "stalled, {reason:#}"),
            NodeStatus::Unreachable { reason } => write!(f, "{reason:#}"),
        }
    }
}

/// Where what the nodes tell is written down.
#[derive(Debug)]
pub(crate) struct StatusBoard {
    inside: Mutex<Inner>,
    /// By our own settings, and what other clients have said.
    quarantine: (Quarantine, Arc<MaxTtls>),
    /// Not a `watch` channel: that wakes those who wait in random order, which no seed reproduces.
    pub(crate) news: Notify,
}

#[derive(Debug)]
struct Inner {
    nodes: Vec<NodeEntry>,
    /// Counts the changes.
    version: u64,
    closed: bool,
}

/// What one node has told.
#[derive(Clone, Debug)]
struct NodeEntry {
    contact: Option<ConnectionState>,
    /// When it came to stand so.
    since: Moment,
    identity: Option<Arc<Identity>>,
    restarts: u64,
}

impl StatusBoard {
    pub(crate) fn new(nodes: usize, quarantine: (Quarantine, Arc<MaxTtls>), now: Moment) -> Arc<StatusBoard> {
        let entry = NodeEntry { contact: None, since: now, identity: None, restarts: 0 };
        // The first version is new to nobody: there is nothing to tell.
        let inside = Inner { nodes: vec![entry; nodes], version: 0, closed: false };
        Arc::new(StatusBoard { inside: Mutex::new(inside), quarantine, news: Notify::new() })
    }

    /// How each node stands at `now`; `known` has its name and its round trip.
    pub(crate) fn each(
        &self,
        now: Moment,
        known: impl Fn(usize) -> (Arc<str>, Option<Duration>),
    ) -> Vec<NodeHealth> {
        let node = |(index, entry): (usize, &NodeEntry)| {
            let (node, round_trip) = known(index);
            NodeHealth {
                node,
                status: entry.status(self.quarantine(), now),
                lasted: now.since(entry.since),
                identity: entry.identity.clone(),
                restarts: entry.restarts,
                round_trip,
            }
        };
        self.inside().nodes.iter().enumerate().map(node).collect()
    }

    /// How many changes there have been, and when the first of the quarantines ends that run at `now`.
    pub(crate) fn version(&self, now: Moment) -> (u64, Option<Moment>) {
        let inside = self.inside();
        let left = |entry: &NodeEntry| entry.quarantine_left(self.quarantine(), now);
        (inside.version, inside.nodes.iter().filter_map(left).min().map(|left| now + left))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inside().closed
    }

    fn quarantine(&self) -> Quarantine {
        let (ours, max_ttls) = &self.quarantine;
        max_ttls.quarantine(*ours)
    }

    /// There is nothing more to come.
    pub(crate) fn close(&self) {
        self.inside().closed = true;
        self.news.notify_waiters();
    }

    fn inside(&self) -> MutexGuard<'_, Inner> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeEntry {
    fn status(&self, quarantine: Quarantine, now: Moment) -> NodeStatus {
        match (&self.contact, self.quarantine_left(quarantine, now)) {
            (None, _) => NodeStatus::Unknown,
            (Some(ConnectionState::Connected(_)), Some(left)) => NodeStatus::Quarantined { left },
            (Some(ConnectionState::Connected(_)), None) => NodeStatus::Connected,
            (Some(ConnectionState::Partial(reason)), _) => NodeStatus::Partial { reason: reason.clone() },
            (Some(ConnectionState::Stalled(reason)), _) => NodeStatus::Stalled { reason: reason.clone() },
            (Some(ConnectionState::Lost(reason) | ConnectionState::Ended(reason)), _) => {
                NodeStatus::Unreachable { reason: reason.clone() }
            }
        }
    }

    fn quarantine_left(&self, quarantine: Quarantine, now: Moment) -> Option<Duration> {
        let Some(ConnectionState::Connected(identity)) = &self.contact else { return None };
        let left = identity.stands_aside(quarantine, now);
        (!left.is_zero()).then_some(left)
    }
}

/// Observes one node for the board, the metrics and the log.
pub(crate) struct NodeMonitor {
    pub(crate) board: Arc<StatusBoard>,
    pub(crate) index: usize,
    pub(crate) name: Arc<str>,
    pub(crate) meter: Arc<NodeMeter>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether the next round need not wait for connections.
    pub(crate) introduced: Arc<AtomicBool>,
}

impl StatusListener for NodeMonitor {
    fn on_status(&self, contact: ConnectionState) {
        if let ConnectionState::Ended(_) = &contact {
            // The next call connects again, and waits for that as the first one has.
            self.introduced.store(false, Ordering::Release);
        }
        let now = self.clock.now();
        let mut inside = self.board.inside();
        let Some(entry) = inside.nodes.get_mut(self.index) else { return };
        if entry.contact.as_ref() == Some(&contact) {
            return debug!(node = %self.name, %contact, "still as before");
        }
        let before = entry.contact.replace(contact.clone());
        let same_kind = before.as_ref().map(std::mem::discriminant) == Some(std::mem::discriminant(&contact));
        if !same_kind {
            entry.since = now;
        }
        let mut restarted = false;
        if let ConnectionState::Connected(identity) = &contact {
            let last = entry.identity.replace(Arc::clone(identity));
            restarted = last.is_some_and(|last| last.id != identity.id);
            entry.restarts += u64::from(restarted);
        }
        let left = entry.quarantine_left(self.board.quarantine(), now);
        inside.version += 1;
        drop(inside);
        self.board.news.notify_waiters();
        self.count(before.as_ref(), &contact, restarted, left);
        self.report(before.as_ref(), &contact, restarted, left);
    }
}

impl NodeMonitor {
    fn count(
        &self,
        before: Option<&ConnectionState>,
        contact: &ConnectionState,
        restarted: bool,
        left: Option<Duration>,
    ) {
        match contact {
            ConnectionState::Connected(_) if matches!(before, Some(ConnectionState::Stalled(_))) => {
                self.meter.answers_again();
            }
            ConnectionState::Connected(_) => {
                self.meter.connected();
                if let Some(left) = left {
                    self.meter.votes_from(self.clock.wall() + left);
                }
                if restarted {
                    self.meter.restarted();
                }
            }
            ConnectionState::Stalled(_) => self.meter.stalled(),
            ConnectionState::Partial(_) => self.meter.connected(),
            ConnectionState::Lost(_) | ConnectionState::Ended(_) => self.meter.down(),
        }
    }

    /// One warning for each outage, and another if it turns out that somebody has to act.
    fn report(
        &self,
        before: Option<&ConnectionState>,
        contact: &ConnectionState,
        restarted: bool,
        left: Option<Duration>,
    ) {
        let node = &*self.name;
        match contact {
            ConnectionState::Connected(_) if matches!(before, Some(ConnectionState::Stalled(_))) => {
                info!(node, "answers again");
            }
            ConnectionState::Connected(identity) => {
                info!(node, identity = &*identity.id, age = ?identity.age, restarted, "connected");
                if let Some(left) = left {
                    let left = crate::duration::format(left);
                    warn!(node, %left, "restarted too recently, so its vote does not count yet");
                }
            }
            ConnectionState::Partial(reason) => {
                warn!(node, reason = format_args!("{reason:#}"), "some of its servers are away");
            }
            ConnectionState::Stalled(reason) => {
                warn!(node, reason = format_args!("{reason:#}"), "stalled; it is not asked until it answers");
            }
            ConnectionState::Lost(trouble)
                if matches!(before, Some(ConnectionState::Lost(_))) && !trouble.is_permanent() =>
            {
                debug!(node, trouble = format_args!("{trouble:#}"), "still down");
            }
            ConnectionState::Lost(trouble) => {
                warn!(
                    node,
                    trouble = format_args!("{trouble:#}"),
                    "down; it is dialled again until it answers"
                );
            }
            ConnectionState::Ended(_) => debug!(node, "disconnected"),
        }
    }
}

impl fmt::Debug for NodeMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeMonitor").field("node", &self.name).finish_non_exhaustive()
    }
}
