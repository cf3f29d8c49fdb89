//! How each node stands, as it has told: for health, metrics and the log.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::{debug, info, warn};

use crate::node::max_ttls::MaxTtls;
use crate::node::{Contact, Instance, NodeError, Watcher};
use crate::protocol::{Moment, Quarantine};
use crate::runtime::clock::Clock;
use crate::telemetry::NodeMeter;

/// How one node stands.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct NodeHealth {
    /// The node's name: its address without the password.
    pub node: Arc<str>,
    /// Whether it can be asked, and whether its vote counts.
    pub condition: Condition,
    /// For how long it has been connected, stalled or unreachable.
    pub lasted: Duration,
    /// The server process that answered last, if one ever has.
    pub instance: Option<Arc<Instance>>,
    /// How often another process was found at its address.
    pub restarts: u64,
    /// The smoothed round trip, once it has answered.
    pub round_trip: Option<Duration>,
}

/// Whether a node can be asked, and whether its vote counts.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Condition {
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
        write!(f, "{}: {}", self.node, self.condition)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Unknown => f.write_str("not contacted yet"),
            Condition::Connected => f.write_str("connected"),
            Condition::Quarantined { left } => {
                let left = crate::duration::format(*left);
                write!(f, "connected, restarted too recently to vote: {left} to go (restart guard)")
            }
            Condition::Partial { reason } => write!(f, "in part, {reason:#}"),
            Condition::Stalled { reason } => write!(f, "stalled, {reason:#}"),
            Condition::Unreachable { reason } => write!(f, "{reason:#}"),
        }
    }
}

/// Where what the nodes tell is written down.
#[derive(Debug)]
pub(crate) struct StatusBoard {
    inside: Mutex<Inside>,
    /// By our own settings, and what other clients have said.
    quarantine: (Quarantine, Arc<MaxTtls>),
    /// Not a `watch` channel: that wakes those who wait in random order, which no seed reproduces.
    pub(crate) news: Notify,
}

#[derive(Debug)]
struct Inside {
    seats: Vec<NodeEntry>,
    /// Counts the changes.
    version: u64,
    closed: bool,
}

/// What one node has told.
#[derive(Clone, Debug)]
struct NodeEntry {
    contact: Option<Contact>,
    /// When it came to stand so.
    since: Moment,
    instance: Option<Arc<Instance>>,
    restarts: u64,
}

impl StatusBoard {
    pub(crate) fn new(nodes: usize, quarantine: (Quarantine, Arc<MaxTtls>), now: Moment) -> Arc<StatusBoard> {
        let seat = NodeEntry { contact: None, since: now, instance: None, restarts: 0 };
        // The first version is new to nobody: there is nothing to tell.
        let inside = Inside { seats: vec![seat; nodes], version: 0, closed: false };
        Arc::new(StatusBoard { inside: Mutex::new(inside), quarantine, news: Notify::new() })
    }

    /// How each node stands at `now`; `known` has its name and its round trip.
    pub(crate) fn each(
        &self,
        now: Moment,
        known: impl Fn(usize) -> (Arc<str>, Option<Duration>),
    ) -> Vec<NodeHealth> {
        let node = |(index, seat): (usize, &NodeEntry)| {
            let (node, round_trip) = known(index);
            NodeHealth {
                node,
                condition: seat.condition(self.quarantine(), now),
                lasted: now.since(seat.since),
                instance: seat.instance.clone(),
                restarts: seat.restarts,
                round_trip,
            }
        };
        self.inside().seats.iter().enumerate().map(node).collect()
    }

