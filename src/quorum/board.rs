//! The status of each node, for health reports, metrics and the log.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::{debug, info, trace, warn};

use crate::doctor::{Finding, rules::one_server};
use crate::node::max_ttls::MaxTtls;
use crate::node::{ConnectionState, Identity, NodeError, NodeErrorKind, Response, StatusListener, Vote};
use crate::runtime::{Mutex, clock::Clock};
use crate::telemetry::{NodeMeter, Op};
use quorlock_protocol::{Moment, Quarantine};

/// The health of one node.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct NodeHealth {
    /// The node's name: its address without the password.
    pub node: Arc<str>,
    /// The status of the node, and with it whether its vote counts.
    pub status: NodeStatus,
    /// How long it has had this kind of status; a quarantine that has ended counts as connected.
    pub lasted: Duration,
    /// The data set that last answered, if one ever has: for a Redis server, its process.
    pub identity: Option<Arc<Identity>>,
    /// How often a different process was found at its address.
    pub restarts: u64,
    /// The smoothed round trip time, once it has answered.
    pub round_trip: Option<Duration>,
}

/// Whether a node responds, and whether its vote counts.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NodeStatus {
    /// Not contacted yet, or a kind of node that does not report its status.
    Unknown,
    /// It responds, and its vote counts.
    Connected,
    /// It responds, but restarted or was first used too recently for its vote to count.
    Quarantined {
        /// The remaining time.
        left: Duration,
    },
    /// It responds, but has refused requests, all or some, and has not yet granted for a minute since. Like the warning
    /// in the log, not for a node that is busy for less than ten seconds.
    Refusing {
        /// What it answered when that was noticed.
        reason: NodeError,
    },
    /// Some of its servers respond, and vote for the keys that they store.
    Partial {
        /// Which servers do not, and why.
        reason: NodeError,
    },
    /// Its connection is open, but it does not respond.
    Stalled {
        /// For how long it had not responded when that was noticed.
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
                write!(
                    f,
                    "connected, restarted or first used too recently to vote: {left} to go (restart guard)"
                )
            }
            NodeStatus::Refusing { reason } => write!(f, "connected, but refuses requests: {reason:#}"),
            NodeStatus::Partial { reason } => write!(f, "partially available: {reason:#}"),
            // Without what the error says first: "unreachable" would contradict the open connection.
            NodeStatus::Stalled {
                reason: NodeError::Unresponsive { reason } | NodeError::Unreachable { reason },
            } => {
                write!(f, "not responding: {reason:#}")
            }
            NodeStatus::Stalled { reason } => write!(f, "not responding: {reason:#}"),
            NodeStatus::Unreachable { reason } => write!(f, "{reason:#}"),
        }
    }
}

/// Records the status of the nodes.
#[derive(Debug)]
pub(crate) struct StatusBoard {
    inside: Mutex<Inner>,
    /// The quarantine by our own settings, and the `max_ttl` of other clients.
    quarantine: (Quarantine, Arc<MaxTtls>),
    /// Not a `watch` channel: that wakes tasks in random order, which no seed reproduces.
    pub(crate) news: Notify,
}

#[derive(Debug)]
struct Inner {
    nodes: Vec<NodeEntry>,
    /// The number of changes.
    version: u64,
    closed: bool,
}

/// What is known of one node.
#[derive(Clone, Debug)]
struct NodeEntry {
    name: Arc<str>,
    contact: Option<ConnectionState>,
    /// Why it refuses requests though it answers, as the log has warned.
    refusal: Option<NodeError>,
    /// When this kind of status began.
    since: Moment,
    identity: Option<Arc<Identity>>,
    restarts: u64,
}

impl StatusBoard {
    pub(crate) fn new(
        names: impl Iterator<Item = Arc<str>>,
        quarantine: (Quarantine, Arc<MaxTtls>),
        now: Moment,
    ) -> Arc<StatusBoard> {
        let entry =
            |name| NodeEntry { name, contact: None, refusal: None, since: now, identity: None, restarts: 0 };
        // The first version is no news: nothing has changed yet.
        let inside = Inner { nodes: names.map(entry).collect(), version: 0, closed: false };
        Arc::new(StatusBoard { inside: Mutex::new(inside), quarantine, news: Notify::new() })
    }

    /// Returns the health of each node at `now`.
    pub(crate) fn each(
        &self,
        now: Moment,
        round_trip: impl Fn(usize) -> Option<Duration>,
    ) -> Vec<NodeHealth> {
        let node = |(index, entry): (usize, &NodeEntry)| NodeHealth {
            node: entry.name.clone(),
            status: entry.status(self.quarantine(), now),
            lasted: now.since(entry.since),
            identity: entry.identity.clone(),
            restarts: entry.restarts,
            round_trip: round_trip(index),
        };
        self.inside.lock().nodes.iter().enumerate().map(node).collect()
    }

