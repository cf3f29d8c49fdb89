//! The promises, and the finding that one was broken.

use std::fmt;
use std::time::Duration;

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// When, since the start of the simulation.
    pub at: Duration,
    /// Which promise.
    pub rule: Rule,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} broken at {:.6} s: {}", self.rule, self.at.as_secs_f64(), self.text)
    }
}

/// A promise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Rule {
    /// No two hold a lock at once.
    Exclusion,
    /// No more hold a semaphore's permits than it has, and it fills up to that.
    Permits,
    /// An observer is told of leaders that a quorum of nodes had while it was asked, and of whoever stays.
    Observing,
    /// Whoever is told that its lease holds has its key at a quorum of the nodes.
    Backing,
    /// Whoever gets a lock later has the larger fencing token.
    Fencing,
    /// A loss is told by the end of validity.
    Telling,
    /// What has ended leaves no key behind.
    Orphan,
    /// Once nothing goes wrong any more, everybody gets the lock.
    Liveness,
    /// Whoever waits for a time does not wait much longer.
    Patience,
    /// Nothing panics.
    Panic,
}
