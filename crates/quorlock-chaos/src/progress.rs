//! The progress display.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::worker::Status;

/// A progress bar on the terminal; hidden if stderr is no terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    faults: AtomicU64,
}

impl Progress {
    pub(crate) fn new(quiet: bool) -> Progress {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{prefix:.bold} {wide_msg}") {
            bar.set_style(style);
        }
        Progress { bar, faults: AtomicU64::new(0) }
    }

    /// Shows the current step.
    pub(crate) fn says(&self, what: &'static str) {
        self.bar.set_message(what);
    }

    /// Starts the bar of a scenario.
    pub(crate) fn begin(&self, scenario: &str, duration: Duration) {
        let template = "{prefix:.bold} {bar:20.cyan/dim} {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
        self.bar.set_prefix(scenario.to_owned());
        self.bar.set_length(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        self.faults.store(0, Ordering::Relaxed);
    }

    /// Counts an injected fault.
    pub(crate) fn fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    /// Shows the counts of the workers so far.
    pub(crate) fn shows(&self, passed: Duration, workers: &[Status]) {
        let all = workers.iter().fold(Status::default(), |sum, status| sum.and(*status));
        self.bar.set_position(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX));
        let faults = self.faults.load(Ordering::Relaxed);
        let Status { acquired, not_acquired, lost, .. } = all;
        self.bar.set_message(format!(
            "{:.0} s  acquired {acquired}, not {not_acquired}, lost {lost}, faults {faults}",
            passed.as_secs_f64()
        ));
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
