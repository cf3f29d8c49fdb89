//! Handles of the recorder that was installed when they were created, with the feature `metrics`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata};

use super::{At, Loss, Op, Outcome, Passed, Renewed};
use crate::metrics as list;
use crate::metrics::{Kind, Metric, Unit};
use crate::node::{NodeError, NodeErrorKind, Response, Vote};
use crate::runtime::Mutex;
use quorlock_protocol::{Moment, Quorum, Verdict, micros};

/// The metrics of a coordinator, except those of its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Meters {
    unclassed: LockMeter,
    by_class: Arc<Mutex<HashMap<Box<str>, LockMeter>>>,
    write_backs: Counter,
}

impl Meters {
    pub(crate) fn new(quorum: Quorum) -> Meters {
        list::ALL.iter().for_each(describe);
        gauge(&list::QUORUM, &[]).set(small(quorum.needed()));
        let (unclassed, by_class) = (LockMeter::new(""), Arc::default());
        Meters { unclassed, by_class, write_backs: counter(&list::WRITE_BACKS, &[]) }
    }

    /// Returns the metrics of locks of this class; the empty string means no class.
    pub(crate) fn lock(&self, class: &str) -> LockMeter {
        if class.is_empty() {
            return self.unclassed.clone();
        }
        let mut by_class = self.by_class.lock();
        by_class.entry(class.into()).or_insert_with(|| LockMeter::new(class)).clone()
    }

    pub(crate) fn wrote_back(&self) {
        self.write_backs.increment(1);
    }
}

/// The metrics of the locks of one class.
#[derive(Clone, Debug)]
pub(crate) struct LockMeter(Arc<LockHandles>);

#[derive(Debug)]
struct LockHandles {
    acquisitions: Counters,
    acquire_seconds: Histogram,
    rounds: Histogram,
    waiters: Gauge,
    oldest: Gauge,
    asking: Arc<Asking>,
    held: Gauge,
    hold_seconds: Histogram,
    remaining: Vec<Histogram>,
    renewals: Counters,
    lost: Counters,
    releases: Counters,
    handoffs: Counters,
}

/// The start times of pending acquisitions, in microseconds since 1970, with their counts.
type Asking = Mutex<BTreeMap<u64, usize>>;

/// Returns those of a class, which all coordinators with one recorder share: the gauge of the oldest is set, not added to.
fn asking(class: &str) -> Arc<Asking> {
    /// A process, the address of a recorder, and a class. A forked child has the addresses of its parent, of whose threads
    /// one may have held the mutex of a list, or be in it.
    type Shared = (u32, usize, Box<str>);
    static ALL: Mutex<BTreeMap<Shared, Weak<Asking>>> = Mutex::new(BTreeMap::new());

    let recorder = metrics::with_recorder(|recorder| std::ptr::from_ref(recorder).cast::<()>().addr());
    let mut all = ALL.lock();
    all.retain(|_, asking| asking.strong_count() > 0);
    let entry = all.entry((std::process::id(), recorder, class.into())).or_default();
    entry.upgrade().unwrap_or_else(|| {
        let new = Arc::default();
        *entry = Arc::downgrade(&new);
        new
    })
}

impl LockMeter {
    fn new(class: &str) -> LockMeter {
        let labels = if class.is_empty() { &[][..] } else { &[("class", class)][..] };
        let at = |word: &&str| histogram(&list::VALIDITY_REMAINING, &[labels, &[("at", word)]].concat());
        LockMeter(Arc::new(LockHandles {
            acquisitions: Counters::of(&list::ACQUISITIONS, labels, "outcome", Outcome::WORDS),
            acquire_seconds: histogram(&list::ACQUIRE_SECONDS, labels),
            rounds: histogram(&list::ACQUIRE_ROUNDS, labels),
            waiters: gauge(&list::WAITERS, labels),
            oldest: gauge(&list::OLDEST_WAITER, labels),
            asking: asking(class),
            held: gauge(&list::HELD, labels),
            hold_seconds: histogram(&list::HOLD_SECONDS, labels),
            remaining: At::WORDS.iter().map(at).collect(),
            renewals: Counters::of(&list::RENEWALS, labels, "outcome", Renewed::WORDS),
            lost: Counters::of(&list::LOST, labels, "reason", Loss::WORDS),
            releases: Counters::of(&list::RELEASES, labels, "outcome", &["confirmed", "unconfirmed"]),
            handoffs: Counters::of(&list::HAND_OVERS, labels, "outcome", Passed::WORDS),
        }))
    }

