//! Notices that the server does not answer, or that its Sentinels do not.

use std::time::Duration;

use super::{End, Pace, Session};
use crate::node::NodeError;

/// The connection is given up after this time without a reply, for platforms and networks in which the
/// operating system does not notice.
const GIVE_UP: Duration = Duration::from_secs(30);

impl Session<'_> {
    /// Records that the server has replied.
    pub(super) fn alive(&mut self) {
        let now = self.last_reply;
        self.has_answered = true;
        self.connector.answered(now);
        if self.pace == Pace::Stalled {
            self.pace = Pace::Fluent;
            self.timer = Some(self.clock.sleep_until(now + self.stall));
            self.state.open();
        }
    }

    /// Records when the Sentinels do not confirm the master any more, and when they do again. They are asked every second,
    /// which wakes this task.
    pub(super) fn check_sentinels(&mut self) {
        let Some(watch) = &self.watch else { return };
        match (self.pace, watch.allows(self.clock.now())) {
            (Pace::Fluent, Err(reason)) => {
                self.pace = Pace::Unconfirmed;
                self.state.unconfirmed(reason);
            }
            (Pace::Unconfirmed, Ok(())) => {
                self.pace = Pace::Fluent;
                self.state.open();
            }
            (Pace::Fluent, Ok(())) | (Pace::Unconfirmed, Err(_)) | (Pace::Stalled, _) => {}
        }
    }

    /// Checks whether the node has stalled, or has been stalled for too long.
    pub(super) fn check_stall(&mut self) -> Option<End> {
        let Some(oldest) = self.in_flight.front() else {
            self.timer = None;
            return None;
        };
        // Requests are answered in order: time counts from the last reply, if that arrived after the oldest
        // request was sent.
        let since = oldest.at.max(self.last_reply);
        let now = self.clock.now();
        if now >= since + GIVE_UP {
            let waited = humantime::format_duration(GIVE_UP);
            return Some(End::Lost(format!("no answer for {waited}").into()));
        }
        if now >= since + self.stall {
            if self.pace != Pace::Stalled {
                self.pace = Pace::Stalled;
                self.state.stalled(stalled(self.stall));
            }
            self.timer = Some(self.clock.sleep_until(since + GIVE_UP));
        } else {
            self.timer = Some(self.clock.sleep_until(since + self.stall));
        }
        None
    }
}

pub(super) fn stalled(after: Duration) -> NodeError {
    let reason = format!("it has not answered for more than {}", humantime::format_duration(after));
    NodeError::Unresponsive { reason: reason.into() }
}
