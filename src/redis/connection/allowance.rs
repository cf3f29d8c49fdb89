//! How much a server may push: a server that floods its clients is disconnected.

use std::sync::Arc;
use std::time::Duration;

use super::ConnectionError;
use crate::runtime::clock::Clock;
use quorlock_protocol::Moment;

/// How many bytes a server may push before it has received anything.
pub(super) const FREE: usize = 64 * 1024;
/// How many more bytes it may push for each byte that it receives. It pushes each change of a key once for
/// each time that the key was read, and each key that was read is in a request: twice would suffice.
pub(super) const EARNED: usize = 8;
/// How many more bytes it may push for each second, because of the requests of other clients: the first waiter in the
/// queue of a held lock asks twice a second, and each time the holder gets some 300 bytes in its inbox, but it renews only
/// after a third of its TTL. This suffices for 1700 locks.
const EARNED_EACH_SECOND: u128 = 1024 * 1024;
/// The most bytes that it may be allowed to push: a hundred thousand changes.
pub(super) const MOST: usize = 16 * 1024 * 1024;
/// The cost of each push in addition to its bytes: the shortest has four bytes, but each has to be handled.
pub(super) const EACH: usize = 32;

/// How many more bytes a server may push.
pub(super) struct Allowance {
    pub(super) bytes: usize,
    clock: Arc<dyn Clock>,
    /// Until when the time that passes is counted.
    earned_until: Moment,
}

impl Allowance {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Allowance {
        let earned_until = clock.now();
        Allowance { bytes: FREE, clock, earned_until }
    }

    /// Records that the server has received this many bytes.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.earn(bytes.saturating_mul(EARNED));
    }

    /// Records a push.
    pub(super) fn pushed(&mut self, push: &[u8]) -> Result<(), ConnectionError> {
        let cost = push.len().saturating_add(EACH);
        if self.bytes < cost {
            self.earn_by_time();
        }
        self.bytes = self.bytes.checked_sub(cost).ok_or(ConnectionError::Flood)?;
        Ok(())
    }

    fn earn_by_time(&mut self) {
        let now = self.clock.now();
        let passed = now.since(self.earned_until).as_nanos();
        let earned = passed.saturating_mul(EARNED_EACH_SECOND) / Duration::from_secs(1).as_nanos();
        self.earned_until = now;
        self.earn(usize::try_from(earned).unwrap_or(MOST));
    }

    fn earn(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes).min(MOST);
    }
}
