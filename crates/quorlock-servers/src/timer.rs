//! Precise timers. The runtime's have a resolution of a millisecond, which is longer than a round trip
//! between two zones of a region.

use quorlock::protocol::Moment;
use quorlock::runtime::{Clock, SystemClock};

/// Waits for one moment after the other. On Linux it uses a timer of the kernel with a slack of about 50 µs;
/// elsewhere, and if none is available, that of the runtime.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    #[cfg(target_os = "linux")]
    precise: Option<precise::Precise>,
}

impl Timer {
    /// Waits until `moment`; returns immediately if it is past.
    pub(crate) async fn until(&mut self, moment: Moment) {
        let clock = SystemClock::default();
        let left = moment.since(clock.now());
        if left.is_zero() {
            return;
        }
        #[cfg(target_os = "linux")]
        {
            // Created on demand: most connections have no delay.
            if self.precise.is_none() {
                self.precise = precise::Precise::new().ok();
            }
            if let Some(precise) = &self.precise
                && precise.sleep(left).await.is_ok()
            {
                return;
            }
        }
        clock.sleep_until(moment).await;
    }
}

#[cfg(target_os = "linux")]
mod precise {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::io::read;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    /// A timer of the kernel.
    #[derive(Debug)]
    pub(super) struct Precise {
        timer: AsyncFd<OwnedFd>,
    }

    impl Precise {
        pub(super) fn new() -> io::Result<Precise> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            #[expect(
                deprecated,
                reason = "its successor is unsafe to call, and an owned descriptor is what it asks for"
            )]
            let timer = AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?;
            Ok(Precise { timer })
        }

        pub(super) async fn sleep(&self, time: Duration) -> io::Result<()> {
            let time = Timespec::try_from(time).map_err(io::Error::other)?;
            let once = Itimerspec { it_interval: Timespec::default(), it_value: time };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
            loop {
                let mut ready = self.timer.readable().await?;
                let rung = ready.try_io(|timer| Ok(read(timer.get_ref(), &mut [0_u8; 8])?));
                if let Ok(rung) = rung {
                    return rung.map(drop);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn it_never_ends_early_and_waits_again_and_again() {
        let (clock, mut timer) = (SystemClock::default(), Timer::default());
        for micros in [0, 1, 200, 200, 1_500] {
            let moment = clock.now() + Duration::from_micros(micros);
            timer.until(moment).await;
            assert!(clock.now() >= moment, "{micros} µs");
        }
    }
}
