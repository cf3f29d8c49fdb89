//! Writes each hold that has ended into the log of its lock, if the client has one.
//!
//! The release of a lock, and who is next for it, do not depend on that: the request is one of its own, to all nodes, which
//! is sent after them, and for which no caller waits.

use super::Keeper;
use crate::error::LossReason;
use quorlock_protocol::{HoldEnd, LoggedHold};

impl Keeper {
    /// Returns the hold that ends now, or has ended with its validity, if holds are logged: the next holder may have begun
    /// since. How it has ended may be known only later.
    pub(super) fn hold(&self) -> Option<LoggedHold> {
        if self.engine.logged == 0 {
            return None;
        }
        let now = self.engine.now();
        let acquired = self.engine.nodes.clock.wall().saturating_sub(now.since(self.since));
        let held = now.min(self.until).since(self.since);
        let entry = LoggedHold::new(&self.claim, acquired, held, HoldEnd::Released);
        Some(entry.with_fencing_token(self.state.fence))
    }

    /// Writes a hold that has ended in this way.
    pub(super) fn log(&self, hold: Option<LoggedHold>, end: HoldEnd) {
        if let Some(hold) = hold {
            self.engine.log_hold(&self.claim, self.ttl(), hold.ended(end));
        }
    }
}

/// Returns how a lease ended that was lost for this reason.
pub(super) fn end_of(reason: LossReason) -> HoldEnd {
    match reason {
        LossReason::Expired => HoldEnd::Expired,
        LossReason::QuorumLost => HoldEnd::QuorumLost,
        LossReason::MaxHold => HoldEnd::MaxHold,
        LossReason::Released => HoldEnd::Released,
        LossReason::Closed => HoldEnd::Closed,
    }
}
