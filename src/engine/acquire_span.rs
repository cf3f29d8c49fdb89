//! The tracing span and the metrics of a call that acquires a lock.

use std::sync::Arc;
use std::time::Duration;

use tracing::field::{Empty, display};
use tracing::{Span, debug_span};

use crate::error::AcquireError;
use crate::telemetry::{Acquiring, LockMeter, Outcome};
use quorlock_protocol::Moment;

/// The span, shared by the call and the task that acts for it. Takes one word, not five, where no
/// subscriber is listening.
#[derive(Clone, Debug)]
pub(crate) struct SpanHandle(Option<Arc<Span>>);

impl SpanHandle {
    fn by(span: Span) -> SpanHandle {
        SpanHandle(if span.is_disabled() { None } else { Some(Arc::new(span)) })
    }

    pub(crate) fn get(&self) -> Span {
        self.0.as_deref().map_or_else(Span::none, Span::clone)
    }
}

/// A call that acquires a lock. It counts as cancelled if it is dropped before it has
/// [ended](AcquireSpan::end).
pub(crate) struct AcquireSpan {
    since: Moment,
    span: SpanHandle,
    meter: Option<Acquiring>,
}

impl AcquireSpan {
    pub(crate) fn begin(
        resource: &str,
        meter: &LockMeter,
        (since, wall): (Moment, impl FnOnce() -> Duration),
        owner: impl FnOnce() -> Arc<str>,
    ) -> AcquireSpan {
        let span = debug_span!(
            "acquire",
            resource,
            owner = %owner(),
            token = Empty,
            rounds = Empty,
            outcome = Empty,
            elapsed = Empty
        );
        AcquireSpan { since, span: SpanHandle::by(span), meter: Some(meter.acquiring(since, wall)) }
    }

    /// The span, for the task that acts for the caller.
    pub(crate) fn span(&self) -> &SpanHandle {
        &self.span
    }

    /// Records the outcome: `None` if another caller in this process has the lock.
    pub(crate) fn end(mut self, outcome: Option<Result<(), &AcquireError>>, now: impl Fn() -> Moment) {
        let outcome = outcome.map_or(Outcome::Contended, classified);
        if let Some(span) = &self.span.0 {
            span.record("elapsed", display(crate::duration::format(now().since(self.since))));
            span.record("outcome", outcome.word());
        }
        if let Some(meter) = self.meter.take() {
            meter.done(outcome, now);
        }
    }
}

impl Drop for AcquireSpan {
    fn drop(&mut self) {
        if self.meter.is_some() {
            self.span.get().record("outcome", Outcome::Cancelled.word());
        }
    }
}

fn classified(outcome: Result<(), &AcquireError>) -> Outcome {
    match outcome {
        Ok(()) => Outcome::Acquired,
        Err(AcquireError::Contended { .. }) => Outcome::Contended,
        Err(AcquireError::Unavailable { .. }) => Outcome::Unavailable,
        Err(AcquireError::Misconfigured { .. }) => Outcome::Misconfigured,
        Err(AcquireError::Config(_)) => Outcome::Config,
        Err(AcquireError::Closed) => Outcome::Closed,
    }
}
