//! The outcome of one run of one scenario: the JSON that is written, and that the page is built from.
//!
//! Times are microseconds since the run began.

use std::collections::{BTreeMap, BTreeSet};

use quorlock_history::{Check, Ending, Seen};
use serde::{Deserialize, Serialize};

/// One run of one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) scenario: String,
    /// The description of the scenario.
    pub(crate) summary: String,
    pub(crate) seed: u64,
    /// The command line that repeats the run.
    pub(crate) replay: String,
    /// The servers, such as `5 × redis-server 7.0.15`.
    pub(crate) servers: String,
    /// The description of the layout, if the scenario has one.
    pub(crate) layout: Option<String>,
    pub(crate) nodes: Vec<String>,
    pub(crate) workers: Vec<String>,
    pub(crate) duration_micros: u64,
    /// Whether every expectation held.
    pub(crate) passed: bool,
    /// The verdict on each expectation.
    pub(crate) verdicts: Vec<Verdict>,
    /// How many events of each kind were checked.
    pub(crate) seen: Seen,
    /// How often two tasks of one process held the same lock at the same time according to their leases.
    pub(crate) overlaps: u64,
    /// How many locks a quorum of the nodes offered to the next waiter.
    #[serde(default)]
    pub(crate) offers: usize,
    /// The first violations.
    pub(crate) violations: Vec<Broken>,
    /// The number of all violations.
    pub(crate) violations_in_all: usize,
    /// All locks with violations, by check.
    #[serde(default)]
    pub(crate) broken_locks: BTreeMap<Check, BTreeSet<String>>,
    pub(crate) faults: Vec<FaultSpan>,
    /// How many faults were left out because the machine was too slow for the schedule.
    #[serde(default)]
    pub(crate) left_out: usize,
    /// Acquisitions of uncontended locks, by the number of faulty nodes.
    pub(crate) phases: Vec<Phase>,
    /// Acquisitions of uncontended locks before, during and after faults of each kind.
    pub(crate) around: Vec<Around>,
    pub(crate) timeline: Timeline,
    /// Acquisitions of uncontended locks by place, if the scenario has a layout.
    pub(crate) places: Vec<Place>,
}

/// An expectation, and whether it held.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) expectation: String,
    pub(crate) held: bool,
    /// The figures that decided.
    pub(crate) evidence: String,
}

/// A violation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Broken {
    pub(crate) check: Check,
    pub(crate) at_micros: Option<u64>,
    pub(crate) resource: Option<String>,
    /// One sentence with the evidence.
    pub(crate) text: String,
    /// Whether the scenario expects or tolerates violations of this check.
    pub(crate) expected: bool,
}

/// One fault, from its injection until its target was fully usable again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FaultSpan {
    /// Its kind, such as `kill`.
    pub(crate) kind: String,
    /// What was done, such as `node-2 killed, restarted empty`.
    pub(crate) name: String,
    /// The affected nodes, counted from 0.
    pub(crate) nodes: Vec<usize>,
    /// The affected workers, counted from 0.
    pub(crate) workers: Vec<usize>,
    pub(crate) from_micros: u64,
    pub(crate) until_micros: u64,
}

/// The latency of the acquisitions that began in some period.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) tried: u64,
    pub(crate) acquired: u64,
    pub(crate) p50_micros: u64,
    pub(crate) p99_micros: u64,
    pub(crate) max_micros: u64,
}

/// The total time during which this number of nodes was faulty.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(crate) faulty_nodes: usize,
    pub(crate) lasted_micros: u64,
    pub(crate) latency: Latency,
}

/// The latency before, during and after faults of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Around {
    pub(crate) kind: String,
    pub(crate) faults: usize,
    pub(crate) before: Latency,
    pub(crate) during: Latency,
    pub(crate) after: Latency,
}

/// The latency of a worker at its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) worker: String,
    /// The round trip to the node that completes a quorum: the minimum latency of a lock.
    pub(crate) quorum_round_trip_micros: u64,
    /// The round trip to the farthest node.
    pub(crate) longest_round_trip_micros: u64,
    pub(crate) latency: Latency,
}

/// The events of the timeline, thinned out to what can be drawn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Timeline {
    pub(crate) bin_micros: u64,
    /// Acquisitions of uncontended locks, one entry for each `bin_micros`.
    pub(crate) bins: Vec<Latency>,
    /// The contended locks.
    pub(crate) resources: Vec<String>,
    pub(crate) holds: Vec<HoldSpan>,
    /// The number of all holds.
    pub(crate) holds_in_all: usize,
    /// Late writes: those that the guarded resource refused, or should have refused.
    pub(crate) writes: Vec<WriteMark>,
    pub(crate) writes_in_all: usize,
}

/// One hold of a lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HoldSpan {
    /// The worker, counted from 0.
    pub(crate) worker: usize,
    /// The index in [`Timeline::resources`].
    pub(crate) resource: usize,
    pub(crate) from_micros: u64,
    pub(crate) until_micros: u64,
    pub(crate) ending: Ending,
    pub(crate) fencing_token: Option<u64>,
}

/// A late write: one with a smaller fencing token than a write before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WriteMark {
    pub(crate) worker: usize,
    pub(crate) resource: usize,
    pub(crate) at_micros: u64,
    pub(crate) fencing_token: u64,
    /// Whether it was refused.
    pub(crate) refused: bool,
}
