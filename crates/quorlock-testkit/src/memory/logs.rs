//! The logs of the locks of a memory node.

use std::collections::BTreeMap;
use std::sync::Arc;

use quorlock::node::record::Outcome;
use quorlock::node::{Request, Vote};
use quorlock::protocol::{LOG_EXPIRY, LoggedHold, micros};

/// The holds of each lock, the oldest first, and until when they are kept.
#[derive(Default)]
pub(super) struct Logs(BTreeMap<Arc<str>, (Vec<LoggedHold>, u64)>);

impl Logs {
    /// Applies a request at `now`, in microseconds, if it is about a log.
    pub(super) fn apply(&mut self, request: &Request, now: u64) -> Option<Outcome> {
        self.0.retain(|_, (_, ends)| *ends > now);
        let vote = if let Request::LogHold { key, hold, most } = request {
            let (holds, ends) = self.0.entry(Arc::clone(key)).or_default();
            holds.retain(|known| *known != **hold);
            holds.push(LoggedHold::clone(hold));
            holds.drain(..holds.len().saturating_sub(*most));
            *ends = now.saturating_add(micros(LOG_EXPIRY));
            Vote::Granted
        } else if let Request::ReadLog { key } = request {
            Vote::Log(self.0.get(key).map(|(holds, _)| holds.as_slice().into()).unwrap_or_default())
        } else {
            return None;
        };
        Some((vote, None))
    }

    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}
