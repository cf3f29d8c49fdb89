//! The results, as tables and as JSON.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use comfy_table::Table;
use hdrhistogram::Histogram;
use quorlock::{
    duration,
    protocol::{micros, printable},
    votes::{NodeVote, VoteOutcome},
};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::report::{json_line, row};
use crate::values::Switch;
use crate::width;

/// All results.
pub(super) struct Figures {
    pub(super) nodes: Vec<Node>,
    /// One task alone.
    pub(super) alone: Load,
    pub(super) together: Load,
    pub(super) tasks: u16,
    pub(super) fencing: Switch,
}

/// The round trips of a node.
pub(super) struct Node {
    name: Arc<str>,
    round_trip: Latency,
    /// The last error in place of an answer, and how often there was one.
    silent: Option<(String, u64)>,
}

/// The results of a load.
pub(super) struct Load {
    pub(super) acquire: Latency,
    pub(super) release: Latency,
    failed: u64,
    /// The last error.
    why: Option<String>,
    pub(super) took: Duration,
}

/// Times, in microseconds.
pub(super) struct Latency {
    times: Histogram<u64>,
}

impl Figures {
    pub(super) fn in_words(&self) -> String {
        let mut nodes = table(["node", "p50", "p99", "max", ""]);
        for node in &self.nodes {
            let [p50, p99, max] = node.round_trip.in_words();
            let silent =
                node.silent.as_ref().map(|(why, times)| format!("{times} of them unanswered: {why}"));
            nodes.add_row(row([node.name.to_string(), p50, p99, max, silent.unwrap_or_default()]));
        }
        let mut loads = table(["", "p50", "p99", "max", "per second"]);
        for (name, load) in [("one task", &self.alone), (&format!("{} tasks", self.tasks), &self.together)] {
            let [p50, p99, max] = load.acquire.in_words();
            loads.add_row(row([
                format!("{name}: acquire"),
                p50,
                p99,
                max,
                format!("{:.0}", load.per_second()),
            ]));
            let [p50, p99, max] = load.release.in_words();
            loads.add_row(row([format!("{name}: release"), p50, p99, max, String::new()]));
        }
        let failed = self.alone.failed + self.together.failed;
        let why = self.together.why.as_ref().or(self.alone.why.as_ref());
        let failed = why.map_or_else(String::new, |why| {
            let attempts = if failed == 1 { "attempt" } else { "attempts" };
            format!("\n{failed} {attempts} failed, the last with: {}\n", printable(why))
        });
        format!("round trips\n{}\n\nlocks\n{}\n{failed}", nodes.trim_fmt(), loads.trim_fmt())
    }

    pub(super) fn in_json(&self) -> String {
        let nodes: Vec<Value> = self.nodes.iter().map(Node::in_json).collect();
        json_line(&json!({
            "nodes": nodes,
            "fencing": self.fencing == Switch::On,
            "loads": [self.alone.in_json(1), self.together.in_json(self.tasks)],
        }))
    }
}

impl Node {
    pub(super) fn new(name: &Arc<str>) -> Result<Node, Failure> {
        Ok(Node { name: name.clone(), round_trip: Latency::new()?, silent: None })
    }

    pub(super) fn add(&mut self, vote: &NodeVote) {
        if let VoteOutcome::Failed(error) = &vote.outcome {
            let times = self.silent.take().map_or(0, |(_, times)| times);
            self.silent = Some((format!("{error:#}"), times + 1));
        } else {
            self.round_trip.add(vote.took);
        }
    }

    fn in_json(&self) -> Value {
        let unanswered = self.silent.as_ref().map_or(0, |(_, times)| *times);
        let error = self.silent.as_ref().map(|(why, _)| why);
        json!({ "node": &*self.name, "round_trip_us": self.round_trip.in_json(), "unanswered": unanswered, "error": error })
    }
}

impl Load {
    pub(super) fn new() -> Result<Load, Failure> {
        Ok(Load {
            acquire: Latency::new()?,
            release: Latency::new()?,
            failed: 0,
            why: None,
            took: Duration::ZERO,
        })
    }

    pub(super) fn add(&mut self, other: &Load) {
        self.acquire.add_all(&other.acquire);
        self.release.add_all(&other.release);
        self.failed += other.failed;
        self.why = other.why.clone().or(self.why.take());
    }

    /// Counts a failed attempt.
    pub(super) fn fail(&mut self, error: &dyn Error) {
        self.failed += 1;
        self.why = Some(error.to_string());
    }

    /// Returns the locks acquired and released per second.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people, of fewer than 2^52 locks")]
    fn per_second(&self) -> f64 {
        self.release.times.len() as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn in_json(&self, tasks: u16) -> Value {
        json!({
            "tasks": tasks,
            "seconds": self.took.as_secs_f64(),
            "locks_per_second": self.per_second(),
            "failed": self.failed,
            "error": self.why,
            "acquire_us": self.acquire.in_json(),
            "release_us": self.release.in_json(),
        })
    }
}

impl Latency {
    pub(super) fn new() -> Result<Latency, Failure> {
        // From a microsecond to a minute, with three digits.
        let times = Histogram::new_with_bounds(1, 60_000_000, 3);
        let times = times.map_err(|error| Failure::to("measure")(std::io::Error::other(error)))?;
        Ok(Latency { times })
    }

    pub(super) fn add(&mut self, time: Duration) {
        self.times.saturating_record(micros(time));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    fn add_all(&mut self, other: &Latency) {
        // Both have the same bounds.
        let _ = self.times.add(&other.times);
    }

    fn in_words(&self) -> [String; 3] {
        if self.is_empty() {
            return [const { String::new() }; 3];
        }
        self.figures().map(|micros| duration::format(Duration::from_micros(micros)))
    }

    fn in_json(&self) -> Value {
        let [p50, p99, max] = self.figures();
        json!({ "count": self.times.len(), "p50": p50, "p99": p99, "max": max })
    }

    fn figures(&self) -> [u64; 3] {
        [self.times.value_at_quantile(0.5), self.times.value_at_quantile(0.99), self.times.max()]
    }
}

/// Names on the left, figures on the right.
fn table(header: [&str; 5]) -> Table {
    width::table(header, &[1, 2, 3, 4], None)
}
