//! What one window gives, and the figures that are made of it.

use crate::order::Findings;

/// What processes and servers have used so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Used {
    /// Seconds.
    pub(crate) client: f64,
    /// Of all Redis servers together, as the next two; zero for other systems.
    pub(crate) servers: f64,
    pub(crate) commands: f64,
    pub(crate) bytes: f64,
}

pub(crate) struct Window {
    pub(crate) findings: Findings,
    pub(crate) before: Used,
    pub(crate) after: Used,
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

    fn each(&self, used: impl Fn(&Used) -> f64) -> f64 {
        (used(&self.after) - used(&self.before)) / self.findings.all as f64
    }

    /// Seconds for ten thousand grants.
    pub(crate) fn client_cpu(&self) -> f64 {
        self.each(|used| used.client * 1e4)
    }

    /// Milliseconds for each grant.
    pub(crate) fn client_millis(&self) -> f64 {
        self.each(|used| used.client * 1e3)
    }

    pub(crate) fn server_cpu(&self) -> f64 {
        self.each(|used| used.servers * 1e4)
    }

    pub(crate) fn commands(&self) -> f64 {
        self.each(|used| used.commands)
    }

    pub(crate) fn bytes(&self) -> f64 {
        self.each(|used| used.bytes)
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
