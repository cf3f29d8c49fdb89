//! Waiting for a lock that others hold.
//!
//! Everything that this process knows of a contended key is in its `queue`: who waits for it
//! here, in which order, and what the nodes have hinted at. One of those who wait talks to the
//! nodes for all of them: the `contender`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tracing::error;

use crate::quorum::vote_report::{Holder, taken};
use quorlock_protocol::Moment;

/// How long to wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wait {
    /// Ask once.
    Never,
    /// Until so much time has passed.
    UpTo(Duration),
    /// Until the lock is there.
    Forever,
}

/// Up to 35 s: longer than the default TTL and `max_ttl`, 30 s each. So a client that waits gets the lock of a holder that
/// has crashed, and that of a node which has restarted, or of a database that is new, and has no vote before.
impl Default for Wait {
    fn default() -> Wait {
        Wait::UpTo(Duration::from_secs(35))
    }
}

/// What somebody who waits for a lock is told meanwhile.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Waiting {
    /// Who holds the lock, as far as the nodes agree.
    pub holder: Option<Holder>,
    /// How many in this process came before and wait too.
    pub ahead: usize,
    /// How many other processes came before this one and wait too, as a node tells: 8 stands for 8 or more. `None`
    /// where no node keeps a queue, and for locks that are shared or several.
    pub processes: Option<u32>,
    /// How long the wait has lasted.
    pub waited: Duration,
}

/// Whoever wants to be told.
pub(crate) type OnWait = dyn Fn(&Waiting) + Send + Sync;

/// Tells `listener`. If that panics it is its own affair: the others who wait are not to be stranded.
pub(crate) fn tell(listener: &OnWait, waiting: &Waiting) {
    if catch_unwind(AssertUnwindSafe(|| listener(waiting))).is_err() {
        error!(%waiting, "a listener that was told about waiting has panicked");
    }
}

/// How often a lease may pass from one waiter of a process to the next before the others, in other
/// processes, get their chance.
///
/// Passing on costs one round and no contest, so it is fast; it is also a monopoly for as long as
/// it goes on. Without [fencing](crate::Fencing::Off) it costs nothing: the key stays at the nodes as
/// it is, and others go on reading the label of whoever acquired it first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handoff {
    /// In a row.
    pub(crate) times: u32,
    /// From the first to the last of them.
    pub(crate) span: Option<Duration>,
}

impl Handoff {
    /// At most so many times in a row; 0 for never.
    #[must_use]
    pub fn times(times: u32) -> Handoff {
        Handoff { times, span: None }
    }

    /// And for no longer than `span` in a row, which is one TTL unless set.
    #[must_use]
    pub fn within(self, span: Duration) -> Handoff {
        Handoff { span: Some(span), ..self }
    }
}

impl Default for Handoff {
    /// 64 times, and one TTL: others wait about as long as for a holder that takes its time.
    fn default() -> Handoff {
        Handoff { times: 64, span: None }
    }
}

/// Leases passed on from one waiter of this process to the next, without a chance for others.
#[derive(Clone, Copy)]
pub(crate) struct HandoffStreak {
    began: Moment,
    passed: u32,
}

impl HandoffStreak {
    pub(crate) fn new(now: Moment) -> HandoffStreak {
        HandoffStreak { began: now, passed: 0 }
    }

    /// Whether one more may follow, where so many may within this time.
    pub(crate) fn goes_on(&mut self, (times, span): (u32, Duration), now: Moment) -> bool {
        let goes_on = self.passed < times && now.since(self.began) < span;
        self.passed += 1;
        goes_on
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.holder {
            Some(holder) => {
                if let Some(key) = &holder.key {
                    write!(f, "`{key}` ")?;
                }
                f.write_str(&taken(&holder.token, &holder.readers))
            }
            None => f.write_str("wanted by several at once"),
        }
    }
}
