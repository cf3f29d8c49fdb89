//! A clock without long timers.

use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::runtime::{Clock, Sleep, SystemClock};

/// Returns the correct time, but no sleep longer than half a second ever ends: a client that waits for
/// a lock with it is woken by the nodes, or never.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoAlarms(SystemClock);

const SOON: Duration = Duration::from_millis(500);

impl Clock for NoAlarms {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        if moment.since(self.now()) > SOON {
            return Box::pin(std::future::pending());
        }
        self.0.sleep_until(moment)
    }
}
