//! The metrics that the rest of the library records.
//!
//! With the feature `metrics` they record what `metrics` lists; without it they are no-ops.

#[cfg(not(feature = "metrics"))]
mod noop;
#[cfg(feature = "metrics")]
mod recorded;

#[cfg(not(feature = "metrics"))]
pub(crate) use noop::{Acquiring, Held, LockMeter, Meters, NodeMeter};
#[cfg(feature = "metrics")]
pub(crate) use recorded::{Acquiring, Held, LockMeter, Meters, NodeMeter};

use crate::node::Request;

/// The values of a label: an enum, and their names in the same order.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "some are recorded only with metrics"))]
        pub(crate) enum $name { $($variant),* }

        #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "some are recorded only with metrics"))]
        impl $name {
            const WORDS: &[&str] = &[$($word),*];
        }
    };
}

words! {
    /// The outcome of an acquisition.
    Outcome {
        Acquired = "acquired",
        Contended = "contended",
        Unavailable = "unavailable",
        Misconfigured = "misconfigured",
        Config = "config",
        Closed = "closed",
        // The caller stopped waiting.
        Cancelled = "cancelled",
    }
}

impl Outcome {
    /// The name in traces and metrics.
    pub(crate) fn word(self) -> &'static str {
        Outcome::WORDS.get(self as usize).copied().unwrap_or_default()
    }
}

words! {
    /// The kind of request of a round.
    Op { Acquire = "acquire", Renew = "renew", Release = "release", Other = "other" }
}

impl Op {
    pub(crate) fn of(request: Option<&Request>) -> Op {
        match request {
            Some(Request::Acquire { .. } | Request::Transfer { .. }) => Op::Acquire,
            Some(Request::Renew { .. }) => Op::Renew,
            Some(Request::Release { .. } | Request::Offer { .. } | Request::Cancel { .. }) => Op::Release,
            Some(
                Request::WriteBack { .. }
                | Request::Enqueue { .. }
                | Request::LeaveQueue { .. }
                | Request::ListWaiters { .. }
                | Request::LogHold { .. }
                | Request::ReadLog { .. }
                | Request::Inspect { .. }
                | Request::AnnounceWriter { .. }
                | Request::WithdrawWriter { .. }
                | _,
            )
            | None => Op::Other,
        }
    }
}

words! {
    /// Why a lease was lost.
    Loss { Expired = "expired", QuorumLost = "quorum_lost", MaxHold = "max_hold", Closed = "closed" }
}

words! {
    /// When the remaining validity is measured.
    At { Acquire = "acquire", Renewal = "renewal", Release = "release" }
}

words! {
    /// The outcome of a renewal.
    Renewed {
        Confirmed = "confirmed",
        // No quorum has answered; it is retried.
        Unconfirmed = "unconfirmed",
        // The quorum came after the previous deadline.
        Late = "late",
        // Another client may have a quorum among the nodes without the key.
        QuorumLost = "quorum_lost",
    }
}

words! {
    /// The outcome of passing a lease to the next waiter.
    Passed {
        // By one round that replaces the token.
        ByRound = "by_round",
        // Without asking any node.
        Locally = "locally",
        // No quorum in time: the next waiter has to contend.
        Failed = "failed",
    }
}
