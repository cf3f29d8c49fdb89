//! Who may acquire a lock again while holding it.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use super::hold::WeakHold;

/// Somebody who may acquire a lock again while holding it: reentrancy.
///
/// The count is kept here, in the client, and never at the nodes, where an increment that reaches
/// only some of them would come apart (rule I-19). Acquiring a lock again costs no request: the
/// inner lease shares token, end and loss with the outer one, whose validity is checked. The last
/// lease to be released gives the lock back.
///
/// An owner is not a thread and not a task: pass it along by clone, or have it found by
/// [`Owner::scope`]. Two tasks with the same owner do not exclude each other.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use quorlock::Owner;
///
/// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
/// let me = Owner::new();
/// let lock = coordinator.lock("orders/42").owner(&me);
/// let outer = lock.acquire().await?;
/// let inner = lock.acquire().await?; // would wait for ever without an owner
/// inner.release().await?;
/// outer.release().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct Owner {
    held: Arc<Mutex<HashMap<Held, Slot>>>,
}

/// Of which coordinator, and what.
type Held = (u64, Arc<str>);
/// What is held, if it is. Locked while it is being acquired.
type Slot = Arc<tokio::sync::Mutex<WeakHold>>;

tokio::task_local! {
    static CURRENT: Owner;
}

impl Owner {
    /// Somebody who holds nothing yet.
    #[must_use]
    pub fn new() -> Owner {
        Owner::default()
    }

    /// Runs `work` with an owner of its own, which [`reentrant`](crate::Lock::reentrant) locks find
    /// by themselves, in functions that know nothing of each other. A scope within a scope is the
    /// same owner. Tasks that the work spawns are outside.
    ///
    /// # Cancel safety
    ///
    /// As the work's.
    pub async fn scope<T>(work: impl Future<Output = T>) -> T {
        CURRENT.scope(Owner::current().unwrap_or_default(), work).await
    }

    /// As [`scope`](Owner::scope), for programs [without async](crate::blocking). Threads that the work
    /// starts are outside.
    #[cfg(feature = "blocking")]
    pub fn scope_blocking<T>(work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(Owner::current().unwrap_or_default(), work)
    }

    pub(crate) fn current() -> Option<Owner> {
        CURRENT.try_with(Owner::clone).ok()
    }

    pub(crate) fn slot(&self, coordinator: u64, key: &Arc<str>) -> Slot {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // What is neither held nor being acquired is forgotten, so that an owner of many locks in
        // turn does not grow.
        held.retain(|_, slot| {
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|held| held.is_held())
        });
        held.entry((coordinator, key.clone())).or_default().clone()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Owner").field("held", &held.len()).finish_non_exhaustive()
    }
}
