//! What is counted, and when: the hands that the rest of the library turns.
//!
//! With the feature `metrics` they move what `metrics` lists; without it they are empty, and
//! calling them is nothing.

#[cfg(not(feature = "metrics"))]
mod noop;
#[cfg(feature = "metrics")]
mod recorded;

#[cfg(not(feature = "metrics"))]
pub(crate) use noop::{Acquiring, Held, LockMeter, Meters, NodeMeter, Op};
#[cfg(feature = "metrics")]
pub(crate) use recorded::{Acquiring, Held, LockMeter, Meters, NodeMeter, Op};

/// A label's values: an enum, and the words for them in the same order.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "some are told only by those who count"))]
        pub(crate) enum $name { $($variant),* }

        #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "some are told only by those who count"))]
        impl $name {
            const WORDS: &[&str] = &[$($word),*];
        }
    };
}

words! {
    /// What came of a call that asked for a lock.
    Outcome {
        Acquired = "acquired",
        Contended = "contended",
        Unavailable = "unavailable",
        Misconfigured = "misconfigured",
        Config = "config",
        Closed = "closed",
        // The caller has stopped waiting.
        Cancelled = "cancelled",
    }
}

impl Outcome {
    /// As traces and metrics show it.
    pub(crate) fn word(self) -> &'static str {
        Outcome::WORDS.get(self as usize).copied().unwrap_or_default()
    }
}

words! {
    /// Why a lease was lost.
    Loss { Expired = "expired", QuorumLost = "quorum_lost", MaxHold = "max_hold", Closed = "closed" }
}

words! {
    /// When the rest of a validity is looked at.
    At { Acquire = "acquire", Renewal = "renewal", Release = "release" }
}

words! {
    /// What came of a renewal.
    Renewed {
        Confirmed = "confirmed",
        // No quorum has said anything; it is tried again.
        Unconfirmed = "unconfirmed",
        // The quorum came after the end of the old validity.
        Late = "late",
        // So many nodes do not hold the key that others may.
        QuorumLost = "quorum_lost",
    }
}

words! {
    /// What came of a lease that the next in line was to have.
    Passed {
        // By one round that replaces the token.
        ByRound = "by_round",
        // Without asking anybody.
        Locally = "locally",
        // No quorum in time: the next one has to contend for it.
        Failed = "failed",
    }
}