    /// How many changes there have been, and when the first of the quarantines ends that run at `now`.
    pub(crate) fn version(&self, now: Moment) -> (u64, Option<Moment>) {
        let inside = self.inside();
        let left = |seat: &NodeEntry| seat.quarantine_left(self.quarantine(), now);
        (inside.version, inside.seats.iter().filter_map(left).min().map(|left| now + left))
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

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeEntry {
    fn condition(&self, quarantine: Quarantine, now: Moment) -> Condition {
        match (&self.contact, self.quarantine_left(quarantine, now)) {
            (None, _) => Condition::Unknown,
            (Some(Contact::Connected(_)), Some(left)) => Condition::Quarantined { left },
            (Some(Contact::Connected(_)), None) => Condition::Connected,
            (Some(Contact::Partial(reason)), _) => Condition::Partial { reason: reason.clone() },
            (Some(Contact::Stalled(reason)), _) => Condition::Stalled { reason: reason.clone() },
            (Some(Contact::Lost(reason) | Contact::Ended(reason)), _) => {
                Condition::Unreachable { reason: reason.clone() }
            }
        }
    }

    fn quarantine_left(&self, quarantine: Quarantine, now: Moment) -> Option<Duration> {
        let Some(Contact::Connected(instance)) = &self.contact else { return None };
        let left = instance.stands_aside(quarantine, now);
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

impl Watcher for NodeMonitor {
    fn see(&self, contact: Contact) {
        if let Contact::Ended(_) = &contact {
            // The next call connects again, and waits for that as the first one has.
            self.introduced.store(false, Ordering::Release);
        }
        let now = self.clock.now();
        let mut inside = self.board.inside();
        let Some(seat) = inside.seats.get_mut(self.index) else { return };
        if seat.contact.as_ref() == Some(&contact) {
            return debug!(node = %self.name, %contact, "still as before");
        }
        let before = seat.contact.replace(contact.clone());
        let same_kind = before.as_ref().map(std::mem::discriminant) == Some(std::mem::discriminant(&contact));
        if !same_kind {
            seat.since = now;
        }
        let mut restarted = false;
        if let Contact::Connected(instance) = &contact {
            let last = seat.instance.replace(Arc::clone(instance));
            restarted = last.is_some_and(|last| last.id != instance.id);
            seat.restarts += u64::from(restarted);
        }
        let left = seat.quarantine_left(self.board.quarantine(), now);
        inside.version += 1;
        drop(inside);
        self.board.news.notify_waiters();
        self.count(before.as_ref(), &contact, restarted, left);
        self.report(before.as_ref(), &contact, restarted, left);
    }
}

impl NodeMonitor {
    fn count(&self, before: Option<&Contact>, contact: &Contact, restarted: bool, left: Option<Duration>) {
        match contact {
            Contact::Connected(_) if matches!(before, Some(Contact::Stalled(_))) => {
                self.meter.answers_again();
            }
            Contact::Connected(_) => {
                self.meter.connected();
                if let Some(left) = left {
                    self.meter.votes_from(self.clock.wall() + left);
                }
                if restarted {
                    self.meter.restarted();
                }
            }
            Contact::Stalled(_) => self.meter.stalled(),
            Contact::Partial(_) => self.meter.connected(),
            Contact::Lost(_) | Contact::Ended(_) => self.meter.down(),
        }
    }

    /// One warning for each outage, and another if it turns out that somebody has to act.
    fn report(&self, before: Option<&Contact>, contact: &Contact, restarted: bool, left: Option<Duration>) {
        let node = &*self.name;
        match contact {
            Contact::Connected(_) if matches!(before, Some(Contact::Stalled(_))) => {
                info!(node, "answers again");
            }
            Contact::Connected(instance) => {
                info!(node, instance = &*instance.id, age = ?instance.age, restarted, "connected");
                if let Some(left) = left {
                    let left = crate::duration::format(left);
                    warn!(node, %left, "restarted too recently, so its vote does not count yet");
                }
            }
            Contact::Partial(reason) => {
                warn!(node, reason = format_args!("{reason:#}"), "some of its servers are away");
            }
            Contact::Stalled(reason) => {
                warn!(node, reason = format_args!("{reason:#}"), "stalled; it is not asked until it answers");
            }
            Contact::Lost(trouble) if matches!(before, Some(Contact::Lost(_))) && !trouble.is_permanent() => {
                debug!(node, trouble = format_args!("{trouble:#}"), "still down");
            }
            Contact::Lost(trouble) => {
                warn!(
                    node,
                    trouble = format_args!("{trouble:#}"),
                    "down; it is dialled again until it answers"
                );
            }
            Contact::Ended(_) => debug!(node, "disconnected"),
        }
    }
}

impl fmt::Debug for NodeMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Eye").field("node", &self.name).finish_non_exhaustive()
    }
}
