//! Clocks that count ticks, and the rules of `quorlock_protocol` applied to them.

use std::time::Duration;

use quorlock_protocol::{Drift, Moment, Quarantine, Term};

/// A tick is so long that the margin of [`Drift`] falls between two ticks, and costs nothing.
const TICK: Duration = Duration::from_secs(1);

/// Returns the reading of a clock after `ticks`.
pub(crate) fn moment(ticks: u8) -> Moment {
    Moment::since_origin(span(ticks))
}

/// Returns the duration of `ticks`.
pub(crate) fn span(ticks: u8) -> Duration {
    TICK * u32::from(ticks)
}

/// Returns until when a key requested at `sent` for `ttl` ticks may be relied on, without drift.
pub(crate) fn deadline(sent: u8, ttl: u8) -> Moment {
    drift(0.0).deadline(moment(sent), span(ttl))
}

/// Returns the drift allowance for a share of each TTL.
pub(crate) fn drift(share: f64) -> Drift {
    Drift::of(share).unwrap_or_default()
}

/// Whether a lease with this deadline is still valid at `now`.
pub(crate) fn is_valid(until: Moment, now: Moment) -> bool {
    Term::until(until).remaining(now).is_some()
}

/// Returns the deadline after a renewal that was counted at `now`; `None` if that was too late.
pub(crate) fn renewed(term: &Term, to: Moment, now: Moment) -> Option<Moment> {
    if term.renew(to, now) { term.remaining(Moment::ORIGIN) } else { None }
}

/// Whether a process of this age is still in a quarantine of `length`; zero is none.
pub(crate) fn is_quarantined(length: Duration, drift: Drift, age: Duration) -> bool {
    // The library adds a margin for rounding, which would cost a whole tick here.
    let left = |length: Duration| Quarantine::new(length.saturating_sub(Drift::MARGIN), drift).left(age);
    !length.is_zero() && !left(length).is_zero()
}
