//! The nodes of a deployment, as rounds use them.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::board::{NodeMonitor, StatusBoard};
use super::ordered::in_order;
use crate::duration;
use crate::node::catch_panic::Contained;
use crate::node::max_ttls::MaxTtls;
use crate::node::{Capabilities, Capability, Grants, Node, NodeError, NodeErrorKind, Reach, Request};
use crate::runtime::entropy::Entropy;
use crate::runtime::timer::Timers;
use crate::runtime::{Mutex, clock::Clock};
use crate::telemetry::NodeMeter;
use quorlock_protocol::machine::{Deployment, LEAST_PATIENCE};
use quorlock_protocol::{Quarantine, Quorum, RoundTrip, node_timeout, overdue_after};

/// The nodes of a deployment, with what is needed to count their votes.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(super) members: Vec<NodeHandle>,
    /// The capabilities that all of them have; first come, first served, if one of them serves so; of one host, if the
    /// only one is.
    pub(crate) capabilities: Capabilities,
    pub(crate) quorum: Quorum,
    pub(crate) clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    /// The quarantine by our own settings.
    quarantine: Quarantine,
    /// The `max_ttl` of other clients.
    pub(crate) max_ttls: Arc<MaxTtls>,
    /// The node timeout, if one was configured.
    pub(crate) set_timeout: Option<Duration>,
    pub(crate) board: Arc<StatusBoard>,
    pub(crate) timers: Arc<Timers>,
    /// Whether the next round need not wait for connections.
    pub(crate) introduced: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(super) struct NodeHandle {
    pub(super) node: Arc<dyn Node>,
    pub(super) name: Arc<str>,
    measured: Measured,
    /// Until when it is not asked to queue waiters, in nanoseconds.
    skipped_until: AtomicU64,
    pub(super) monitor: Arc<NodeMonitor>,
}

impl Nodes {
    pub(crate) fn new(
        nodes: Vec<Arc<dyn Node>>,
        quorum: Quorum,
        (clock, entropy): (Arc<dyn Clock>, Arc<dyn Entropy>),
        (quarantine, max_ttls): (Quarantine, Arc<MaxTtls>),
        set_timeout: Option<Duration>,
    ) -> Nodes {
        let names: Vec<Arc<str>> = nodes.iter().map(|node| node.name().into()).collect();
        let board = StatusBoard::new(names.iter().cloned(), (quarantine, max_ttls.clone()), clock.now());
        let introduced = Arc::<AtomicBool>::default();
        let member = |(index, node): (usize, Arc<dyn Node>)| {
            let (name, meter) = (Arc::<str>::from(node.name()), NodeMeter::new(node.name()));
            let monitor = Arc::new(NodeMonitor {
                board: board.clone(),
                index,
                name: name.clone(),
                meter,
                clock: clock.clone(),
                introduced: introduced.clone(),
                refusing: Mutex::default(),
                refuses: AtomicBool::default(),
            });
            node.observe(Arc::new(Contained(monitor.clone())));
            NodeHandle {
                node: in_order(node),
                name,
                measured: Measured::default(),
                skipped_until: AtomicU64::new(0),
                monitor,
            }
        };
        let members: Vec<_> = nodes.into_iter().enumerate().map(member).collect();
        let able = |capability: &Capability| members.iter().all(|member| member.can(*capability));
        let capabilities =
            Capability::ALL.into_iter().filter(able).fold(Capabilities::default(), Capabilities::with);
        let first_come = |member: &NodeHandle| member.node.capabilities().grants == Grants::FirstCome;
        let capabilities =
            if members.iter().any(first_come) { capabilities.first_come() } else { capabilities };
        let of_one_host = |member: &NodeHandle| member.node.capabilities().reach == Reach::OneHost;
        let capabilities =
            if members.iter().any(of_one_host) { capabilities.of_one_host() } else { capabilities };
        let timers = Timers::new(clock.clone());
        Nodes {
            members,
            capabilities,
            quorum,
            clock,
            entropy,
            quarantine,
            max_ttls,
            set_timeout,
            board,
            timers,
            introduced,
        }
    }

