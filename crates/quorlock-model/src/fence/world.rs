//! The bounds of the model, and the schemes for fencing tokens.

use std::time::Duration;

use crate::clock;
use crate::common::Detail;

/// How an attempt gets its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// The largest number among the votes is issued, however few nodes carry it.
    NoWriteBack,
    /// It is written back, but any node may confirm it, even if its counter is ahead.
    AnyNodeConfirms,
    /// A node may also confirm it if its counter is there already.
    EqualConfirms,
}

/// The bounds of the model, in ticks. They limit what may happen.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// The length of a tick; a microsecond is one step of the counters.
    pub(crate) tick: Duration,
    /// When time stops. If zero, no clock is read, and `clocks_ahead` are merely hints.
    pub(crate) ticks: u8,
    /// The counters start with any numbers up to this.
    pub(crate) counters_up_to: u64,
    /// Each attempt's wall clock is ahead of the nodes' clocks by one of these.
    pub(crate) clocks_ahead: Vec<u8>,
    /// How often a node's wall clock steps forwards, or back again.
    pub(crate) clock_steps: u8,
    /// By how much it steps.
    pub(crate) clock_step: u8,
    /// How far a hint may be ahead of a node's clock.
    pub(crate) lead: u8,
    /// How often a node restarts without its data.
    pub(crate) restarts: u8,
    /// How often a refused vote, or another lock with the same counter, raises one.
    pub(crate) raises: u8,
    /// How long its votes do not count after that.
    pub(crate) quarantine: u8,
    /// How long an attempt may take, exclusively.
    pub(crate) limit: u8,
    pub(crate) detail: Detail,
}

impl World {
    /// No node loses data, so no clock is needed. Attempts start with one of these hints.
    pub(crate) fn timeless(hints: &[u8]) -> World {
        World {
            tick: Duration::from_micros(1),
            ticks: 0,
            counters_up_to: 2,
            clocks_ahead: hints.to_vec(),
            clock_steps: 0,
            clock_step: 0,
            lead: u8::MAX,
            restarts: 0,
            raises: 0,
            quarantine: 0,
            limit: 1,
            detail: Detail::Reduced,
        }
    }

    /// The same without the reductions, and without hints.
    pub(crate) fn literal() -> World {
        World { detail: Detail::Literal, ..World::timeless(&[0]) }
    }

    /// Nodes restart without their data. The bounds are those of the library: the quarantine is the
    /// longest TTL; half of it bounds the length of an attempt, and the lead of a hint.
    ///
    /// Within these bounds two attempts keep the order even if clocks differ by less than the whole
    /// quarantine and attempts take less than it, so the library's bounds are on the safe side.
    ///
    /// A tick is so long that no counter runs ahead of time by counting.
    pub(crate) fn forgetful(clocks_ahead: &[u8]) -> World {
        World {
            tick: Duration::from_secs(1),
            ticks: 5,
            counters_up_to: 0,
            clocks_ahead: clocks_ahead.to_vec(),
            clock_steps: 0,
            clock_step: 0,
            lead: 2,
            restarts: 1,
            raises: 0,
            quarantine: 4,
            limit: 2,
            detail: Detail::Reduced,
        }
    }

    /// No node loses data, but clocks of nodes are set forwards and back, by more than the lead of a hint.
    pub(crate) fn stepping(clock_steps: u8) -> World {
        World {
            ticks: 2,
            lead: 1,
            restarts: 0,
            quarantine: 0,
            limit: 7,
            clock_steps,
            clock_step: 4,
            ..World::forgetful(&[0, 4])
        }
    }

    /// Refused votes raise counters, and so do other locks that share them, at any time.
    pub(crate) fn shared(hints: &[u8]) -> World {
        World { raises: 2, counters_up_to: 1, ..World::timeless(hints) }
    }

    /// Whether any clock is read.
    pub(super) fn has_time(&self) -> bool {
        self.ticks > 0
    }

    pub(super) fn is_literal(&self) -> bool {
        self.detail == Detail::Literal
    }

    pub(super) fn wall(&self, tick: u8) -> Duration {
        self.tick * u32::from(tick)
    }

    /// Whether a node that last restarted at `restarted` is in quarantine for a request sent at `sent`.
    pub(super) fn is_quarantined(&self, restarted: Option<u8>, sent: u8) -> bool {
        let length = self.wall(self.quarantine);
        restarted.is_some_and(|restarted| {
            // It restarted before the request was sent, or later.
            let age = self.wall(sent.saturating_sub(restarted));
            restarted > sent || clock::is_quarantined(length, clock::drift(0.0), age)
        })
    }
}
