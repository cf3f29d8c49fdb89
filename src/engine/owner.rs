//! Reentrancy: an owner may acquire a lock again while holding it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::hold::WeakHold;
use crate::error::ConfigError;
use crate::runtime::Mutex;
use quorlock_protocol::Keys;

/// An owner that may acquire a lock again while holding it: reentrancy.
///
/// The count is kept in the client, not on the nodes, where an increment that reaches only some of
/// them would make them disagree (rule I-19). Acquiring a lock again costs no request: the inner
/// lease shares token, deadline and loss with the outer one, whose validity is checked. Releasing
/// the last lease releases the lock. The options of the first lease are those of all: `max_hold`, `shared` or a TTL of
/// a lock that is acquired again have no effect.
///
/// [Several locks together](crate::Coordinator::lock_all) are one lock: while the owner holds one of them in another
/// set, or alone, it would wait for itself, and is refused with [`ConfigError::Overlap`].
///
/// An owner is neither a thread nor a task: clone it to pass it along, or use [`Owner::scope`]. Two
/// tasks with the same owner do not exclude each other.
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
/// let inner = lock.acquire().await?; // without an owner it would wait for `outer` until it gave up
/// inner.release().await?;
/// outer.release().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct Owner {
    held: Arc<Mutex<Vec<Arc<Slot>>>>,
}

/// What an owner has of one lock.
pub(crate) struct Slot {
    /// The coordinator's number.
    coordinator: u64,
    keys: Keys,
    /// The hold, if there is one.
    pub(crate) held: Mutex<WeakHold>,
    /// Locked by the task that acquires the lock.
    pub(crate) acquiring: tokio::sync::Mutex<()>,
}

tokio::task_local! {
    static CURRENT: Owner;
}

impl Owner {
    /// Creates an owner that holds nothing yet.
    #[must_use]
    pub fn new() -> Owner {
        Owner::default()
    }

    /// Runs `work` with a new owner, which [`reentrant`](crate::Lock::reentrant) locks find
    /// implicitly, without passing it from function to function. A nested scope has the same owner.
    /// Tasks that the work spawns are outside.
    ///
    /// # Cancel safety
    ///
    /// That of `work`.
    pub async fn scope<T>(work: impl Future<Output = T>) -> T {
        CURRENT.scope(Owner::current().unwrap_or_default(), work).await
    }

    /// Like [`scope`](Owner::scope), for programs [without async](crate::blocking). Threads that
    /// the work starts are outside.
    #[cfg(feature = "blocking")]
    pub fn scope_blocking<T>(work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(Owner::current().unwrap_or_default(), work)
    }

    pub(crate) fn current() -> Option<Owner> {
        CURRENT.try_with(Owner::clone).ok()
    }

    /// What it has of the lock of these keys; refuses one whose keys it holds as those of another lock.
    pub(crate) fn slot(&self, coordinator: u64, keys: &Keys) -> Result<Arc<Slot>, ConfigError> {
        let mut held = self.held.lock();
        // Drops entries that are neither held nor being acquired, so that an owner of many locks in
        // turn does not grow.
        held.retain(|slot| Arc::strong_count(slot) > 1 || slot.held.lock().is_held());
        for slot in held.iter().filter(|slot| slot.coordinator == coordinator) {
            if slot.keys == *keys {
                return Ok(slot.clone());
            }
            if slot.keys.iter().any(|other| keys.iter().any(|key| key == other))
                && let Some(resource) = slot.held.lock().resource()
            {
                return Err(ConfigError::Overlap { held: resource });
            }
        }
        let (holds, acquiring) = (Mutex::default(), tokio::sync::Mutex::default());
        let slot = Arc::new(Slot { coordinator, keys: keys.clone(), held: holds, acquiring });
        held.push(slot.clone());
        Ok(slot)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.held.lock();
        f.debug_struct("Owner").field("held", &held.len()).finish_non_exhaustive()
    }
}
