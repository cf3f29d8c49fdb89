use std::time::Duration;

/// The bounds that a history is checked against.
///
/// ```
/// use std::time::Duration;
/// use quorlock_history::Expectations;
///
/// let expect = Expectations::new().max_ttl(Duration::from_secs(10)).recovery(Duration::from_secs(15));
/// ```
#[derive(Clone, Debug)]
pub struct Expectations {
    pub(crate) max_ttl: Duration,
    pub(crate) grace: Duration,
    pub(crate) slack: Duration,
    pub(crate) recovery: Option<Duration>,
    pub(crate) search_steps: u64,
}

impl Expectations {
    /// Defaults: a maximum TTL of 30 s (the library's default TTL), keys cleaned up within 1 s,
    /// losses reported without any delay, recovery not checked.
    #[must_use]
    pub fn new() -> Expectations {
        Expectations {
            max_ttl: Duration::from_secs(30),
            grace: Duration::from_secs(1),
            slack: Duration::ZERO,
            recovery: None,
            search_steps: 10_000_000,
        }
    }

    /// Sets the longest TTL of the deployment. No key may have more time left, and the keys of a
    /// crashed client must be gone after it.
    #[must_use]
    pub fn max_ttl(mut self, max_ttl: Duration) -> Expectations {
        self.max_ttl = max_ttl;
        self
    }

    /// Sets how long after the end of an attempt its keys may remain on a node that was usable all along, and
    /// how long after a node becomes usable again. A value far below the TTL proves that clean-up works.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Expectations {
        self.grace = grace;
        self
    }

    /// Sets how long after the deadline, or after it resumes running, a holder may learn of a loss.
    /// Zero for simulated time; a real host has timer and scheduler delays.
    #[must_use]
    pub fn signal_slack(mut self, slack: Duration) -> Expectations {
        self.slack = slack;
        self
    }

    /// Sets the time within which every client must get a lock after the last fault that hinders it has
    /// healed: one of nodes, or of this client. Liveness is checked only if this is set, and of the clients
    /// whose faults all heal.
    #[must_use]
    pub fn recovery(mut self, bound: Duration) -> Expectations {
        self.recovery = Some(bound);
        self
    }

    /// Sets the maximum number of search steps per resource. The default, 10⁷, takes seconds; a
    /// history without violations takes a few steps per operation.
    #[must_use]
    pub fn search_steps(mut self, steps: u64) -> Expectations {
        self.search_steps = steps;
        self
    }
}

impl Default for Expectations {
    fn default() -> Expectations {
        Expectations::new()
    }
}
