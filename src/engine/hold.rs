//! What is delivered to a caller that has acquired a lock.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::lease_state::LeaseState;

/// A lock that is held, for the caller to keep.
pub(crate) struct Hold {
    pub(crate) state: Arc<LeaseState>,
    pub(crate) guard: HoldGuard,
}

impl Hold {
    /// One of those for which `state` counts.
    pub(crate) fn of(state: Arc<LeaseState>) -> Hold {
        Hold { guard: HoldGuard { state: Some(state.clone()) }, state }
    }
}

/// The lock is held for as long as there is one of these. An owner that acquires the lock again has
/// another one.
pub(crate) struct HoldGuard {
    /// `None` once it has been given up.
    state: Option<Arc<LeaseState>>,
}

impl HoldGuard {
    /// One less. What was held, if this was the last.
    pub(crate) fn give_up(&mut self) -> Option<Arc<LeaseState>> {
        let state = self.state.take()?;
        (state.holds.fetch_sub(1, Ordering::AcqRel) == 1).then_some(state)
    }

    /// What is held, if this is the only one; else it stays as it was.
    pub(crate) fn give_up_alone(&mut self) -> Option<Arc<LeaseState>> {
        let holds = &self.state.as_ref()?.holds;
        holds.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire).ok()?;
        self.state.take()
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        if let Some(state) = self.give_up() {
            state.post(|commands| commands.dropped = true);
        }
    }
}

/// Finds a lock again that its owner may still hold.
#[derive(Default)]
pub(crate) struct WeakHold {
    state: Weak<LeaseState>,
}

impl WeakHold {
    pub(crate) fn of(state: &Arc<LeaseState>) -> WeakHold {
        WeakHold { state: Arc::downgrade(state) }
    }

    /// One more of what is held already; `None` if it has been given back.
    pub(crate) fn again(&self) -> Option<Hold> {
        let state = self.state.upgrade()?;
        let one_more = |holds: u32| if holds > 0 { holds.checked_add(1) } else { None };
        state.holds.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Hold::of(state))
    }

    pub(crate) fn is_held(&self) -> bool {
        self.state.upgrade().is_some_and(|state| state.holds.load(Ordering::Acquire) > 0)
    }
}
