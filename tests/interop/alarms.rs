//! A clock by which nobody wakes up in time.

use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::runtime::{Clock, Sleep, SystemClock};

/// Tells the time, and rings no alarm that is more than half a second off: whoever waits for a lock
/// with it hears from the nodes, or never.
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
