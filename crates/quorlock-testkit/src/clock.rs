//! Clocks for tests: one that the paused runtime moves, and one that runs wrong on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::runtime::{Clock, Sleep};
use tokio::time::Instant;

/// The time of the tokio runtime, which `#[tokio::test(start_paused = true)]` moves.
///
/// It starts an hour after its origin, so that a computation that goes back in time does not meet
/// the origin by accident. Its calendar starts with the year 2026, whatever the year is, so that two
/// runs of a simulation see the same dates.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    made: Instant,
}

impl TokioClock {
    const HEAD_START: Duration = Duration::from_secs(3600);
    const NEW_YEAR: Duration = Duration::from_secs(1_767_225_600);

    /// A clock that starts now. Clocks made at different times show different times.
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

/// A clock that runs too fast or too slow, and that can be put forward or back.
///
/// For drift: a rate of 1.02 gains two seconds in a hundred. As the clock of a client it must not
/// be put back: a [`Clock`] never goes back. As the clock of a server it may, because Redis
/// expires keys by the wall clock. Its calendar goes with it, and can be wrong by itself.
#[derive(Debug)]
pub struct SkewedClock {
    inner: Arc<dyn Clock>,
    made: Moment,
    rate: f64,
    jumped_nanos: AtomicI64,
    /// By how much the calendar is ahead of that.
    calendar_nanos: AtomicI64,
}

impl SkewedClock {
    /// A clock that agrees with `inner` now and runs at `rate` times its speed, between a
    /// thousandth and a thousand times.
    #[must_use]
    pub fn new(inner: Arc<dyn Clock>, rate: f64) -> SkewedClock {
        let made = inner.now();
        let rate = if rate.is_nan() { 1.0 } else { rate.clamp(0.001, 1000.0) };
        let (jumped_nanos, calendar_nanos) = (AtomicI64::new(0), AtomicI64::new(0));
        SkewedClock { inner, made, rate, jumped_nanos, calendar_nanos }
    }

    /// Puts the clock forward. Waits that have begun do not notice, as real timers do not.
    pub fn jump_forward(&self, by: Duration) {
        self.jumped_nanos.fetch_add(nanos(by), Ordering::SeqCst);
    }

    /// Puts the clock back.
    pub fn jump_back(&self, by: Duration) {
        self.jumped_nanos.fetch_sub(nanos(by), Ordering::SeqCst);
    }

    /// Puts only the calendar forward, [`Clock::wall`]: the clock of somebody who has the wrong date.
    pub fn calendar_forward(&self, by: Duration) {
        self.calendar_nanos.fetch_add(nanos(by), Ordering::SeqCst);
    }

    /// Puts only the calendar back.
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

/// `time`, and so much more or less.
fn moved(time: Duration, nanos: i64) -> Duration {
    let by = Duration::from_nanos(nanos.unsigned_abs());
    if nanos < 0 { time.saturating_sub(by) } else { time.saturating_add(by) }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
