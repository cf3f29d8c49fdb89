//! The latency of acquiring uncontended locks.

use std::collections::{BTreeMap, HashMap};

use hdrhistogram::Histogram;
use quorlock_history::{History, Stamp, Token, What};

use super::number;
use crate::director::own_lock;
use crate::outcome::{Around, Latency, Phase, Place};
use crate::run_metadata::{Done, RunMetadata};

/// How many intervals the run is divided into.
const BINS: u64 = 240;
/// The time before and after a fault, in microseconds, that counts as before and after.
const BEFORE_AND_AFTER: u64 = 1_000_000;

/// One acquisition. Times are microseconds since the run began.
pub(super) struct Probe {
    worker: usize,
    began: u64,
    took: u64,
    acquired: bool,
}

/// All acquisitions of uncontended locks by workers that had no fault meanwhile.
pub(super) struct Probes<'a> {
    all: Vec<Probe>,
    metadata: &'a RunMetadata,
    /// When the number of faulty nodes changed, and to what.
    changes: Vec<(u64, usize)>,
    quiet: u64,
}

impl Probes<'_> {
    pub(super) fn of<'a>(history: &History, metadata: &'a RunMetadata, nodes: usize) -> Probes<'a> {
        let micros = |at: Stamp| super::micros(at, metadata);
        let mut open: HashMap<&Token, (usize, Stamp)> = HashMap::new();
        for event in history.events() {
            if let What::Invoked { client, resource, attempt } = &event.what
                && event.at >= metadata.began
                && let Some(worker) = number(client.as_str())
                && resource.as_str() == own_lock(worker)
            {
                open.insert(attempt, (worker, event.at));
            }
        }
        let mut probes = Vec::new();
        for event in history.events() {
            let (attempt, acquired) = if let What::Acquired { attempt, .. } = &event.what {
                (attempt, true)
            } else if let What::NotAcquired { attempt } = &event.what {
                (attempt, false)
            } else {
                continue;
            };
            if let Some(&(worker, began)) = open.get(attempt) {
                let (began, took) = (micros(began), micros(event.at).saturating_sub(micros(began)));
                probes.push(Probe { worker, began, took, acquired });
            }
        }
        let hindered = |probe: &Probe| {
            metadata.faults.iter().any(|fault| {
                fault.workers.contains(&probe.worker)
                    && micros(fault.from) <= probe.began + probe.took
                    && probe.began <= micros(fault.until)
            })
        };
        probes.retain(|probe| !hindered(probe));
        probes.sort_by_key(|probe| probe.began);
        let changes = changes(&metadata.faults, nodes, &micros);
        Probes { all: probes, metadata, changes, quiet: micros(metadata.quiet) }
    }

    /// Returns the latency of the attempts that began while at most `nodes` nodes were faulty.
    pub(super) fn with_at_most(&self, nodes: usize) -> Latency {
        latency(self.all.iter().filter(|probe| probe.began < self.quiet && self.faulty(probe.began) <= nodes))
    }

    pub(super) fn phases(&self) -> Vec<Phase> {
        let mut lasted: BTreeMap<usize, u64> = BTreeMap::new();
        let ends = self.changes.iter().skip(1).map(|&(at, _)| at).chain([self.quiet]);
        for (&(from, faulty), until) in self.changes.iter().zip(ends) {
            *lasted.entry(faulty).or_default() += until.saturating_sub(from);
        }
        let phase = |(faulty_nodes, lasted_micros)| {
            let during = self
                .all
                .iter()
                .filter(|probe| probe.began < self.quiet && self.faulty(probe.began) == faulty_nodes);
            Phase { faulty_nodes, lasted_micros, latency: latency(during) }
        };
        lasted.into_iter().filter(|&(_, lasted)| lasted > 0).map(phase).collect()
    }

    pub(super) fn around(&self) -> Vec<Around> {
        let mut kinds: BTreeMap<&str, Vec<&Done>> = BTreeMap::new();
        for done in &self.metadata.faults {
            kinds.entry(&done.kind).or_default().push(done);
        }
        let around = |(kind, faults): (&str, Vec<&Done>)| {
            let micros = |at| super::micros(at, self.metadata);
            let within = |span: fn(u64, u64) -> (u64, u64)| {
                let spans: Vec<(u64, u64)> =
                    faults.iter().map(|done| span(micros(done.from), micros(done.until))).collect();
                latency(self.all.iter().filter(|probe| {
                    spans.iter().any(|&(from, until)| from <= probe.began && probe.began < until)
                }))
            };
            Around {
                kind: kind.to_owned(),
                faults: faults.len(),
                before: within(|from, _| (from.saturating_sub(BEFORE_AND_AFTER), from)),
                during: within(|from, until| (from, until)),
                after: within(|_, until| (until, until + BEFORE_AND_AFTER)),
            }
        };
        kinds.into_iter().map(around).collect()
    }

    pub(super) fn places(&self) -> Vec<Place> {
        let place = |(worker, round_trips): (usize, &Vec<u64>)| {
            let mut sorted = round_trips.clone();
            sorted.sort_unstable();
            Place {
                worker: self.metadata.workers.get(worker).cloned().unwrap_or_default(),
                quorum_round_trip_micros: sorted.get(sorted.len() / 2).copied().unwrap_or_default(),
                longest_round_trip_micros: sorted.last().copied().unwrap_or_default(),
                latency: latency(
                    self.all.iter().filter(|probe| probe.worker == worker && probe.began < self.quiet),
                ),
            }
        };
        self.metadata.round_trips.iter().enumerate().map(place).collect()
    }

    pub(super) fn bin_micros(&self) -> u64 {
        (super::micros(self.metadata.ended, self.metadata) / BINS).max(1)
    }

    pub(super) fn bins(&self) -> Vec<Latency> {
        let width = self.bin_micros();
        let bin = |number: u64| latency(self.all.iter().filter(|probe| probe.began / width == number));
        (0..BINS).map(bin).collect()
    }

    /// Returns how many nodes were faulty at that time.
    fn faulty(&self, at: u64) -> usize {
        let after = self.changes.partition_point(|&(change, _)| change <= at);
        after.checked_sub(1).and_then(|index| self.changes.get(index)).map_or(0, |&(_, faulty)| faulty)
    }
}