    /// Records an acquisition that began at this wall-clock time.
    pub(crate) fn acquiring(&self, since: Moment, wall: impl FnOnce() -> Duration) -> Acquiring {
        self.0.waiters.increment(1);
        let began = micros(wall());
        self.0.change_asking(|asking| *asking.entry(began).or_default() += 1);
        Acquiring { meter: self.clone(), since, began, outcome: Outcome::Cancelled }
    }

    /// Records that a lease is held.
    pub(crate) fn held(&self, since: Moment) -> Held {
        self.0.held.increment(1);
        Held(Some((self.clone(), since)))
    }

    /// Records the number of rounds of an acquisition.
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 rounds")]
    pub(crate) fn rounds(&self, rounds: usize) {
        self.0.rounds.record(rounds as f64);
    }

    pub(crate) fn remaining(&self, at: At, remaining: Duration, ttl: Duration) {
        if let Some(histogram) = self.0.remaining.get(at as usize) {
            histogram.record(remaining.as_secs_f64() / ttl.as_secs_f64());
        }
    }

    pub(crate) fn renewed(&self, outcome: Renewed) {
        self.0.renewals.count(outcome as usize);
    }

    pub(crate) fn released(&self, verdict: Verdict) {
        self.0.releases.count(usize::from(verdict != Verdict::Won));
    }

    /// Counts a lease that its release has found lost; others end as [`Held`].
    pub(crate) fn lost(&self, reason: Loss) {
        self.0.lost.count(reason as usize);
    }

    pub(crate) fn passed(&self, outcome: Passed) {
        self.0.handoffs.count(outcome as usize);
    }
}

impl LockHandles {
    /// Updates the pending acquisitions and the start time of the oldest.
    #[expect(clippy::cast_precision_loss, reason = "microseconds since 1970 are exact for some centuries")]
    fn change_asking(&self, change: impl FnOnce(&mut BTreeMap<u64, usize>)) {
        let mut asking = self.asking.lock();
        let before = asking.first_key_value().map(|(began, _)| *began);
        change(&mut asking);
        let oldest = asking.first_key_value().map(|(began, _)| *began);
        if oldest != before {
            self.oldest.set(oldest.unwrap_or_default() as f64 / 1e6);
        }
    }
}

/// A pending acquisition, however it ends.
pub(crate) struct Acquiring {
    meter: LockMeter,
    since: Moment,
    began: u64,
    outcome: Outcome,
}

impl Acquiring {
    pub(crate) fn done(mut self, outcome: Outcome, now: impl FnOnce() -> Moment) {
        if outcome == Outcome::Acquired {
            self.meter.0.acquire_seconds.record(now().since(self.since));
        }
        self.outcome = outcome;
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        self.meter.0.waiters.decrement(1);
        self.meter.0.change_asking(|asking| {
            if let Entry::Occupied(mut others) = asking.entry(self.began) {
                *others.get_mut() -= 1;
                if *others.get() == 0 {
                    others.remove();
                }
            }
        });
        self.meter.0.acquisitions.count(self.outcome as usize);
    }
}

/// A held lease, however it ends.
pub(crate) struct Held(Option<(LockMeter, Moment)>);

impl Held {
    /// Records a release by the holder, with the validity left at that moment.
    pub(crate) fn released(&mut self, ttl: Duration, left: impl FnOnce() -> (Moment, Duration)) {
        if let Some((meter, since)) = self.0.take() {
            let (now, left) = left();
            meter.0.held.decrement(1);
            meter.0.hold_seconds.record(now.since(since));
            meter.remaining(At::Release, left, ttl);
        }
    }

