//! Simulated distances between workers and nodes: round trips as between real places.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::error::Failure;

/// The built-in layouts, each a file in `layouts/`.
const BUILT_IN: &[(&str, &str)] = &[
    ("three-zones", include_str!("../layouts/three-zones.toml")),
    ("three-regions", include_str!("../layouts/three-regions.toml")),
    ("five-continents", include_str!("../layouts/five-continents.toml")),
];

/// The places of nodes and workers, and the round trips between places.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Layout {
    /// A description.
    pub(crate) summary: String,
    /// The place of each node.
    nodes: Vec<String>,
    /// The place of each worker.
    workers: Vec<String>,
    /// Round trips in milliseconds from place to place, valid for both directions.
    round_trips: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Layout {
    /// Returns the built-in layout of this name, or reads the one in this file.
    pub(crate) fn find(name: &str) -> Result<Layout, Failure> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Layout::parse(name, text);
        }
        if Path::new(name).extension().is_none_or(|extension| extension != "toml") {
            let names: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            let why = format!("unknown layout; known are {}, and files that end in .toml", names.join(", "));
            return Err(Failure::BadScenario { name: name.to_owned(), why });
        }
        let text = fs::read_to_string(name).map_err(Failure::to(format!("read {name}")))?;
        Layout::parse(name, &text)
    }

    fn parse(name: &str, text: &str) -> Result<Layout, Failure> {
        let wrong = |why: String| Failure::BadScenario { name: name.to_owned(), why };
        let layout: Layout = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        for from in layout.nodes.iter().chain(&layout.workers) {
            for to in &layout.nodes {
                if layout.millis(from, to).is_none() {
                    return Err(wrong(format!("the round trip from {from} to {to} is missing")));
                }
            }
        }
        Ok(layout)
    }

    /// Returns half the round trip between a worker and a node.
    pub(crate) fn one_way(&self, worker: usize, node: usize) -> Duration {
        self.round_trip(worker, node) / 2
    }

    pub(crate) fn round_trip(&self, worker: usize, node: usize) -> Duration {
        let places = self.worker_place(worker).zip(self.node_place(node));
        let millis = places.and_then(|(from, to)| self.millis(from, to)).unwrap_or_default();
        Duration::try_from_secs_f64(millis / 1000.0).unwrap_or_default()
    }

    pub(crate) fn node_place(&self, node: usize) -> Option<&str> {
        self.nodes.get(node).map(String::as_str)
    }

    pub(crate) fn worker_place(&self, worker: usize) -> Option<&str> {
        // With more workers than places, places repeat.
        self.workers.get(worker.checked_rem(self.workers.len())?).map(String::as_str)
    }

    fn millis(&self, from: &str, to: &str) -> Option<f64> {
        let way = |from: &str, to: &str| self.round_trips.get(from)?.get(to).copied();
        way(from, to).or_else(|| way(to, from))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_knows_all_its_round_trips() {
        for (name, _) in BUILT_IN {
            let layout = Layout::find(name).unwrap();
            assert_eq!(layout.nodes.len(), 5, "{name}");
            assert!(layout.round_trip(0, 4) > Duration::ZERO, "{name}");
        }
        assert!(Layout::find("the-moon").unwrap_err().to_string().contains("three-zones"));
    }

    #[test]
    fn a_round_trip_that_is_missing_is_named() {
        let text =
            "summary = 'x'\nnodes = ['here', 'there']\nworkers = ['here']\n[round-trips.here]\nhere = 1.0";
        let missing = Layout::parse("mine.toml", text).unwrap_err().to_string();
        assert!(missing.contains("from here to there"), "{missing}");
    }
}
