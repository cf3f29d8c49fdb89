//! Clocks for tests: one that follows the paused runtime, and one that is deliberately wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::runtime::{Clock, Sleep};
use tokio::time::Instant;

/// The time of the tokio runtime, which `#[tokio::test(start_paused = true)]` controls.
///
/// It starts an hour after its origin, so that a computation that goes back in time does not reach the origin
/// by accident. Its calendar always starts at the beginning of 2026, so that two runs of a simulation see the
/// same dates.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    made: Instant,
}

impl TokioClock {
    const HEAD_START: Duration = Duration::from_secs(3600);
    const NEW_YEAR: Duration = Duration::from_secs(1_767_225_600);

    /// Creates a clock that starts now. Clocks created at different times show different times.
    #[must_use]
    pub fn new() -> TokioClock {
        #[expect(clippy::disallowed_methods, reason = "this is a clock")]
        TokioClock { made: Instant::now() }
    }
}

impl Default for TokioClock {
    fn default() -> TokioClock {
        TokioClock::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment::since_origin(TokioClock::HEAD_START + self.made.elapsed())
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        #[expect(clippy::disallowed_methods, reason = "this is a clock")]
        Box::pin(tokio::time::sleep(moment.since(self.now())))
    }

    fn wall(&self) -> Duration {
        TokioClock::NEW_YEAR + self.made.elapsed()
    }
}

/// A clock that runs too fast or too slow, and can be set forward or back.
///
/// For drift: a rate of 1.02 gains two seconds in a hundred. As the clock of a client it must not be set
/// back: a [`Clock`] is monotonic. As the clock of a server it may, because Redis expires keys by the wall
/// clock. Its calendar moves with it, and can also be set separately.
#[derive(Debug)]
pub struct SkewedClock {
    inner: Arc<dyn Clock>,
    made: Moment,
    rate: f64,
    jumped_nanos: AtomicI64,
    /// How far the calendar is ahead of the clock.
    calendar_nanos: AtomicI64,
}

impl SkewedClock {
    /// Creates a clock that agrees with `inner` now and runs at `rate` times its speed, between a thousandth
    /// and a thousand.
    #[must_use]
    pub fn new(inner: Arc<dyn Clock>, rate: f64) -> SkewedClock {
        let made = inner.now();
        let rate = if rate.is_nan() { 1.0 } else { rate.clamp(0.001, 1000.0) };
        let (jumped_nanos, calendar_nanos) = (AtomicI64::new(0), AtomicI64::new(0));
        SkewedClock { inner, made, rate, jumped_nanos, calendar_nanos }
    }

    /// Sets the clock forward. As with real timers, waits in progress are not affected.
    pub fn jump_forward(&self, by: Duration) {
        self.jumped_nanos.fetch_add(nanos(by), Ordering::SeqCst);
    }

    /// Sets the clock back.
    pub fn jump_back(&self, by: Duration) {
        self.jumped_nanos.fetch_sub(nanos(by), Ordering::SeqCst);
    }

    /// Sets only the calendar ([`Clock::wall`]) forward, for a client with the wrong date.
    pub fn calendar_forward(&self, by: Duration) {
        self.calendar_nanos.fetch_add(nanos(by), Ordering::SeqCst);
    }

    /// Sets only the calendar back.
    pub fn calendar_back(&self, by: Duration) {
        self.calendar_nanos.fetch_sub(nanos(by), Ordering::SeqCst);
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> Moment {
        let run = self.inner.now().since(self.made).mul_f64(self.rate);
        let since = moved(self.made.since(Moment::ORIGIN) + run, self.jumped_nanos.load(Ordering::SeqCst));
        Moment::since_origin(since)
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        let wait = moment.since(self.now()).div_f64(self.rate);
        self.inner.sleep_until(self.inner.now() + wait)
    }

    fn wall(&self) -> Duration {
        let (right, wrong) = (self.inner.now(), self.now());
        let wall = (self.inner.wall() + wrong.since(right)).saturating_sub(right.since(wrong));
        moved(wall, self.calendar_nanos.load(Ordering::SeqCst))
    }
}

/// Returns `time` plus `nanos`, which may be negative.
fn moved(time: Duration, nanos: i64) -> Duration {
    let by = Duration::from_nanos(nanos.unsigned_abs());
    if nanos < 0 { time.saturating_sub(by) } else { time.saturating_add(by) }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
