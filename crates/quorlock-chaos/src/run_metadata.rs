//! The metadata of a run, stored beside its history, so that the record can be checked again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use quorlock_history::{History, Stamp};
use serde::{Deserialize, Serialize};

use crate::error::Failure;

/// The metadata of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunMetadata {
    pub(crate) scenario: String,
    pub(crate) seed: u64,
    pub(crate) replay: String,
    pub(crate) servers: String,
    pub(crate) layout: Option<String>,
    /// Round trips from each worker to each node, in microseconds; none without a layout.
    pub(crate) round_trips: Vec<Vec<u64>>,
    pub(crate) nodes: Vec<String>,
    pub(crate) workers: Vec<String>,
    pub(crate) began: Stamp,
    /// When the last fault had healed.
    pub(crate) quiet: Stamp,
    pub(crate) ended: Stamp,
    pub(crate) faults: Vec<Done>,
    pub(crate) overlaps: u64,
    /// Problems during the run, such as a fault that could not be injected.
    pub(crate) complaints: Vec<String>,
    /// How many faults of each kind were left out because the machine was too slow for the schedule.
    pub(crate) left_out: BTreeMap<String, usize>,
    /// How many locks a quorum of the nodes offered to the next waiter.
    #[serde(default)]
    pub(crate) offers: usize,
    /// Rows still in the databases at the end that should have been deleted; `None` if the nodes are no
    /// databases.
    #[serde(default)]
    pub(crate) left_behind: Option<Vec<String>>,
    /// How many events each file of the history has.
    pub(crate) files: BTreeMap<String, usize>,
}

/// The recorded events.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) history: History,
    /// How many events each file has now.
    pub(crate) files: BTreeMap<String, usize>,
}

/// A fault that was injected.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) nodes: Vec<usize>,
    pub(crate) workers: Vec<usize>,
    pub(crate) from: Stamp,
    /// When its target was fully usable again.
    pub(crate) until: Stamp,
}

const FILE: &str = "run.json";

impl RunMetadata {
    pub(crate) fn write(&self, folder: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self)
            .map_err(io::Error::from)
            .map_err(Failure::to("write the run"))?;
        fs::write(folder.join(FILE), text).map_err(Failure::to(format!("write {FILE}")))
    }

    pub(crate) fn read(folder: &Path) -> Result<RunMetadata, Failure> {
        let text = read(folder, FILE)?;
        serde_json::from_str(&text).map_err(|error| bad(folder, &format!("{FILE}: {error}")))
    }
}

/// Reads the text of the scenario that was run.
pub(crate) fn scenario(folder: &Path) -> Result<String, Failure> {
    read(folder, "scenario.toml")
}

/// Reads all recorded events.
pub(crate) fn record(folder: &Path) -> Result<Record, Failure> {
    let mut record = Record { history: History::new(), files: BTreeMap::new() };
    let files = fs::read_dir(folder.join("history")).map_err(|error| bad(folder, &error.to_string()))?;
    for file in files {
        let path = file.map_err(|error| bad(folder, &error.to_string()))?.path();
        let text = fs::read_to_string(&path).map_err(|error| bad(folder, &error.to_string()))?;
        // A process that was killed while writing leaves an incomplete line.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let part = History::from_lines(whole).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            bad(folder, &format!("{}: {error}: {cause}", path.display()))
        })?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        record.files.insert(name, part.events().len());
        record.history.extend(part.events().iter().cloned());
    }
    Ok(record)
}

fn read(folder: &Path, name: &str) -> Result<String, Failure> {
    fs::read_to_string(folder.join(name)).map_err(|error| bad(folder, &format!("{name}: {error}")))
}

fn bad(folder: &Path, why: &str) -> Failure {
    Failure::BadRecord { folder: folder.display().to_string(), why: why.to_owned() }
}
