//! Every metric of the library: what it is called, what it counts, and in which unit.
//!
//! They go to the recorder that the program has installed for the crate [`metrics`], whichever
//! exporter that is. Install it before [`Builder::build`](crate::Builder::build): what a
//! coordinator counts goes to the recorder that was there when it was built, so that counting
//! looks nothing up. With no recorder nothing is counted, at the price of a branch.
//!
//! No metric has the name of a resource: there may be millions. Name a
//! [class](crate::Lock::metrics_class) for those locks that are to be told apart, and the metrics of locks
//! have it in the label `class`. Metrics of nodes have the node's name in the label `node`.
//!
//! Exporters have to be told how to cut histograms; [`Metric::buckets`] says what suits each. What
//! they mean for whoever is on call stands in `docs/observability.md`.
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

/// A metric, as people and exporters need to know it.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// What it is called.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// In what it counts.
    pub unit: Unit,
    /// Its labels. `class` is there only for locks that name one.
    pub labels: &'static [&'static str],
    /// What it means, in a sentence.
    pub help: &'static str,
    /// The upper bounds of the buckets of a histogram.
    pub buckets: &'static [f64],
}

/// How a metric moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// Only up.
    Counter,
    /// Up and down.
    Gauge,
    /// It is a distribution.
    Histogram,
}

/// In what a metric counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unit {
    /// Things.
    Count,
    /// Seconds; for points in time, since 1970.
    Seconds,
    /// A share of a whole, from 0 to 1.
    Ratio,
}

/// From a round trip within a machine to somebody else's whole TTL.
const WAITS: &[f64] =
    &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// From a critical section to a leader's term.
const HOLDS: &[f64] =
    &[0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0, 14_400.0];
/// From a socket on the same machine to a time limit.
const TRIPS: &[f64] = &[0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];
const ROUNDS: &[f64] = &[0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 50.0, 100.0];
const SHARES: &[f64] = &[0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// Declares the metrics, and the list of them all.
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

/// All of them.
pub const ALL: &[Metric] = METRICS;

metrics! {
    ACQUISITIONS = Counter "quorlock_acquisitions_total" in Count by ["outcome", "class"], in &[];
    "Calls that asked for a lock, by what came of them"
    ACQUIRE_SECONDS = Histogram "quorlock_acquire_duration_seconds" in Seconds by ["class"], in WAITS;
    "How long those waited who got the lock"
    ACQUIRE_ROUNDS = Histogram "quorlock_acquire_rounds" in Count by ["class"], in ROUNDS;
    "How many rounds it took to acquire: 1 without a contest, 0 when handed over"
    WAITERS = Gauge "quorlock_waiters" in Count by ["class"], in &[];
    "Calls that are asking for a lock now"
    OLDEST_WAITER = Gauge "quorlock_oldest_waiter_start_time_seconds" in Seconds by ["class"], in &[];
    "When the call began that has been asking for a lock for the longest time; 0 where none is"
    HELD = Gauge "quorlock_held" in Count by ["class"], in &[];
    "Leases that are held now"
    HOLD_SECONDS = Histogram "quorlock_hold_duration_seconds" in Seconds by ["class"], in HOLDS;
    "From acquiring a lease to its end"
    VALIDITY_REMAINING = Histogram "quorlock_validity_remaining_ratio" in Ratio by ["at", "class"], in SHARES;
    "What was left of the validity, as a share of the TTL: when acquired, when a renewal was confirmed (of the old validity), when released"
    RENEWALS = Counter "quorlock_renewals_total" in Count by ["outcome", "class"], in &[];
    "Renewals, by what came of them"
    LOST = Counter "quorlock_lost_total" in Count by ["reason", "class"], in &[];
    "Leases that ended against the will of their holder, by reason"
    RELEASES = Counter "quorlock_releases_total" in Count by ["outcome", "class"], in &[];
    "Leases given back to the nodes, by whether a quorum confirmed in time"
    HAND_OVERS = Counter "quorlock_handoffs_total" in Count by ["outcome", "class"], in &[];
    "Leases passed to the next who waited in the same process, by way"
    WRITE_BACKS = Counter "quorlock_write_backs_total" in Count by [], in &[];
    "Fencing tokens that took a second round, because the nodes had drawn different numbers"
    QUORUM = Gauge "quorlock_quorum" in Count by [], in &[];
    "How many votes a lock needs"
    NODE_UP = Gauge "quorlock_node_up" in Count by ["node"], in &[];
    "Connections to the node that answer: 1 for each coordinator, 0 while it is down or stalled"
    NODE_CONNECTS = Counter "quorlock_node_connects_total" in Count by ["node"], in &[];
    "Connections made to the node"
    NODE_RESTARTS = Counter "quorlock_node_restarts_total" in Count by ["node"], in &[];
    "Times that another server process was found at the node's address"
    NODE_STALLS = Counter "quorlock_node_stalls_total" in Count by ["node"], in &[];
    "Times that the node stopped answering over a connection that stayed open"
    NODE_QUARANTINE_END = Gauge "quorlock_node_quarantine_end_timestamp_seconds" in Seconds by ["node"], in &[];
    "Since when, or from when on, the vote of the restarted node counts; 0 if it was in no quarantine"
    NODE_ANSWERS = Counter "quorlock_node_answers_total" in Count by ["node", "answer"], in &[];
    "Answers of the node to the requests of rounds, by kind"
    NODE_ERRORS = Counter "quorlock_node_errors_total" in Count by ["node", "kind"], in &[];
    "Requests to the node that ended without an answer, by kind of error"
    NODE_LATE = Counter "quorlock_node_late_answers_total" in Count by ["node"], in &[];
    "Answers and errors that came after the round had stopped waiting for the node"
    NODE_SECONDS = Histogram "quorlock_node_request_duration_seconds" in Seconds by ["node", "op"], in TRIPS;
    "From the start of a round to the node's answer, by what it was asked"
}