/// Returns when the number of faulty nodes changed, and to what; the first entry is the beginning.
fn changes(faults: &[Done], nodes: usize, micros: &impl Fn(Stamp) -> u64) -> Vec<(u64, usize)> {
    let spans: Vec<(u64, u64, usize)> = faults
        .iter()
        .flat_map(|done| done.nodes.iter().map(|&node| (micros(done.from), micros(done.until), node)))
        .collect();
    let mut moments: Vec<u64> = spans.iter().flat_map(|&(from, until, _)| [from, until]).chain([0]).collect();
    moments.sort_unstable();
    moments.dedup();
    let out_of_order = |at: u64| {
        (0..nodes)
            .filter(|&node| spans.iter().any(|&(from, until, of)| of == node && from <= at && at < until))
            .count()
    };
    moments.into_iter().map(|at| (at, out_of_order(at))).collect()
}

fn latency<'a>(probes: impl Iterator<Item = &'a Probe>) -> Latency {
    let (mut tried, mut acquired) = (0, 0);
    // Up to a minute, with three significant digits.
    let Ok(mut took) = Histogram::<u64>::new_with_max(60_000_000, 3) else { return Latency::default() };
    for probe in probes {
        tried += 1;
        if probe.acquired {
            acquired += 1;
            took.saturating_record(probe.took);
        }
    }
    if acquired == 0 {
        return Latency { tried, ..Latency::default() };
    }
    Latency {
        tried,
        acquired,
        p50_micros: took.value_at_quantile(0.5),
        p99_micros: took.value_at_quantile(0.99),
        max_micros: took.max(),
    }
}
