//! The guarantees, and the finding that one was violated.

use std::fmt;
use std::time::Duration;

/// A violated guarantee.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The time since the start of the simulation.
    pub at: Duration,
    /// The guarantee.
    pub rule: Rule,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} violated at {:.6} s: {}", self.rule, self.at.as_secs_f64(), self.text)
    }
}

/// A guarantee.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Rule {
    /// No two clients hold a lock at the same time.
    Exclusion,
    /// A semaphore never has more holders than permits, and can have as many.
    Permits,
    /// An observer is shown only leaders that a quorum of nodes had stored while it asked, and
    /// every leader that stays.
    Observing,
    /// While a lease is reported as valid, its key is stored on a quorum of the nodes.
    Backing,
    /// A later hold has a larger fencing token.
    Fencing,
    /// A loss is reported by the deadline.
    Telling,
    /// An attempt that has ended leaves no key behind.
    Orphan,
    /// Without faults, every client gets the lock.
    Liveness,
    /// A bounded wait is not exceeded by much.
    Patience,
    /// Nothing panics.
    Panic,
}