    /// Returns the same nodes, each wrapped by `made`, with the same names, metrics and log.
    pub(crate) fn each(&self, made: impl Fn(Arc<dyn Node>) -> Arc<dyn Node>) -> Nodes {
        let member = |known: &NodeHandle| NodeHandle {
            node: made(known.node.clone()),
            name: known.name.clone(),
            measured: Measured::of(known.measured.get()),
            skipped_until: AtomicU64::new(0),
            monitor: known.monitor.clone(),
        };
        Nodes {
            members: self.members.iter().map(member).collect(),
            capabilities: self.capabilities,
            quorum: self.quorum,
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
            quarantine: self.quarantine,
            max_ttls: self.max_ttls.clone(),
            set_timeout: self.set_timeout,
            // Their status is recorded on the original board.
            board: StatusBoard::new(
                iter::empty(),
                (self.quarantine, self.max_ttls.clone()),
                self.clock.now(),
            ),
            timers: self.timers.clone(),
            introduced: self.introduced.clone(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Node>> {
        self.members.iter().map(|member| &member.node)
    }

    /// Whether the node at `index` has this capability.
    pub(crate) fn can(&self, index: usize, capability: Capability) -> bool {
        self.members.get(index).is_some_and(|member| member.can(capability))
    }

    /// Returns the name of a node without this capability.
    pub(crate) fn without(&self, capability: Capability) -> Option<Arc<str>> {
        if self.capabilities.has(capability) {
            return None;
        }
        self.members.iter().find(|member| !member.can(capability)).map(|member| member.name.clone())
    }

    /// Returns the name of a node that serves waiters in the order in which they entered a queue of its own.
    pub(crate) fn in_order_of_entry(&self) -> Option<Arc<str>> {
        let in_order = |member: &&NodeHandle| member.node.capabilities().grants == Grants::FirstCome;
        self.members.iter().find(in_order).map(|member| member.name.clone())
    }

    /// Returns the shortest TTL that a quorum of the nodes supports, as far as they know, and the name of a node that supports
    /// no shorter one. A minority with longer ones is [not asked](Nodes::unsupported).
    pub(crate) fn least_ttl(&self) -> Option<(Duration, Arc<str>)> {
        let mut least: Vec<_> = self.members.iter().map(|member| member.node.limits().least_ttl).collect();
        least.sort_unstable();
        let least = *least.get(self.quorum.needed() - 1)?;
        let member = self.members.iter().rfind(|member| member.node.limits().least_ttl == least)?;
        (!least.is_zero()).then(|| (least, member.name.clone()))
    }

    /// Returns why the node is not asked to store a token for as short a time as this request wants, if it is not. A
    /// lease that no quorum could acquire any more, since the limits of its nodes have grown, is renewed all the same.
    pub(super) fn unsupported(&self, member: &NodeHandle, request: &Request) -> Option<NodeError> {
        let (Request::Acquire { ttl, .. } | Request::Transfer { ttl, .. } | Request::Renew { ttl, .. }) =
            request
        else {
            return None;
        };
        let least = member.node.limits().least_ttl;
        let is_kept = || {
            matches!(request, Request::Renew { .. })
                && self.least_ttl().is_some_and(|(least, _)| *ttl < least)
        };
        if *ttl >= least || is_kept() {
            return None;
        }
        let [ttl, least] = [*ttl, least].map(duration::format);
        let reason =
            format!("it keeps keys for at least {least}, longer than the TTL of {ttl}; use a longer TTL");
        Some(NodeError::Failed { kind: NodeErrorKind::Unsupported, reason: reason.into() })
    }

    /// Returns the oldest moment from which a grant may count, as an age, and the name of the node that makes it so old.
    pub(crate) fn oldest_grant(&self, ttl: Duration) -> Option<(Duration, &Arc<str>)> {
        let ages = self.members.iter().map(|member| (member.node.grant_age(ttl), &member.name));
        ages.max_by_key(|(age, _)| *age)
    }

    /// Returns the round trip time of the node at `index`, once it has been measured.
    pub(crate) fn round_trip(&self, index: usize) -> Option<RoundTrip> {
        self.members.get(index)?.round_trip()
    }

    /// Keeps waiters of this process out of the queue of the node at `index` for `time`, because it
    /// did not answer one.
    pub(crate) fn skip_for(&self, index: usize, time: Duration) {
        if let Some(member) = self.members.get(index) {
            member.skipped_until.store((self.clock.now() + time).nanos(), Ordering::Relaxed);
        }
    }

    /// Whether that is in effect.
    pub(crate) fn is_skipped(&self, index: usize) -> bool {
        let until = self.members.get(index).map_or(0, |member| member.skipped_until.load(Ordering::Relaxed));
        until > 0 && self.clock.now().nanos() < until
    }

    /// Returns the time in which a quorum answers, as far as the nodes have been measured.
    pub(crate) fn quorum_round_trip(&self) -> Duration {
        let measured = self.members.iter().filter_map(NodeHandle::round_trip);
        let mut trips: Vec<_> = measured.map(RoundTrip::smoothed).collect();
        trips.sort_unstable();
        trips.get(self.quorum.needed() - 1).copied().unwrap_or_default()
    }

    /// Returns the timeout of this node in a round.
    fn limit(&self, member: &NodeHandle, ttl: Duration) -> Duration {
        node_timeout(self.limit_of(member), self.expected(member), ttl)
    }

    /// Returns the timeout configured for all nodes, or for this one.
    fn limit_of(&self, member: &NodeHandle) -> Option<Duration> {
        self.set_timeout.or_else(|| member.node.limits().time_limit)
    }

    /// Returns after how long this node is overdue: `least` or longer.
    fn overdue_of(&self, member: &NodeHandle, least: Duration, ttl: Duration) -> Duration {
        let measured = self.expected(member);
        overdue_after(measured, least, node_timeout(self.limit_of(member), measured, ttl))
    }

    /// Returns after how long all nodes are overdue.
    pub(crate) fn all_overdue_after(&self, ttl: Duration) -> Duration {
        let overdue = |member| self.overdue_of(member, LEAST_PATIENCE, ttl);
        self.members.iter().map(overdue).max().unwrap_or_default()
    }

    /// Returns its round trip time. If that has not been measured, it may be as long as the longest
    /// that has.
    fn expected(&self, member: &NodeHandle) -> Option<RoundTrip> {
        let farthest = || {
            let measured = self.members.iter().filter_map(NodeHandle::round_trip);
            measured.max_by_key(|trip| trip.several())
        };
        member.round_trip().or_else(farthest)
    }
}

impl Deployment for Nodes {
    fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// By our settings and those of other clients.
    fn quarantine(&self) -> Quarantine {
        self.max_ttls.quarantine(self.quarantine)
    }

    fn wall(&self) -> Duration {
        self.clock.wall()
    }

    fn is_on_one_host(&self) -> bool {
        self.capabilities.reach == Reach::OneHost
    }

    fn timeout(&self, node: usize, ttl: Duration) -> Duration {
        self.members.get(node).map_or(ttl, |member| self.limit(member, ttl))
    }

    fn overdue_after(&self, node: usize, least: Duration, ttl: Duration) -> Duration {
        self.members.get(node).map_or(least, |member| self.overdue_of(member, least, ttl))
    }

    fn grant_age(&self, ttl: Duration) -> Duration {
        self.oldest_grant(ttl).map_or(Duration::ZERO, |(age, _)| age)
    }

    fn random(&self) -> u64 {
        self.entropy.next_u64()
    }

    fn name(&self, node: usize) -> Arc<str> {
        self.members.get(node).map_or_else(|| "?".into(), |member| member.name.clone())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.board.close();
    }
}

impl NodeHandle {
    fn can(&self, capability: Capability) -> bool {
        self.node.capabilities().has(capability)
    }

    /// The measured round trip time, or that of connecting.
    fn round_trip(&self) -> Option<RoundTrip> {
        self.measured.get().or_else(|| self.node.round_trip().map(RoundTrip::first))
    }

    pub(super) fn answered_after(&self, sample: Duration) {
        let trip = self.round_trip().map_or_else(|| RoundTrip::first(sample), |trip| trip.then(sample));
        self.measured.set(trip);
    }
}

/// The round trip time of a node, as measured by its votes.
#[derive(Debug, Default)]
struct Measured {
    /// In nanoseconds, plus one; 0 before the first answer.
    smoothed: AtomicU64,
    deviation: AtomicU64,
}

impl Measured {
    fn of(trip: Option<RoundTrip>) -> Measured {
        let measured = Measured::default();
        if let Some(trip) = trip {
            measured.set(trip);
        }
        measured
    }

    fn get(&self) -> Option<RoundTrip> {
        let smoothed = self.smoothed.load(Ordering::Relaxed).checked_sub(1)?;
        Some(RoundTrip::of_nanos([smoothed, self.deviation.load(Ordering::Relaxed)]))
    }

    /// Two concurrent answers may lose one sample or mix two; the next one corrects that.
    fn set(&self, trip: RoundTrip) {
        let [smoothed, deviation] = trip.nanos();
        self.deviation.store(deviation, Ordering::Relaxed);
        self.smoothed.store(smoothed.saturating_add(1), Ordering::Relaxed);
    }
}
