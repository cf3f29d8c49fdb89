//! The clock that counts suspend, and the seam that lets a simulation replace it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use quorlock_protocol::Moment;

/// A wait that ends at a moment of a [`Clock`].
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tells the time and waits for it.
///
/// Replace it in tests and simulations; programs use the [`SystemClock`], which is the default.
/// It must never go back, and it must go on while the machine is suspended: the nodes do not stop
/// their clocks because a laptop was closed.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Moment;

    /// Ends at `moment` or somewhat later. It may end early only if it is polled again by a caller
    /// that checks [`Clock::now`] itself, as everything in this crate does.
    fn sleep_until(&self, moment: Moment) -> Sleep;

    /// The time of the calendar, since 1970. It may jump, and orders nothing but places in a line.
    fn wall(&self) -> Duration {
        #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else asks")]
        let now = SystemTime::now();
        now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Moment {
        (**self).now()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        (**self).sleep_until(moment)
    }

    fn wall(&self) -> Duration {
        (**self).wall()
    }
}

/// `CLOCK_BOOTTIME` on Linux and Android, with timers of the async runtime.
///
/// The standard library's `Instant` and the runtime's timers stand still during suspend
/// (rust-lang/rust#87906), so a machine that wakes up would trust a lease that ended hours ago.
/// Reading `CLOCK_BOOTTIME` costs 57 ns against 44 ns, measured on Linux 6.18. The timers may fire
/// late after a suspend; every deadline is checked against the clock, never against a timer.
///
/// On Apple systems `CLOCK_MONOTONIC` counts suspend. Elsewhere this falls back to the standard
/// library's `Instant`, and a suspended machine is protected by fencing alone.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment::since_origin(suspend_aware())
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else asks")]
        Box::pin(tokio::time::sleep(moment.since(self.now())))
    }
}

#[cfg(unix)]
fn suspend_aware() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    let time = clock_gettime(CLOCK);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(not(unix))]
fn suspend_aware() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;

    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else asks")]
    let now = Instant::now();
    now.duration_since(*ORIGIN.get_or_init(|| now))
}