    /// Records a lost lease.
    pub(crate) fn lost(&mut self, reason: Option<Loss>, now: impl FnOnce() -> Moment) {
        if let Some((meter, since)) = self.0.take() {
            meter.0.held.decrement(1);
            meter.0.hold_seconds.record(now().since(since));
            if let Some(reason) = reason {
                meter.lost(reason);
            }
        }
    }
}

/// Dropped with its task, for instance when the runtime shuts down: the hold time is unknown.
impl Drop for Held {
    fn drop(&mut self) {
        if let Some((meter, _)) = self.0.take() {
            meter.0.held.decrement(1);
        }
    }
}

/// The metrics of one node.
#[derive(Debug)]
pub(crate) struct NodeMeter {
    up: Gauge,
    is_up: AtomicBool,
    connects: Counter,
    restarts: Counter,
    stalls: Counter,
    quarantine_end: Gauge,
    answers: Counters,
    errors: Counters,
    late: Counter,
    seconds: Vec<Histogram>,
}

impl NodeMeter {
    pub(crate) fn new(node: &str) -> Arc<NodeMeter> {
        let labels = &[("node", node)];
        let seconds = |op: &&str| histogram(&list::NODE_SECONDS, &[("node", node), ("op", op)]);
        Arc::new(NodeMeter {
            up: gauge(&list::NODE_UP, labels),
            is_up: AtomicBool::new(false),
            connects: counter(&list::NODE_CONNECTS, labels),
            restarts: counter(&list::NODE_RESTARTS, labels),
            stalls: counter(&list::NODE_STALLS, labels),
            quarantine_end: gauge(&list::NODE_QUARANTINE_END, labels),
            answers: Counters::of(&list::NODE_ANSWERS, labels, "answer", ANSWERS),
            errors: Counters::of(&list::NODE_ERRORS, labels, "kind", ERRORS),
            late: counter(&list::NODE_LATE, labels),
            seconds: Op::WORDS.iter().map(seconds).collect(),
        })
    }

    pub(crate) fn answered(&self, op: Op, result: &Result<Response, NodeError>, took: Duration) {
        match result {
            Ok(answer) => {
                self.answers.count(kind_of(&answer.vote));
                if let Some(seconds) = self.seconds.get(op as usize) {
                    seconds.record(took);
                }
            }
            Err(error) => self.errors.count(error_kind(error)),
        }
    }

    pub(crate) fn late(&self) {
        self.late.increment(1);
    }

    pub(crate) fn connected(&self) {
        self.connects.increment(1);
        self.set_up(true);
    }

    pub(crate) fn restarted(&self) {
        self.restarts.increment(1);
    }

    pub(crate) fn answers_again(&self) {
        self.set_up(true);
    }

    pub(crate) fn stalled(&self) {
        self.stalls.increment(1);
        self.set_up(false);
    }

    pub(crate) fn down(&self) {
        self.set_up(false);
    }

    /// Records when its vote counts again, as time since 1970.
    pub(crate) fn votes_from(&self, wall: Duration) {
        self.quarantine_end.set(wall);
    }

    /// The gauge is shared by several coordinators, so each adds one and subtracts it again.
    fn set_up(&self, up: bool) {
        match (self.is_up.swap(up, Ordering::AcqRel), up) {
            (false, true) => self.up.increment(1),
            (true, false) => self.up.decrement(1),
            (true, true) | (false, false) => {}
        }
    }
}

impl Drop for NodeMeter {
    fn drop(&mut self) {
        self.set_up(false);
    }
}

const ANSWERS: &[&str] =
    &["granted", "wanted", "restored", "held", "behind", "ahead", "free", "told", "queued", "waiters", "log"];

fn kind_of(vote: &Vote) -> usize {
    match vote {
        Vote::Granted => 0,
        Vote::ReleasedContended => 1,
        Vote::Restored => 2,
        Vote::Held(_) => 3,
        Vote::NotYourTurn => 4,
        Vote::FenceAhead => 5,
        Vote::Free => 6,
        Vote::Notified => 7,
        Vote::Queued(_) => 8,
        Vote::Waiters(_) => 9,
        Vote::Log(_) | _ => 10,
    }
}

