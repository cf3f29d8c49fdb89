//! How long making a connection may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::runtime::clock::Clock;
use quorlock_protocol::{Moment, SENTINELS_WORD};

/// How long making a connection may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnectLimit {
    /// From dialling to the last word of the introduction.
    Whole(Duration),
    /// For each step: to dial, to negotiate TLS, to log in, to introduce itself. So a server that hangs
    /// is given up as soon as it is certain, and a distant one is not.
    EachStep(Duration),
}

/// One round trip that loses a packet, anywhere on earth: TCP sends a lost first packet again after a
/// second. The system itself gives a connection up that has confirmed nothing for that long
/// (`TCP_USER_TIMEOUT` in `dial.rs`), so there would be no use in more.
const STEP: Duration = Duration::from_secs(2);

impl Default for ConnectLimit {
    fn default() -> ConnectLimit {
        ConnectLimit::EachStep(STEP)
    }
}

impl ConnectLimit {
    /// For one request and its answer.
    pub(super) fn step(self) -> Duration {
        match self {
            ConnectLimit::Whole(limit) | ConnectLimit::EachStep(limit) => limit,
        }
    }

    /// For finding out where the master of a service is, from most of its Sentinels.
    pub(super) fn sentinels(self) -> Duration {
        match self {
            ConnectLimit::Whole(limit) => limit / 2,
            // What they say is of no use any more after that.
            ConnectLimit::EachStep(_) => SENTINELS_WORD,
        }
    }
}

/// Until when the step has to be over that is being taken.
#[derive(Debug)]
pub(super) struct Steps {
    limit: ConnectLimit,
    clock: Arc<dyn Clock>,
    /// In nanoseconds since the origin of the clock.
    until: AtomicU64,
}

impl Steps {
    pub(super) fn new(limit: ConnectLimit, clock: Arc<dyn Clock>) -> Arc<Steps> {
        Arc::new(Steps { limit, clock, until: AtomicU64::new(0) })
    }

    /// The next step begins, or several that nobody sees the ends of.
    pub(super) fn next(&self, steps: u32) {
        if let ConnectLimit::EachStep(limit) = self.limit {
            self.give(limit.saturating_mul(steps));
        }
    }

    /// The next step begins, and has a limit of its own.
    pub(super) fn next_within(&self, limit: Duration) {
        if let ConnectLimit::EachStep(_) = self.limit {
            self.give(limit);
        }
    }

    /// Ends when it has taken too long to connect, as of now, or to take a step of that.
    pub(super) fn late(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        self.give(self.limit.step());
        let steps = Arc::clone(self);
        async move {
            loop {
                let until = Moment::from_nanos(steps.until.load(Ordering::Relaxed));
                if steps.clock.now() >= until {
                    return;
                }
                steps.clock.sleep_until(until).await;
            }
        }
    }

    fn give(&self, limit: Duration) {
        self.until.store((self.clock.now() + limit).nanos(), Ordering::Relaxed);
    }
}
