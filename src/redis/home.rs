//! Where the task of a node lives: on the runtime of a call that needed it, while that is driven.
//!
//! The work of the task lies here, and a small task of a runtime drives it. When that runtime ends, the
//! work ends with it and the next call begins it anew on its own. When the runtime exists and nobody
//! drives it, as one whose `block_on` has returned, a call from another one takes the work away: what was
//! sent is dropped as with a broken connection, and the old task ends when it is driven again. When the
//! work panics it begins anew where it is. See docs/adr/0018-one-home.md.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::{BoxFuture, Either, select};
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tracing::{debug, error};

use super::contained::words;
use crate::node::NodeError;
use crate::runtime::clock::Clock;

/// For how long a task may leave a wake-up unheard before another runtime takes its work over. A task that
/// is driven hears it in microseconds. With what a round waits before it wakes a silent node this leaves time, of the
/// 50 ms of a node, to connect anew and to ask.
const PATIENCE: Duration = Duration::from_millis(20);

/// What is to be done for a node as long as it is used.
pub(super) trait Work: Send + Sync {
    /// The work from its beginning; after a panic with these words, if there are any. Called again only
    /// when what was made before has been dropped. `None` while that is not over.
    fn begin(&self, panicked: Option<&str>) -> Option<BoxFuture<'static, ()>>;

    /// It has been dropped, or has ended. Another call may begin it anew.
    fn ended(&self);
}

pub(super) struct Home {
    name: Arc<str>,
    clock: Arc<dyn Clock>,
    work: Box<dyn Work>,
    /// Whether there is a task that drives the work, as far as is known.
    lives: AtomicBool,
    /// Held while the work is polled.
    life: Mutex<Life>,
    place: Mutex<HomeRuntime>,
    /// How often the work was polled.
    polls: AtomicU64,
    /// Whether it is to tell when it is polled.
    woken: AtomicBool,
    stirred: Notify,
}

/// The work, while it is being done.
#[derive(Default)]
struct Life {
    /// How often it was begun or ended. A task that drove an earlier one ends.
    number: u64,
    work: Option<BoxFuture<'static, ()>>,
    /// Of the task that drives it.
    driver: Option<Waker>,
}

#[derive(Default)]
struct HomeRuntime {
    runtime: Option<Id>,
    /// Whether somebody waits for it to hear a wake-up.
    probed: bool,
}

impl Home {
    pub(super) fn new(name: Arc<str>, clock: Arc<dyn Clock>, work: Box<dyn Work>) -> Arc<Home> {
        Arc::new(Home {
            name,
            clock,
            work,
            lives: AtomicBool::new(false),
            life: Mutex::default(),
            place: Mutex::default(),
            polls: AtomicU64::new(0),
            woken: AtomicBool::new(false),
            stirred: Notify::new(),
        })
    }

    /// Begins the work on the runtime of the caller, unless it is being done.
    pub(super) fn begin(self: &Arc<Self>) -> Result<(), NodeError> {
        if self.lives.load(Ordering::Acquire) {
            return Ok(());
        }
        let runtime = runtime()?;
        let mut place = self.place();
        if !self.lives.load(Ordering::Acquire)
            && let Some(driver) = self.settle()
        {
            place.runtime = Some(runtime.id());
            self.lives.store(true, Ordering::Release);
            drop(place);
            // Not under the lock: a runtime that is being shut down drops its new tasks at once.
            runtime.spawn(driver);
        }
        Ok(())
    }

    /// The same; and if the work is done on another runtime, sees whether that is driven.
    pub(super) fn wake(self: &Arc<Self>) -> Result<(), NodeError> {
        self.begin()?;
        let here = runtime()?;
        let mut place = self.place();
        if place.probed || place.runtime.is_none_or(|runtime| runtime == here.id()) {
            return Ok(());
        }
        place.probed = true;
        drop(place);
        let probe = Probe(Arc::clone(self));
        drop(here.clone().spawn(async move { probe.0.probe(&here).await }));
        Ok(())
    }

