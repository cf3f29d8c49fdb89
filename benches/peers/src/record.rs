//! The results of a run, as stored between measuring and reporting.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::order::{Findings, Work};

/// One run of one part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// When it ended.
    pub(crate) date: String,
    /// What was measured of this project.
    #[serde(default)]
    pub(crate) commit: String,
    pub(crate) servers: Vec<String>,
    /// Subject and version of those that took part.
    pub(crate) versions: Vec<(String, String)>,
    /// Subject and reason.
    pub(crate) skipped: Vec<(String, String)>,
    pub(crate) rows: Vec<Row>,
    pub(crate) millis: u64,
}

/// One subject under one workload, several windows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) subject: String,
    pub(crate) work: Work,
    /// Tasks of one process, or the number of processes with one task each.
    pub(crate) tasks: usize,
    /// What proxies add to each round trip, in milliseconds.
    pub(crate) round_trip: u64,
    pub(crate) windows: Vec<Window>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) findings: Findings,
    pub(crate) client_cpu: f64,
    /// Of all Redis servers together; not available for other systems.
    pub(crate) server_cpu: f64,
    pub(crate) commands: u64,
    #[serde(default)]
    pub(crate) bytes: u64,
}

impl Record {
    pub(crate) fn read(path: &Path) -> Result<Record> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a record", path.display()))
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, serde_json::to_string_pretty(self)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    pub(crate) fn row(&self, subject: &str, key: (Work, usize, u64)) -> Option<&Row> {
        self.rows.iter().find(|row| row.subject == subject && key == (row.work, row.tasks, row.round_trip))
    }
}

impl Row {
    /// The median of the windows.
    pub(crate) fn median(&self, figure: impl Fn(&Window) -> f64) -> f64 {
        let mut figures: Vec<f64> = self.windows.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts and microseconds of a benchmark are small numbers")]
impl Window {
    pub(crate) fn rate(&self) -> f64 {
        self.findings.count as f64 * 1e6 / self.findings.micros as f64
    }

    pub(crate) fn millis(&self) -> f64 {
        self.findings.micros as f64 / 1000.0
    }

    pub(crate) fn p50(&self) -> f64 {
        self.findings.p50 as f64
    }

    /// Seconds for ten thousand grants.
    pub(crate) fn client_cpu(&self) -> f64 {
        self.client_cpu * 1e4 / self.findings.all as f64
    }

    /// Milliseconds for each grant.
    pub(crate) fn client_millis(&self) -> f64 {
        self.client_cpu * 1e3 / self.findings.all as f64
    }

    pub(crate) fn server_cpu(&self) -> f64 {
        self.server_cpu * 1e4 / self.findings.all as f64
    }

    pub(crate) fn commands(&self) -> f64 {
        self.commands as f64 / self.findings.all as f64
    }

    pub(crate) fn bytes(&self) -> f64 {
        self.bytes as f64 / self.findings.all as f64
    }

    /// How often a second the lock passed from one task to another.
    pub(crate) fn changes(&self) -> f64 {
        let tasks = self.findings.grants.iter().enumerate();
        let mut grants: Vec<(u64, usize)> =
            tasks.flat_map(|(task, began)| began.iter().map(move |began| (*began, task))).collect();
        grants.sort_unstable();
        let changes = grants.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        changes as f64 * 1e6 / self.findings.micros as f64
    }

    /// How many of a hundred tasks never held the lock.
    pub(crate) fn unserved(&self) -> f64 {
        let grants = &self.findings.grants;
        grants.iter().filter(|began| began.is_empty()).count() as f64 * 100.0 / grants.len() as f64
    }

    /// Jain's fairness index: 1 if all had the same share, 1/n if one had everything.
    pub(crate) fn fairness(&self) -> f64 {
        let shares = || self.findings.grants.iter().map(|began| began.len() as f64);
        shares().sum::<f64>().powi(2)
            / (shares().count() as f64 * shares().map(|share| share * share).sum::<f64>())
    }
}
