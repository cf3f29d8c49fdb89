//! Timeouts for making a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::runtime::clock::Clock;
use quorlock_protocol::{Moment, SENTINELS_WORD};

/// The timeout for making a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnectTimeout {
    /// For the whole, from dialling to the end of the handshake.
    Whole(Duration),
    /// For each step: dialling, TLS, login, handshake. A hung server is given up as early as possible, and a
    /// distant one is not.
    EachStep(Duration),
}

/// One round trip that loses a packet, anywhere on earth: TCP retransmits a lost first packet after a second.
/// A larger value would be useless, since the system itself gives up a connection after this time without an
/// acknowledgement (`TCP_USER_TIMEOUT` in `dial.rs`).
const STEP: Duration = Duration::from_secs(2);

impl Default for ConnectTimeout {
    fn default() -> ConnectTimeout {
        ConnectTimeout::EachStep(STEP)
    }
}

impl ConnectTimeout {
    /// Returns the timeout of one request and its reply.
    pub(super) fn step(self) -> Duration {
        match self {
            ConnectTimeout::Whole(limit) | ConnectTimeout::EachStep(limit) => limit,
        }
    }

    /// Returns the timeout for finding the master of a service through a majority of its Sentinels.
    pub(super) fn sentinels(self) -> Duration {
        match self {
            ConnectTimeout::Whole(limit) => limit / 2,
            // An older answer would be worthless.
            ConnectTimeout::EachStep(_) => SENTINELS_WORD,
        }
    }
}

/// The deadline of the current step.
#[derive(Debug)]
pub(super) struct Steps {
    limit: ConnectTimeout,
    clock: Arc<dyn Clock>,
    /// In nanoseconds since the origin of the clock.
    until: AtomicU64,
    /// Whether the server has accepted the connection.
    accepted: AtomicBool,
}

impl Steps {
    pub(super) fn new(limit: ConnectTimeout, clock: Arc<dyn Clock>) -> Arc<Steps> {
        Arc::new(Steps { limit, clock, until: AtomicU64::new(0), accepted: AtomicBool::new(false) })
    }

    /// Records whether the server has accepted the connection.
    pub(super) fn set_accepted(&self, accepted: bool) {
        self.accepted.store(accepted, Ordering::Relaxed);
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Starts the next step, or several `steps` whose ends are not observed.
    pub(super) fn next(&self, steps: u32) {
        if let ConnectTimeout::EachStep(limit) = self.limit {
            self.give(limit.saturating_mul(steps));
        }
    }

    /// Starts the next step, with a timeout of its own.
    pub(super) fn next_within(&self, limit: Duration) {
        if let ConnectTimeout::EachStep(_) = self.limit {
            self.give(limit);
        }
    }

    /// Starts the first step, and waits until a step, or the whole, has timed out.
    pub(super) fn late(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        self.give(self.limit.step());
        self.set_accepted(false);
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
