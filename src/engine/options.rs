//! The options of a lock, checked, for whoever acquires and keeps it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::acquire_span::SpanHandle;
use super::owner::Owner;
use super::wait::{Handoff, OnWait, Wait};
use crate::error::AcquireError;
use crate::quorum::vote_report::VoteReport;
use crate::telemetry::LockMeter;
use quorlock_protocol::{Keys, Mode, Moment, Resource, Verdict, renewal_every};

/// Whether leases have a fencing token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Fencing {
    /// They have: see [`fence`](crate::fence). Costs no round trip, except when nodes disagree about
    /// the next number, and a microsecond or two of the nodes' time.
    #[default]
    On,
    /// They have none, and acquiring is the plain `SET key token NX PX ttl` of the original
    /// algorithm: for locks that only save work, and nodes where nothing else may be stored. Every
    /// client that acquires the lock without fencing is one that no resource can refuse.
    Off,
}

/// Who renews a lease.
///
/// Where the library does, and more than a hundred leases are due at once, a renewal may be put off by a
/// thirtieth of the TTL: those before it go first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Renewal {
    /// The library does, every third of the TTL, so that two renewals may fail before the lease is
    /// lost.
    Automatic,
    /// The library does, this often. At most half of the TTL.
    Every(Duration),
    /// The holder does, by [`Lease::renew`](crate::Lease::renew), or lets the lease end.
    Manual,
}

impl Renewal {
    /// How often, if the library does.
    pub(crate) fn every(self, ttl: Duration) -> Option<Duration> {
        match self {
            Renewal::Automatic => Some(renewal_every(ttl)),
            Renewal::Every(interval) => Some(interval),
            Renewal::Manual => None,
        }
    }
}

/// The options of a lock, as they were set.
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
    /// The defaults, of a coordinator whose locks have this TTL and label.
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

/// Whether the lock can be acquired by whoever holds it.
#[derive(Clone, Debug)]
pub(crate) enum Reentry {
    None,
    /// By this owner.
    Of(Owner),
    /// By the owner in whose scope it is acquired.
    OfScope,
}

/// What one call asks for: a name, and options that were checked.
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

/// A lost contest.
#[derive(Clone, Debug)]
pub(crate) struct News {
    pub(crate) verdict: Verdict,
    pub(crate) report: Box<VoteReport>,
}

impl AcquireRequest {
    /// What the line is called in which this process waits for the lock.
    pub(crate) fn line(&self) -> &Arc<str> {
        self.keys.line()
    }

    /// Those who have several resources hand nothing over: others may want each of them. Where a node cannot
    /// transfer the lock, it is released and acquired anew.
    pub(crate) fn handoff(&self) -> Handoff {
        if self.transfers && !self.keys.are_several() { self.options.handoff } else { Handoff::times(0) }
    }

    /// The error for somebody who stops waiting.
    pub(crate) fn not_acquired(&self, News { verdict, report }: News, waited: Duration) -> AcquireError {
        let resource = self.resource.clone();
        match verdict {
            Verdict::Contended => AcquireError::Contended { resource, report, waited },
            // Carried, but when nothing was left of the validity: the nodes are too slow.
            Verdict::Unavailable | Verdict::Won => AcquireError::Unavailable { resource, report, waited },
        }
    }
}