const ERRORS: &[&str] = &[
    "unreachable",
    "unanswered",
    "disconnected",
    "overloaded",
    "not_asked",
    "unfit",
    "failed",
    "other_limit",
    "unexpected_reply",
    "unresponsive",
    "busy",
];

fn error_kind(error: &NodeError) -> usize {
    match error {
        NodeError::Unreachable { .. } => 0,
        NodeError::Unanswered { .. } => 1,
        NodeError::Disconnected { .. } => 2,
        NodeError::Overloaded { .. } => 3,
        NodeError::NotAsked => 4,
        NodeError::Unfit { .. } => 5,
        NodeError::Failed { kind: NodeErrorKind::Busy, .. } => 10,
        NodeError::Failed { .. } => 6,
        NodeError::OtherLimit { .. } => 7,
        NodeError::Unresponsive { .. } => 9,
        NodeError::UnexpectedReply { .. } | _ => 8,
    }
}

/// A counter for each value of a label.
#[derive(Debug)]
struct Counters(Vec<Counter>);

impl Counters {
    fn of(metric: &Metric, labels: &[(&str, &str)], name: &str, values: &[&str]) -> Counters {
        Counters(values.iter().map(|value| counter(metric, &[labels, &[(name, value)]].concat())).collect())
    }

    fn count(&self, value: usize) {
        if let Some(counter) = self.0.get(value) {
            counter.increment(1);
        }
    }
}

const METADATA: Metadata<'_> = Metadata::new(module_path!(), Level::INFO, None);

fn key(metric: &Metric, labels: &[(&str, &str)]) -> Key {
    let label = |(name, value): &(&str, &str)| Label::new((*name).to_owned(), (*value).to_owned());
    debug_assert!(
        labels.iter().all(|(name, _)| metric.labels.contains(name)),
        "{} is listed without one of its labels {labels:?}",
        metric.name
    );
    Key::from_parts(metric.name, labels.iter().map(label).collect::<Vec<_>>())
}

fn counter(metric: &Metric, labels: &[(&str, &str)]) -> Counter {
    let key = key(metric, labels);
    let counter = metrics::with_recorder(|recorder| recorder.register_counter(&key, &METADATA));
    // Exported from the start: an alert rule sees no increase in a series that first appears with
    // it.
    counter.increment(0);
    counter
}

fn gauge(metric: &Metric, labels: &[(&str, &str)]) -> Gauge {
    let key = key(metric, labels);
    let gauge = metrics::with_recorder(|recorder| recorder.register_gauge(&key, &METADATA));
    gauge.increment(0);
    gauge
}

fn histogram(metric: &Metric, labels: &[(&str, &str)]) -> Histogram {
    let key = key(metric, labels);
    metrics::with_recorder(|recorder| recorder.register_histogram(&key, &METADATA))
}

fn describe(metric: &Metric) {
    let unit = match metric.unit {
        Unit::Seconds => metrics::Unit::Seconds,
        Unit::Count | Unit::Ratio => metrics::Unit::Count,
    };
    let (name, unit, help) = (metric.name.into(), Some(unit), metric.help.into());
    metrics::with_recorder(|recorder| match metric.kind {
        Kind::Counter => recorder.describe_counter(name, unit, help),
        Kind::Gauge => recorder.describe_gauge(name, unit, help),
        Kind::Histogram => recorder.describe_histogram(name, unit, help),
    });
}

/// Converts a number of nodes.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_only_busy_is_counted_apart_from_one_that_refuses() {
        let word = |kind| ERRORS[error_kind(&NodeError::Failed { kind, reason: "".into() })];
        assert_eq!(word(NodeErrorKind::Busy), "busy");
        assert_eq!(word(NodeErrorKind::PermissionDenied(crate::node::Access::Key)), "failed");
    }
}
