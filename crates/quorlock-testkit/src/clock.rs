//! Clocks for tests: one that the paused runtime moves, and one that runs wrong on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{Clock, Sleep};
use tokio::time::Instant;

/// The time of the tokio runtime, which `#[tokio::test(start_paused = true)]` moves.
///
/// It starts an hour after its origin, so that a computation that goes back in time does not meet
/// the origin by accident.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    made: Instant,
}

impl TokioClock {
    const HEAD_START: Duration = Duration::from_secs(3600);

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
}

/// A clock that runs too fast or too slow, and that can be put forward or back.
///
/// For drift: a rate of 1.02 gains two seconds in a hundred. As the clock of a client it must not
/// be put back: a [`Clock`] never goes back. As the clock of a server it may, because Redis
/// expires keys by the wall clock.
#[derive(Debug)]
pub struct SkewedClock {
    inner: Arc<dyn Clock>,
    made: Moment,
    rate: f64,
    jumped_nanos: AtomicI64,
}

impl SkewedClock {
    /// A clock that agrees with `inner` now and runs at `rate` times its speed, between a
    /// thousandth and a thousand times.
    #[must_use]
    pub fn new(inner: Arc<dyn Clock>, rate: f64) -> SkewedClock {
        let made = inner.now();
        let rate = if rate.is_nan() { 1.0 } else { rate.clamp(0.001, 1000.0) };
        SkewedClock { inner, made, rate, jumped_nanos: AtomicI64::new(0) }
    }

    /// Puts the clock forward. Waits that have begun do not notice, as real timers do not.
    pub fn jump_forward(&self, by: Duration) {
        self.jumped_nanos.fetch_add(nanos(by), Ordering::SeqCst);
    }

    /// Puts the clock back.
    pub fn jump_back(&self, by: Duration) {
        self.jumped_nanos.fetch_sub(nanos(by), Ordering::SeqCst);
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> Moment {
        let run = self.inner.now().since(self.made).mul_f64(self.rate);
        let jumped = self.jumped_nanos.load(Ordering::SeqCst);
        let by = Duration::from_nanos(jumped.unsigned_abs());
        let steady = self.made + run;
        if jumped < 0 { steady.back(by) } else { steady + by }
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        let wait = moment.since(self.now()).div_f64(self.rate);
        self.inner.sleep_until(self.inner.now() + wait)
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