    /// Returns the number of changes, and when the first quarantine that runs at `now` ends.
    pub(crate) fn version(&self, now: Moment) -> (u64, Option<Moment>) {
        let inside = self.inside.lock();
        let left = |entry: &NodeEntry| entry.quarantine_left(self.quarantine(), now);
        (inside.version, inside.nodes.iter().filter_map(left).min().map(|left| now + left))
    }

    /// Reports connected nodes that are one server, which has one vote.
    pub(crate) fn same_servers(&self) -> Vec<Finding> {
        let inside = self.inside.lock();
        let mut found = Vec::new();
        for finding in inside.nodes.iter().filter_map(|entry| inside.same_server(entry)) {
            if !found.contains(&finding) {
                found.push(finding);
            }
        }
        found
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inside.lock().closed
    }

    fn quarantine(&self) -> Quarantine {
        let (ours, max_ttls) = &self.quarantine;
        max_ttls.quarantine(*ours)
    }

    /// Ends the reports for good.
    pub(crate) fn close(&self) {
        self.inside.lock().closed = true;
        self.news.notify_waiters();
    }
}

impl Inner {
    /// Reports the connected nodes that are one server with the connected node `entry`.
    fn same_server(&self, entry: &NodeEntry) -> Option<Finding> {
        let identity = entry.connected()?;
        let is_one = |other: &&NodeEntry| other.connected().is_some_and(|other| other.is_one_with(identity));
        let names: Vec<&str> = self.nodes.iter().filter(is_one).map(|other| &*other.name).collect();
        (names.len() > 1).then(|| one_server(&names, &identity.id))
    }
}

impl NodeEntry {
    fn connected(&self) -> Option<&Arc<Identity>> {
        match &self.contact {
            Some(ConnectionState::Connected(identity)) => Some(identity),
            _ => None,
        }
    }

    fn status(&self, quarantine: Quarantine, now: Moment) -> NodeStatus {
        match (&self.contact, self.quarantine_left(quarantine, now), &self.refusal) {
            (Some(ConnectionState::Connected(_)), Some(left), _) => NodeStatus::Quarantined { left },
            (None | Some(ConnectionState::Connected(_)), _, Some(reason)) => {
                NodeStatus::Refusing { reason: reason.clone() }
            }
            (None, ..) => NodeStatus::Unknown,
            (Some(ConnectionState::Connected(_)), ..) => NodeStatus::Connected,
            (Some(ConnectionState::Partial(reason)), ..) => NodeStatus::Partial { reason: reason.clone() },
            (Some(ConnectionState::Stalled(reason)), ..) => NodeStatus::Stalled { reason: reason.clone() },
            (Some(ConnectionState::Lost(reason) | ConnectionState::Ended(reason)), ..) => {
                NodeStatus::Unreachable { reason: reason.clone() }
            }
        }
    }

    fn quarantine_left(&self, quarantine: Quarantine, now: Moment) -> Option<Duration> {
        let left = self.connected()?.quarantine_left(quarantine, now);
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
    /// What it refuses though it answers.
    pub(crate) refusing: Mutex<Option<Refusing>>,
    /// Whether there is something: a grant, of which there are many, looks only here.
    pub(crate) refuses: AtomicBool,
}

/// A node refuses requests, all or some.
#[derive(Debug)]
pub(crate) struct Refusing {
    since: Moment,
    last: Moment,
    /// Whether a warning has said so, and then whether of a permanent error.
    warned: Option<bool>,
}

/// How long a node is busy before that is worth a warning: mostly it passes by itself.
const BUSY_FOR: Duration = Duration::from_secs(10);

/// How long a node refuses nothing before a grant ends its refusals: it may refuse some requests only, such as those
/// for one key.
const GRANTS_FOR: Duration = Duration::from_secs(60);

impl StatusListener for NodeMonitor {
    fn on_status(&self, contact: ConnectionState) {
        if let ConnectionState::Ended(_) = &contact {
            // The next call connects again, and waits for it as the first one did.
            self.introduced.store(false, Ordering::Release);
        }
        let now = self.clock.now();
        let mut inside = self.board.inside.lock();
        let Some(entry) = inside.nodes.get_mut(self.index) else { return };
        if entry.contact.as_ref() == Some(&contact) {
            // A program that hears of it may ask for the health of the nodes.
            drop(inside);
            return trace!(node = %self.name, %contact, "status unchanged");
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
        let twice = inside.nodes.get(self.index).and_then(|entry| inside.same_server(entry));
        drop(inside);
        self.board.news.notify_waiters();
        self.report(before.as_ref(), &contact, restarted, left);
        if let Some(Finding { check, evidence, cure, .. }) = twice {
            warn!(node = &*self.name, finding = %check, cure, "{evidence}");
        }
    }
}

impl NodeMonitor {
    /// Logs one warning when the node answers with errors, another if an error turns out to be permanent, and that it
    /// grants again, and notes that in its status. Only of requests that every node with a vote grants.
    pub(crate) fn answered(&self, op: Op, result: &Result<Response, NodeError>, now: Moment) {
        let node = &*self.name;
        match (op, result) {
            (Op::Acquire | Op::Renew, Ok(Response { vote: Vote::Granted | Vote::Restored, .. }))
                if self.refuses.load(Ordering::Relaxed) =>
            {
                let mut refusing = self.refusing.lock();
                let ended = refusing
                    .take_if(|refusing| refusing.warned.is_none() || now.since(refusing.last) >= GRANTS_FOR);
                self.refuses.store(refusing.is_some(), Ordering::Relaxed);
                drop(refusing);
                if ended.is_some_and(|refusing| refusing.warned.is_some()) {
                    self.note_refusal(None, now);
                    info!(node, "grants again");
                }
            }
            (Op::Acquire | Op::Renew | Op::Release, Err(error))
                if self.is_refusal(error) && self.is_news(error, now) =>
            {
                self.note_refusal(Some(error), now);
                warn!(node, error = format_args!("{error:#}"), "answers, but refuses requests");
            }
            _ => {}
        }
    }

