//! Shrinks a failing run while it keeps failing.

use std::time::Duration;

use crate::plan::Options;
use crate::sim::{Outcome, run};

/// The maximum number of runs per seed.
const RUNS: usize = 150;

/// Removes clients, time and faults while `seed` still violates the same guarantee. Returns the
/// smallest options found, and their outcome.
///
/// # Panics
///
/// Like [`run`].
#[must_use]
pub fn shrink(seed: u64, options: &Options, failed: Outcome) -> (Options, Outcome) {
    let mut search = Search { seed, runs: 0, options: options.clone(), failed };
    search.shorten();
    for clients in 2..search.failed.clients {
        if search.try_options(Options { most_clients: clients, ..search.options.clone() }) {
            break;
        }
    }
    search.leave_out();
    search.shorten();
    (search.options, search.failed)
}

struct Search {
    seed: u64,
    runs: usize,
    /// The smallest options that failed so far.
    options: Options,
    failed: Outcome,
}

impl Search {
    /// Tries smaller options; returns whether they fail in the same way.
    fn try_options(&mut self, mut options: Options) -> bool {
        if self.runs >= RUNS {
            return false;
        }
        self.runs += 1;
        options.trace = false;
        let outcome = run(self.seed, &options);
        let rule = |outcome: &Outcome| outcome.finding.as_ref().map(|finding| finding.rule);
        let fails = rule(&outcome).is_some() && rule(&outcome) == rule(&self.failed);
        if fails {
            (self.options, self.failed) = (options, outcome);
        }
        fails
    }

    /// Ends the faults shortly after the finding.
    fn shorten(&mut self) {
        let Some(finding) = &self.failed.finding else { return };
        let span = Duration::from_secs(finding.at.as_secs() + 1);
        if span < self.options.span {
            self.try_options(Options { span, ..self.options.clone() });
        }
    }

    /// Leaves out faults: half of them, a quarter, and so on down to single ones.
    fn leave_out(&mut self) {
        let all = || (0..self.failed.entries).collect();
        let mut kept: Vec<usize> = self.options.kept.clone().unwrap_or_else(all);
        let mut size = kept.len().div_ceil(2);
        while size > 0 {
            let mut start = 0;
            while start < kept.len() {
                let end = (start + size).min(kept.len());
                let fewer: Vec<usize> = kept[..start].iter().chain(&kept[end..]).copied().collect();
                if self.try_options(Options { kept: Some(fewer.clone()), ..self.options.clone() }) {
                    kept = fewer;
                } else {
                    start = end;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
}
