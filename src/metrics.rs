//! The metrics of the library: names, meanings, units and labels.
//!
//! They go to the recorder that the program has installed for the crate [`metrics`]. Install it
//! before [`Builder::build`](crate::Builder::build): a coordinator keeps handles of the recorder
//! that it was built with. Without a recorder each count is a branch.
//!
//! No metric has a resource's name: there may be millions. Set a [class](crate::Lock::metrics_class) to
//! count a group of locks separately, in the label `class`. Metrics of nodes have the node's name
//! in the label `node`.
//!
//! [`Metric::buckets`] suggests buckets of histograms for exporters. `docs/observability.md`
//! explains label values, dashboard and alerts.
//!
//! # Examples
//!
//! ```
//! use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
//! use quorlock::Coordinator;
//!
//! let mut exporter = PrometheusBuilder::new();
//! for metric in quorlock::metrics::ALL.iter().filter(|metric| !metric.buckets.is_empty()) {
//!     let name = Matcher::Full(metric.name.to_owned());
//!     exporter = exporter.set_buckets_for_metric(name, metric.buckets)?;
//! }
//! let handle = exporter.install_recorder()?; // or `install`, which serves them, too
//! let coordinator = Coordinator::builder().nodes(["10.0.0.1", "10.1.0.1", "10.2.0.1"]).build()?;
//! assert!(handle.render().contains("quorlock_quorum 2"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`metrics`]: https://docs.rs/metrics

/// The description of a metric.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Unit.
    pub unit: Unit,
    /// Labels. `class` is present only for locks that have one.
    pub labels: &'static [&'static str],
    /// Meaning, in one sentence.
    pub help: &'static str,
    /// Suggested upper bounds of the buckets of a histogram.
    pub buckets: &'static [f64],
}

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// Only increases.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// A distribution.
    Histogram,
}

/// The unit of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unit {
    /// A number of things.
    Count,
    /// Seconds; for timestamps, since 1970.
    Seconds,
    /// A share, from 0 to 1.
    Ratio,
}

/// From a local round trip to another holder's whole TTL.
const WAITS: &[f64] =
    &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// From a critical section to a leader's term.
const HOLDS: &[f64] =
    &[0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0, 14_400.0];
/// From a local socket to a timeout.
const TRIPS: &[f64] = &[0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];
const ROUNDS: &[f64] = &[0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 50.0, 100.0];
const SHARES: &[f64] = &[0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// Declares the metrics, and the list of all of them.
macro_rules! metrics {
    ($($constant:ident = $kind:ident $name:literal in $unit:ident by $labels:expr, in $buckets:expr; $help:literal)*) => {
        $(pub(crate) const $constant: Metric = Metric {
            name: $name,
            kind: Kind::$kind,
            unit: Unit::$unit,
            labels: &$labels,
            help: $help,
            buckets: $buckets,
        };)*

        const METRICS: &[Metric] = &[$($constant),*];
    };
}

/// All metrics of the library.
pub const ALL: &[Metric] = METRICS;

metrics! {
    ACQUISITIONS = Counter "quorlock_acquisitions_total" in Count by ["outcome", "class"], in &[];
    "Calls that asked for a lock, by outcome"
    ACQUIRE_SECONDS = Histogram "quorlock_acquire_duration_seconds" in Seconds by ["class"], in WAITS;
    "Time until a lock was acquired, successful calls only"
    ACQUIRE_ROUNDS = Histogram "quorlock_acquire_rounds" in Count by ["class"], in ROUNDS;
    "Rounds per acquisition: 1 without contention, 0 when handed over"
    WAITERS = Gauge "quorlock_waiters" in Count by ["class"], in &[];
    "Calls currently asking for a lock"
    OLDEST_WAITER = Gauge "quorlock_oldest_waiter_start_time_seconds" in Seconds by ["class"], in &[];
    "Start time of the oldest call that is asking for a lock; 0 if there is none"
    HELD = Gauge "quorlock_held" in Count by ["class"], in &[];
    "Leases currently held"
    HOLD_SECONDS = Histogram "quorlock_hold_duration_seconds" in Seconds by ["class"], in HOLDS;
    "Time from acquisition to the end of the lease"
    VALIDITY_REMAINING = Histogram "quorlock_validity_remaining_ratio" in Ratio by ["at", "class"], in SHARES;
    "Remaining validity as a share of the TTL: when acquired, when a renewal was confirmed (of the old validity), when released"
    RENEWALS = Counter "quorlock_renewals_total" in Count by ["outcome", "class"], in &[];
    "Renewals, by outcome"
    LOST = Counter "quorlock_lost_total" in Count by ["reason", "class"], in &[];
    "Leases that ended before their holder released them, by reason"
    RELEASES = Counter "quorlock_releases_total" in Count by ["outcome", "class"], in &[];
    "Leases released on the nodes, by whether a quorum confirmed in time"
    HAND_OVERS = Counter "quorlock_handoffs_total" in Count by ["outcome", "class"], in &[];
    "Leases handed to the next waiter of the same process, by outcome"
    WRITE_BACKS = Counter "quorlock_write_backs_total" in Count by [], in &[];
    "Fencing tokens that needed a second round, because nodes issued different numbers"
    QUORUM = Gauge "quorlock_quorum" in Count by [], in &[];
    "Votes that a lock needs"
    NODE_UP = Gauge "quorlock_node_up" in Count by ["node"], in &[];
    "Responsive connections to the node: 1 per coordinator, 0 while the node is down or stalled"
    NODE_CONNECTS = Counter "quorlock_node_connects_total" in Count by ["node"], in &[];
    "Connections made to the node"
    NODE_RESTARTS = Counter "quorlock_node_restarts_total" in Count by ["node"], in &[];
    "How often a different server process was found at the node's address"
    NODE_STALLS = Counter "quorlock_node_stalls_total" in Count by ["node"], in &[];
    "How often the node stopped answering on an open connection"
    NODE_QUARANTINE_END = Gauge "quorlock_node_quarantine_end_timestamp_seconds" in Seconds by ["node"], in &[];
    "Time from which the vote of a restarted node counts; 0 if it was never quarantined"
    NODE_ANSWERS = Counter "quorlock_node_answers_total" in Count by ["node", "answer"], in &[];
    "Answers of the node to requests of rounds, by kind"
    NODE_ERRORS = Counter "quorlock_node_errors_total" in Count by ["node", "kind"], in &[];
    "Requests to the node that failed, by kind of error"
    NODE_LATE = Counter "quorlock_node_late_answers_total" in Count by ["node"], in &[];
    "Answers and errors that arrived after the round had stopped waiting for the node"
    NODE_SECONDS = Histogram "quorlock_node_request_duration_seconds" in Seconds by ["node", "op"], in TRIPS;
    "Time from the start of a round to the node's answer, by operation"
}
