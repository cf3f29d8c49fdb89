//! What one run of one scenario came to: the JSON that is written, and what the page is drawn from.
//!
//! Times are microseconds since the run began.

use quorlock_history::{Check, Ending, Seen};
use serde::{Deserialize, Serialize};

/// One run of one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) scenario: String,
    /// What the scenario does, in a sentence.
    pub(crate) summary: String,
    pub(crate) seed: u64,
    /// The command line that does the same again.
    pub(crate) replay: String,
    /// Which servers, such as `5 × redis-server 7.0.15`.
    pub(crate) servers: String,
    /// The round trips between workers and nodes, if the scenario asks for a layout.
    pub(crate) layout: Option<String>,
    pub(crate) nodes: Vec<String>,
    pub(crate) workers: Vec<String>,
    pub(crate) duration_micros: u64,
    /// Whether every expectation held.
    pub(crate) passed: bool,
    /// Each expectation, and what came of it.
    pub(crate) verdicts: Vec<Verdict>,
    /// How much of everything was there to be judged.
    pub(crate) seen: Seen,
    /// How often two tasks of one process were inside one lock at once, both told that it holds.
    pub(crate) overlaps: u64,
    /// How many times a quorum of the nodes offered a lock to the next waiter.
    #[serde(default)]
    pub(crate) offers: usize,
    /// The first of the broken promises.
    pub(crate) violations: Vec<Broken>,
    /// How many there are in all.
    pub(crate) violations_in_all: usize,
    pub(crate) faults: Vec<FaultSpan>,
    /// Acquisitions of locks that nobody else wants, by how many nodes were out of order meanwhile.
    pub(crate) phases: Vec<Phase>,
    /// The same before, during and after faults of each kind.
    pub(crate) around: Vec<Around>,
    pub(crate) timeline: Timeline,
    /// The same by place, if the scenario asks for a layout.
    pub(crate) places: Vec<Place>,
}

/// An expectation, and whether it held.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) expectation: String,
    pub(crate) held: bool,
    /// The figures that it is judged by.
    pub(crate) evidence: String,
}

/// A promise that was broken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Broken {
    pub(crate) check: Check,
    pub(crate) at_micros: Option<u64>,
    pub(crate) resource: Option<String>,
    /// One sentence with the evidence.
    pub(crate) text: String,
    /// Whether the scenario expects such.
    pub(crate) expected: bool,
}

/// From when to when something was out of order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FaultSpan {
    /// Its kind, such as `kill`.
    pub(crate) kind: String,
    /// What was done, such as `node-2 killed, restarted empty`.
    pub(crate) name: String,
    /// Which nodes, counted from 0.
    pub(crate) nodes: Vec<usize>,
    /// Which workers, counted from 0.
    pub(crate) workers: Vec<usize>,
    pub(crate) from_micros: u64,
    pub(crate) until_micros: u64,
}

/// How long acquisitions took, of those that began in some span of time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) tried: u64,
    pub(crate) acquired: u64,
    pub(crate) p50_micros: u64,
    pub(crate) p99_micros: u64,
    pub(crate) max_micros: u64,
}

/// All the time during which so many nodes were out of order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(crate) faulty_nodes: usize,
    pub(crate) lasted_micros: u64,
    pub(crate) latency: Latency,
}

/// What faults of one kind did to latency.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Around {
    pub(crate) kind: String,
    pub(crate) faults: usize,
    pub(crate) before: Latency,
    pub(crate) during: Latency,
    pub(crate) after: Latency,
}

/// What a lock costs one worker, at the place where it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) worker: String,
    /// The round trip to the node that completes a quorum: no lock can be had faster.
    pub(crate) quorum_round_trip_micros: u64,
    /// The round trip to the farthest node.
    pub(crate) longest_round_trip_micros: u64,
    pub(crate) latency: Latency,
}

/// What happened when, thinned out where it is too much to draw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Timeline {
    pub(crate) bin_micros: u64,
    /// Acquisitions of locks that nobody else wants, one entry for each `bin_micros`.
    pub(crate) bins: Vec<Latency>,
    /// The locks that several workers want.
    pub(crate) resources: Vec<String>,
    pub(crate) holds: Vec<HoldSpan>,
    /// How many there are in all.
    pub(crate) holds_in_all: usize,
    /// Writes that the guarded resource refused, or should have.
    pub(crate) writes: Vec<WriteMark>,
    pub(crate) writes_in_all: usize,
}

/// A lock held.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HoldSpan {
    /// Whose, counted from 0.
    pub(crate) worker: usize,
    /// Which of [`Timeline::resources`].
    pub(crate) resource: usize,
    pub(crate) from_micros: u64,
    pub(crate) until_micros: u64,
    pub(crate) ending: Ending,
    pub(crate) fencing_token: Option<u64>,
}

/// A write that came too late.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WriteMark {
    pub(crate) worker: usize,
    pub(crate) resource: usize,
    pub(crate) at_micros: u64,
    pub(crate) fencing_token: u64,
    /// Whether it was refused; else a larger token had been accepted before, and still it was written.
    pub(crate) refused: bool,
}