    /// Takes the work over if it does not stir.
    async fn probe(self: &Arc<Self>, here: &Handle) {
        let mut stirred = pin!(self.stirred.notified());
        stirred.as_mut().enable();
        let Some(number) = self.rouse() else { return };
        let seen = self.polls.load(Ordering::Relaxed);
        let late = self.clock.sleep_until(self.clock.now() + PATIENCE);
        if let Either::Left(_) = select(stirred, late).await {
            return;
        }
        if let Some(work) = self.take(number, seen) {
            debug!(node = %self.name, "its runtime is not driven; it is dialled again from another one");
            // What it was asked is answered now, and who asked may ask again: that waits in the queue.
            drop(work);
            self.work.ended();
            let mut place = self.place();
            let driver = self.settle();
            place.runtime = driver.as_ref().map(|_| here.id());
            if driver.is_none() {
                self.lives.store(false, Ordering::Release);
            }
            drop(place);
            if let Some(driver) = driver {
                drop(here.spawn(driver));
            }
        }
    }

    /// Wakes the task. `None` if it is at work right now.
    fn rouse(&self) -> Option<u64> {
        let life = self.idle()?;
        self.woken.store(true, Ordering::Release);
        if let Some(driver) = &life.driver {
            driver.wake_by_ref();
        }
        Some(life.number)
    }

    /// Takes away the work that is the same as then, and has not been polled since.
    fn take(&self, number: u64, seen: u64) -> Option<BoxFuture<'static, ()>> {
        let mut life = self.idle()?;
        if life.number != number || self.polls.load(Ordering::Relaxed) != seen {
            return None;
        }
        life.number += 1;
        life.work.take()
    }

    /// The work from its beginning, to be driven.
    fn settle(self: &Arc<Self>) -> Option<Driver> {
        let mut life = self.life();
        let work = self.work.begin(None)?;
        life.number += 1;
        life.driver = None;
        life.work = Some(work);
        Some(Driver { home: Arc::clone(self), number: life.number })
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, unless the work is being polled.
    fn idle(&self) -> Option<MutexGuard<'_, Life>> {
        match self.life.try_lock() {
            Ok(life) => Some(life),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn place(&self) -> MutexGuard<'_, HomeRuntime> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is one at a time.
struct Probe(Arc<Home>);

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.place().probed = false;
    }
}

/// Drives the work of one life.
struct Driver {
    home: Arc<Home>,
    number: u64,
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let home = &self.home;
        home.polls.fetch_add(1, Ordering::Relaxed);
        if home.woken.load(Ordering::Relaxed) {
            home.woken.store(false, Ordering::Relaxed);
            home.stirred.notify_waiters();
        }
        let mut life = home.life();
        if life.number != self.number {
            return Poll::Ready(());
        }
        if life.driver.as_ref().is_none_or(|driver| !driver.will_wake(context.waker())) {
            life.driver = Some(context.waker().clone());
        }
        let Some(work) = &mut life.work else { return Poll::Ready(()) };
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(polled) => polled,
            Err(panic) => {
                let panic = words(&*panic);
                error!(node = %home.name, panic, "the task of the node panicked; the node is dialled again");
                drop(life.work.take());
                life.work = home.work.begin(Some(panic));
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

/// The work is over, or the runtime is being shut down.
impl Drop for Driver {
    fn drop(&mut self) {
        let mut life = self.home.life();
        if life.number != self.number {
            return;
        }
        life.number += 1;
        let work = life.work.take();
        drop(life);
        // What is asked meanwhile waits in the queue.
        drop(work);
        self.home.work.ended();
        self.home.lives.store(false, Ordering::Release);
    }
}

/// The runtime that a node's task lives on.
fn runtime() -> Result<Handle, NodeError> {
    Handle::try_current().map_err(|_| {
        let reason = "there is no Tokio runtime here to connect from; call from within one";
        NodeError::Unreachable { reason: reason.into() }
    })
}
