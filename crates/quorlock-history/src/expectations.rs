use std::time::Duration;

/// What a history is held to, where that is a matter of figures.
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
    /// The longest TTL is 30 s, as it is in a deployment unless set otherwise; keys are cleaned up
    /// within 1 s; a loss is told with no delay at all; nothing is said about recovery.
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

    /// The longest TTL of the deployment. No key has more time left, and the keys of a crashed
    /// client are gone after it.
    #[must_use]
    pub fn max_ttl(mut self, max_ttl: Duration) -> Expectations {
        self.max_ttl = max_ttl;
        self
    }

    /// How long after an attempt is over its keys may still stand at a node that could be used all
    /// the time, and how long after a node can be used again. Far below the TTL it proves that
    /// cleaning up works.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Expectations {
        self.grace = grace;
        self
    }

    /// How long after the end of validity, or after it runs again, a holder may hear of a loss.
    /// Zero where time is simulated; a real host has its timers and schedulers.
    #[must_use]
    pub fn signal_slack(mut self, slack: Duration) -> Expectations {
        self.slack = slack;
        self
    }

    /// Within what time after the last heal every client gets a lock. Unless set, liveness is not
    /// checked; nor is it in a history with a fault that never heals.
    #[must_use]
    pub fn recovery(mut self, bound: Duration) -> Expectations {
        self.recovery = Some(bound);
        self
    }

    /// How many steps the search for an order may take for each resource. The default, 10⁷, takes
    /// seconds; a history without violations takes a few steps for each operation.
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
