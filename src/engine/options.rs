//! The validated options of a lock.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::acquire_span::SpanHandle;
use super::owner::Owner;
use super::wait::{Handoff, OnWait, Wait};
use crate::error::{AcquireError, ConfigError};
use crate::telemetry::LockMeter;
use quorlock_protocol::machine::wait::Patience;
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{Keys, LeaseTiming, Mode, Moment, Resource, Verdict};

/// The longest label, in bytes.
const MAX_LABEL: usize = 200;

/// Refuses a label that is too long.
pub(crate) fn check_label(label: &str) -> Result<(), ConfigError> {
    if label.len() > MAX_LABEL {
        return Err(ConfigError::LabelTooLong { length: label.len(), most: MAX_LABEL });
    }
    Ok(())
}

/// Whether leases have a fencing token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Fencing {
    /// They have one: see [`fence`](crate::fence). Costs a microsecond or two of the nodes' time,
    /// and no round trip unless nodes disagree about the next number.
    #[default]
    On,
    /// They have none, and acquiring is the plain `SET key token NX PX ttl` of the original
    /// algorithm: for locks that only save work, and nodes on which nothing else may be stored.
    /// Resources cannot reject late writes of a client that acquires the lock without fencing.
    Off,
}

/// Who renews a lease.
///
/// If more than a hundred leases are due at the same time, the library may delay a renewal by a
/// thirtieth of the TTL, in favour of earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Renewal {
    /// The library, every third of the TTL, so that two renewals may fail before the lease is lost. More often on nodes of
    /// which a renewal proves less than the TTL ([`Node::grant_age`](crate::node::Node::grant_age)).
    Automatic,
    /// The library, at this interval: at least 10 ms, since each renewal is a request to every node, and at most half of
    /// the TTL, or of what a renewal proves.
    Every(Duration),
    /// The holder, by [`Lease::renew`](crate::Lease::renew); otherwise the lease expires.
    Manual,
}

impl Renewal {
    /// The shortest interval. It suits the shortest TTL, of 20 ms; a lease that is renewed more often takes the nodes'
    /// time and is no safer.
    const LEAST: Duration = Duration::from_millis(10);

    /// Checks the interval for leases with this TTL.
    pub(crate) fn check(self, ttl: Duration) -> Result<(), ConfigError> {
        match self {
            Renewal::Every(every) if every < Renewal::LEAST => {
                Err(ConfigError::RenewalTooFrequent { every, least: Renewal::LEAST })
            }
            Renewal::Every(every) if every > ttl / 2 => Err(ConfigError::RenewalTooRare { every, ttl }),
            Renewal::Every(_) | Renewal::Automatic | Renewal::Manual => Ok(()),
        }
    }

    /// The interval, if the library renews.
    pub(crate) fn every(self, timing: &LeaseTiming) -> Option<Duration> {
        match self {
            Renewal::Automatic => Some(timing.renewal_every()),
            Renewal::Every(interval) => Some(timing.at_most(interval)),
            Renewal::Manual => None,
        }
    }
}

/// The options of a lock.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    pub(crate) renewal: Renewal,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) label: Arc<str>,
    pub(crate) handoff: Handoff,
    pub(crate) fencing: Fencing,
    pub(crate) mode: Mode,
    pub(crate) on_wait: Option<Arc<OnWait>>,
    pub(crate) reentry: Reentry,
    pub(crate) meter: LockMeter,
}

impl Options {
    /// Returns the defaults of a coordinator whose locks have this TTL and label.
    pub(crate) fn new(ttl: Duration, label: Arc<str>, meter: LockMeter) -> Options {
        Options {
            ttl,
            label,
            meter,
            wait: Wait::default(),
            renewal: Renewal::Automatic,
            max_hold: None,
            handoff: Handoff::default(),
            fencing: Fencing::On,
            mode: Mode::Exclusive,
            on_wait: None,
            reentry: Reentry::None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").finish_non_exhaustive()
    }
}

/// Whether the holder of a lock can acquire it again.
#[derive(Clone, Debug)]
pub(crate) enum Reentry {
    None,
    /// By this owner.
    Of(Owner),
    /// By the owner of the scope in which it is acquired.
    OfScope,
}

/// A request to acquire a lock: its name and its validated options.
pub(crate) struct AcquireRequest {
    pub(crate) resource: Resource,
    pub(crate) keys: Keys,
    pub(crate) wait: Wait,
    /// Whether the nodes can pass the lock on.
    pub(crate) transfers: bool,
    pub(crate) since: Moment,
    pub(crate) span: SpanHandle,
    pub(crate) options: Arc<Options>,
}

impl Deref for AcquireRequest {
    type Target = Options;

    fn deref(&self) -> &Options {
        &self.options
    }
}

/// How an attempt was lost.
#[derive(Clone, Debug)]
pub(crate) struct News {
    pub(crate) verdict: Verdict,
    pub(crate) report: Box<VoteReport>,
}

impl AcquireRequest {
    /// How long it waits.
    pub(crate) fn patience(&self) -> Patience {
        match self.wait {
            Wait::Never => Patience::None,
            Wait::UpTo(longest) => Patience::Until(self.since + longest),
            Wait::Forever => Patience::Endless,
        }
    }

    /// The key of the wait queue in this process.
    pub(crate) fn queue_key(&self) -> &Arc<str> {
        self.keys.queue_key()
    }

    /// Several resources are not handed over, since other waiters may want each of them. Where a
    /// node cannot transfer the lock, it is released and acquired again.
    pub(crate) fn handoff(&self) -> Handoff {
        if self.transfers && !self.keys.are_several() { self.options.handoff } else { Handoff::times(0) }
    }

    /// Returns the error for a caller that stops waiting.
    pub(crate) fn not_acquired(&self, News { verdict, report }: News, waited: Duration) -> AcquireError {
        let resource = self.resource.clone();
        match verdict {
            Verdict::Contended => AcquireError::Contended { resource, report, waited },
            // Granted, but with no validity left: the nodes are too slow.
            Verdict::Unavailable | Verdict::Won => AcquireError::Unavailable { resource, report, waited },
        }
    }
}
