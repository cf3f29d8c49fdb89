//! The hold that a caller receives with an acquired lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::commands::{Ended, Event};
use super::lease_state::LeaseState;
use quorlock_protocol::Resource;

/// A lock that is held.
pub(crate) struct Hold {
    pub(crate) state: Arc<LeaseState>,
    pub(crate) guard: HoldGuard,
}

impl Hold {
    /// Wraps one hold that `state` has already counted.
    pub(crate) fn of(state: Arc<LeaseState>) -> Hold {
        Hold { guard: HoldGuard { state: Some(state.clone()) }, state }
    }
}

/// Counts one hold. The lock is held while there is one; reacquiring it as the same owner adds one.
pub(crate) struct HoldGuard {
    /// `None` once given up.
    state: Option<Arc<LeaseState>>,
}

impl HoldGuard {
    /// Gives up this hold. Returns the state if it was the last one.
    pub(crate) fn give_up(&mut self) -> Option<Arc<LeaseState>> {
        let state = self.state.take()?;
        (state.holds.fetch_sub(1, Ordering::AcqRel) == 1).then_some(state)
    }

    /// Gives up this hold if it is the only one; otherwise keeps it and returns `None`.
    pub(crate) fn give_up_alone(&mut self) -> Option<Arc<LeaseState>> {
        let holds = &self.state.as_ref()?.holds;
        holds.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire).ok()?;
        self.state.take()
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        if let Some(state) = self.give_up() {
            // Not even a node that panics when it is asked makes a drop panic.
            drop(catch_unwind(AssertUnwindSafe(|| state.handle(Event::End(Ended::Released(None))))));
        }
    }
}

/// Finds a lock that its owner may still hold.
#[derive(Default)]
pub(crate) struct WeakHold {
    state: Weak<LeaseState>,
}

impl WeakHold {
    pub(crate) fn of(state: &Arc<LeaseState>) -> WeakHold {
        WeakHold { state: Arc::downgrade(state) }
    }

    /// Adds a hold to a lock that is still held; `None` if it was released.
    pub(crate) fn again(&self) -> Option<Hold> {
        let state = self.state.upgrade()?;
        let one_more = |holds: u32| if holds > 0 { holds.checked_add(1) } else { None };
        state.holds.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Hold::of(state))
    }

    /// The resource, if the lease is still valid.
    pub(crate) fn resource(&self) -> Option<Resource> {
        let state = self.state.upgrade().filter(|_| self.is_held())?;
        state.runs_until(state.timers.now()).map(|_| state.resource.clone())
    }

    pub(crate) fn is_held(&self) -> bool {
        self.state.upgrade().is_some_and(|state| state.holds.load(Ordering::Acquire) > 0)
    }
}
