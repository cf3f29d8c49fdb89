//! Waiting for a lock that is held.
//!
//! The `queue` has the waiters of this process and the hints from the nodes. The `contender` asks
//! the nodes on behalf of all of them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tracing::error;

use quorlock_protocol::printable;
use quorlock_protocol::votes::{Holder, taken};

/// How long to wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wait {
    /// Asks once.
    Never,
    /// Up to this long; but always long enough to ask once.
    UpTo(Duration),
    /// Until the lock is acquired.
    Forever,
}

/// Up to 35 s: longer than the default TTL and `max_ttl`, 30 s each. A waiter thus outlasts a
/// crashed holder, and the quarantine of a node that has restarted or of a new database.
impl Default for Wait {
    fn default() -> Wait {
        Wait::UpTo(Duration::from_secs(35))
    }
}

/// Up to this long; zero is [`Wait::Never`].
impl From<Duration> for Wait {
    fn from(longest: Duration) -> Wait {
        if longest.is_zero() { Wait::Never } else { Wait::UpTo(longest) }
    }
}

/// The progress of a wait, as reported to a listener.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Waiting {
    /// The holder, as far as the nodes agree.
    pub holder: Option<Holder>,
    /// How many callers in this process wait before this one.
    pub ahead: usize,
    /// How many other processes wait before this one, as reported by a node; 8 means 8 or more.
    /// `None` if no node keeps a queue, and for shared or multi-resource locks.
    pub processes: Option<u32>,
    /// How long the wait has lasted.
    pub waited: Duration,
}

/// A listener for the progress of a wait.
pub(crate) type OnWait = dyn Fn(&Waiting) + Send + Sync;

/// Calls `listener`. A panic in it must not strand the other waiters.
pub(crate) fn notify_listener(listener: &OnWait, waiting: &Waiting) {
    if catch_unwind(AssertUnwindSafe(|| listener(waiting))).is_err() {
        error!(%waiting, "a wait listener panicked");
    }
}

/// How often a lease may pass from one waiter of a process to the next before other processes get a
/// chance.
///
/// Passing on is fast, since it costs one round without competition; but it keeps other processes
/// out. Without [fencing](crate::Fencing::Off) it costs no request: the key stays on the nodes, and
/// others still read the label of its first holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handoff {
    /// The most times in a row.
    pub(crate) times: u32,
    /// The longest time from the first to the last.
    pub(crate) span: Option<Duration>,
}

impl Handoff {
    /// At most `times` times in a row; 0 for never.
    #[must_use]
    pub fn times(times: u32) -> Handoff {
        Handoff { times, span: None }
    }

    /// And for at most `span` in a row; one TTL unless set.
    #[must_use]
    pub fn within(self, span: Duration) -> Handoff {
        Handoff { span: Some(span), ..self }
    }
}

impl Default for Handoff {
    /// 64 times and one TTL: other processes wait about as long as for one slow holder.
    fn default() -> Handoff {
        Handoff { times: 64, span: None }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.holder {
            Some(holder) => {
                if let Some(key) = &holder.key {
                    write!(f, "`{}` ", printable(key))?;
                }
                f.write_str(&taken(&holder.token, &holder.readers))
            }
            None => f.write_str("other clients come first, or the votes are split between several"),
        }
    }
}
