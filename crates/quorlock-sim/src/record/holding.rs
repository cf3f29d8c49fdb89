//! A hold, from its grant to its end.

use std::sync::Arc;

use quorlock::LeaseWatch;
use quorlock_history::{Stamp, What};

use super::{Moment, Recorder, Rule, attempt};
use crate::fault::Kind;
use crate::plan::Twist;
use crate::world::Time;
use crate::world::clock::HostClock;

/// A hold in the record.
pub(crate) struct Holding {
    pub(super) recorder: Arc<Recorder>,
    pub(super) clock: HostClock,
    pub(super) hold: usize,
}

impl Holding {
    /// The lease was reported as valid: it must be, until the deadline it states.
    pub(crate) fn confirmed(&self, lease: &LeaseWatch) {
        let remaining = lease.remaining();
        if remaining.is_zero() {
            return;
        }
        let now = self.recorder.world.now();
        let careless = self.recorder.plan.twist == Twist::Careless;
        let until = if careless { Time::MAX } else { now + self.clock.until_it_shows(remaining) };
        let (ended, resources, token, client) = {
            let mut state = self.recorder.state.lock();
            state.counts.checks += 1;
            let hold = &mut state.holds[self.hold];
            let renewed = until > hold.until;
            let before = std::mem::replace(&mut hold.seen, now);
            hold.until = hold.until.max(until);
            let known = (hold.ended, hold.resources.clone(), hold.token.clone(), hold.client);
            let attempt = attempt(hold.operation);
            if !known.0 {
                if renewed {
                    // At some moment since the last check.
                    let renewed =
                        What::Renewed { attempt: attempt.clone(), deadline: Stamp::from_nanos(until) };
                    state.history.record(Stamp::from_nanos(before), renewed);
                }
                state.history.record(Stamp::from_nanos(now), What::SeenValid { attempt });
            }
            known
        };
        if ended {
            return;
        }
        let (backing, plan) = (self.recorder.backing(&resources, &token), &self.recorder.plan);
        // A holder learns that nodes were emptied with its next renewal.
        let is_emptied = plan.schedule.iter().any(|entry| entry.kind == Kind::Flush);
        if backing < plan.quorum() && !is_emptied {
            let (nodes, hold) = (plan.nodes, self.hold);
            let keys = resources.iter().map(|resource| plan.key(*resource)).collect::<Vec<_>>();
            self.recorder.find(
                Rule::Backing,
                format!("the lease of client {client} on {keys:?} is reported as valid (hold {hold}), but only {backing} of {nodes} nodes have its key"),
            );
        }
    }

    /// The holder is about to downgrade to a shared lease.
    pub(crate) fn shared(&self) {
        let mut state = self.recorder.state.lock();
        let attempt = attempt(state.holds[self.hold].operation);
        state.history.record(self.recorder.stamp(), What::Shares { attempt });
        state.counts.downgraded += 1;
        drop(state);
        self.recorder.note("shared", [self.hold, 0, 0], || format!("hold {}", self.hold));
    }

    /// The holder releases the lock, or was notified of its loss.
    pub(crate) fn ended(&self, lost: bool) {
        let mut state = self.recorder.state.lock();
        let hold = &mut state.holds[self.hold];
        if std::mem::replace(&mut hold.ended, true) {
            return;
        }
        let (client, attempt) = (hold.client, attempt(hold.operation));
        let what =
            if lost { What::Lost { attempt, reason: String::new() } } else { What::Releasing { attempt } };
        state.history.record(self.recorder.stamp(), what);
        state.counts.lost += u64::from(lost);
        if !lost {
            state.moments.push((Moment::Ending, client));
        }
        drop(state);
        let what = if lost { "lost" } else { "end" };
        self.recorder.note(what, [self.hold, 0, 0], || format!("hold {}", self.hold));
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.recorder.state.lock().holds[self.hold].ended
    }

    /// The deadline has passed without a notification.
    pub(crate) fn not_notified(&self) {
        self.recorder
            .find(Rule::Telling, format!("hold {} passed its deadline before `lost` completed", self.hold));
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.ended(false);
    }
}