    /// Whether the node has answered with this error, of which its status has not warned.
    fn is_refusal(&self, error: &NodeError) -> bool {
        let answers = matches!(
            error,
            NodeError::Failed { .. } | NodeError::Unfit { .. } | NodeError::UnexpectedReply { .. }
        );
        let is_connected = || {
            let board = self.board.inside.lock();
            let contact = board.nodes.get(self.index).and_then(|entry| entry.contact.as_ref());
            matches!(contact, None | Some(ConnectionState::Connected(_)))
        };
        answers && is_connected()
    }

    /// Records a refusal. Returns whether it is worth a warning.
    fn is_news(&self, error: &NodeError, now: Moment) -> bool {
        let mut refusing = self.refusing.lock();
        self.refuses.store(true, Ordering::Relaxed);
        let refusing = refusing.get_or_insert(Refusing { since: now, last: now, warned: None });
        refusing.last = now;
        let passes = matches!(
            error.kind(),
            NodeErrorKind::Busy | NodeErrorKind::TimedOut | NodeErrorKind::Unreachable
        );
        let is_news = match refusing.warned {
            None => !passes || now.since(refusing.since) >= BUSY_FOR,
            Some(permanent) => error.is_permanent() && !permanent,
        };
        if is_news {
            refusing.warned = Some(error.is_permanent());
        }
        is_news
    }

    fn note_refusal(&self, refusal: Option<&NodeError>, now: Moment) {
        let mut inside = self.board.inside.lock();
        let Some(entry) = inside.nodes.get_mut(self.index) else { return };
        if entry.refusal.is_some() != refusal.is_some() {
            entry.since = now;
        }
        entry.refusal = refusal.cloned();
        inside.version += 1;
        drop(inside);
        self.board.news.notify_waiters();
    }

    /// Counts the change, and logs one warning per outage, and another if the error turns out to be permanent.
    fn report(
        &self,
        before: Option<&ConnectionState>,
        contact: &ConnectionState,
        restarted: bool,
        left: Option<Duration>,
    ) {
        use ConnectionState::{Connected, Ended, Lost, Partial, Stalled};
        let (node, meter) = (&*self.name, &self.meter);
        match (contact, before) {
            (Connected(_), Some(Stalled(_))) => {
                meter.answers_again();
                info!(node, "answers again");
            }
            (Connected(identity), _) => {
                // A cluster that answers in part is connected already.
                if matches!(before, Some(Partial(_))) {
                    meter.answers_again();
                } else {
                    meter.connected();
                }
                if restarted {
                    meter.restarted();
                }
                info!(node, identity = &*identity.id, age = ?identity.age, restarted, "connected");
                if let Some(left) = left {
                    meter.votes_from(self.clock.wall() + left);
                    let left = crate::duration::format(left);
                    warn!(node, %left, "restarted or first used too recently; its vote does not count yet");
                }
            }
            (Partial(reason), _) => {
                match before {
                    Some(Connected(_) | Partial(_) | Stalled(_)) => meter.answers_again(),
                    None | Some(Lost(_) | Ended(_)) => meter.connected(),
                }
                if matches!(before, Some(Partial(_))) && !reason.is_permanent() {
                    debug!(node, reason = format_args!("{reason:#}"), "still partially available");
                } else {
                    warn!(
                        node,
                        reason = format_args!("{reason:#}"),
                        "partially available: some of its servers are unreachable"
                    );
                }
            }
            (Stalled(reason), _) => {
                meter.stalled();
                warn!(node, reason = format_args!("{reason:#}"), "not responding; skipped until it answers");
            }
            (Lost(error), _) => {
                meter.down();
                if matches!(before, Some(Lost(_))) && !error.is_permanent() {
                    debug!(node, error = format_args!("{error:#}"), "still unreachable");
                } else {
                    warn!(node, error = format_args!("{error:#}"), "unreachable, reconnecting");
                }
            }
            (Ended(_), _) => {
                meter.down();
                debug!(node, "disconnected");
            }
        }
    }
}

impl fmt::Debug for NodeMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeMonitor").field("node", &self.name).finish_non_exhaustive()
    }
}
