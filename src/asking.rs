//! What is told of a call that asks for a lock: its span, and its place in the metrics.

use tracing::field::{Empty, display};
use tracing::{Span, debug_span};

use crate::error::AcquireError;
use crate::meter::{Acquiring, LockMeter};
use crate::protocol::Moment;

/// A call that asks for a lock, until that is over in whatever way: dropped before it has
/// [ended](Asking::end), it was cancelled.
pub(crate) struct Asking {
    since: Moment,
    span: Span,
    meter: Option<Acquiring>,
}

impl Asking {
    pub(crate) fn begin(
        resource: &str,
        meter: &LockMeter,
        since: Moment,
        owner: impl FnOnce() -> std::sync::Arc<str>,
    ) -> Asking {
        let span = debug_span!(
            "acquire",
            resource,
            owner = %owner(),
            token = Empty,
            rounds = Empty,
            outcome = Empty,
            elapsed = Empty
        );
        Asking { since, span, meter: Some(meter.acquiring(since)) }
    }

    /// For whoever acts for the caller.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// `None` if somebody else in this process has the lock.
    pub(crate) fn end(mut self, outcome: Option<Result<(), &AcquireError>>, now: impl Fn() -> Moment) {
        if !self.span.is_disabled() {
            self.span.record("elapsed", display(humantime::format_duration(now().since(self.since))));
            self.span.record("outcome", outcome.map_or("contended", word));
        }
        match (self.meter.take(), outcome) {
            (Some(meter), Some(outcome)) => meter.done(outcome, now),
            (Some(meter), None) => meter.taken_here(),
            (None, _) => {}
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.meter.is_some() {
            self.span.record("outcome", "cancelled");
        }
    }
}

fn word(outcome: Result<(), &AcquireError>) -> &'static str {
    match outcome {
        Ok(()) => "acquired",
        Err(AcquireError::Contended { .. } | AcquireError::Full(_)) => "contended",
        Err(AcquireError::Unavailable { .. }) => "unavailable",
        Err(AcquireError::NeedsMending { .. }) => "needs_mending",
        Err(AcquireError::Config(_) | AcquireError::InAsyncContext(_)) => "config",
        Err(AcquireError::Closed) => "closed",
    }
}
