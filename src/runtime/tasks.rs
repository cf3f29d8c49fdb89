//! The tasks of a coordinator, which any of its runtimes may drive.
//!
//! Work that began on one runtime may concern another: a lock is passed on to a waiter there, or a
//! lease is released there. So a task's work is separate from the runtimes that drive it, and
//! nothing in it is bound to one: it waits for responses, for other tasks and for
//! [timers](crate::runtime::timer), not for timers of a runtime. A caller that waits for a task has
//! its own runtime drive it too. A task that no runtime drives any more is kept for the next call.
//! See docs/adr/0007-leases-and-timeouts.md.

use std::collections::BTreeMap;
use std::future::Future;
use std::mem;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::runtime::Mutex;

use futures::future::{BoxFuture, FutureExt as _};
use slab::Slab;
use smallvec::SmallVec;
use tokio::runtime::{Handle, Id};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::timer::{Timers, Until};

/// How often a waiting caller checks that its task is driven, if there are several runtimes.
const DRIVE_CHECK: Duration = Duration::from_millis(50);

/// Spawns tasks and waits for them.
#[derive(Clone, Debug)]
pub(crate) struct Tasks {
    /// Everything that [`Coordinator::close`](crate::Coordinator::close) waits for.
    pub(crate) tracker: TaskTracker,
    registry: Weak<Registry>,
}

/// The unfinished tasks of a coordinator. Lives as long as the coordinator has a handle: a task
/// keeps what the coordinator needs, and would otherwise keep itself forever.
pub(crate) struct Registry {
    timers: Arc<Timers>,
    /// The runtime of the first call.
    first: OnceLock<Id>,
    /// Whether calls have come from several runtimes.
    several: AtomicBool,
    /// Whether there are tasks that no runtime drives.
    orphaned: AtomicBool,
    inside: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    spawned: u64,
    /// By their numbers.
    unfinished: BTreeMap<u64, Arc<Task>>,
    /// Waiting callers, woken when there is another runtime or an orphaned task.
    waiting: Slab<Waker>,
}

impl Tasks {
    pub(crate) fn new(timers: Arc<Timers>) -> (Tasks, Arc<Registry>) {
        let registry = Arc::new(Registry {
            timers,
            first: OnceLock::new(),
            several: AtomicBool::new(false),
            orphaned: AtomicBool::new(false),
            inside: Mutex::default(),
        });
        (Tasks { tracker: TaskTracker::new(), registry: Arc::downgrade(&registry) }, registry)
    }

    /// Spawns a task on `runtime` and on the caller's runtime, which is known to be driven.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static, runtime: &Handle) {
        let work: BoxFuture<'static, ()> = Box::pin(self.tracker.track_future(work));
        let here = Handle::try_current().ok();
        let task = |number| {
            let (work, registry) = (Mutex::new(Some(work)), self.registry.clone());
            Arc::new(Task { work, drivers: Mutex::default(), number, registry })
        };
        let task = match self.registry.upgrade() {
            Some(registry) => {
                [Some(runtime), here.as_ref()]
                    .into_iter()
                    .flatten()
                    .for_each(|runtime| registry.see(runtime));
                let mut inside = registry.inside.lock();
                inside.spawned += 1;
                let task = task(inside.spawned);
                inside.unfinished.insert(task.number, task.clone());
                task
            }
            None => task(0),
        };
        // Both drivers are created before either of them can find that its runtime has shut down.
        let drivers = [Some(runtime), here.as_ref()].map(|on| Some((on?, task.driver(on?)?)));
        for (runtime, driver) in drivers.into_iter().flatten() {
            drop(runtime.spawn(driver));
        }
    }

    pub(crate) fn registry(&self) -> Weak<Registry> {
        self.registry.clone()
    }
}

/// Waits for tasks and, if there are several runtimes, has this one drive them.
///
/// # Panics
///
/// When polled outside a Tokio runtime.
pub(crate) struct Helped<F> {
    wait: F,
    registry: Weak<Registry>,
    /// One more than the index of its waker in the registry: smaller so, and there is one in each waiting caller.
    seat: Option<NonZeroUsize>,
    look: Option<Box<Until>>,
}

impl<F> Helped<F> {
    pub(crate) fn new(registry: Weak<Registry>, wait: F) -> Helped<F> {
        Helped { wait, registry, seat: None, look: None }
    }
}

impl<F: Future + Unpin> Future for Helped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        if let Poll::Ready(output) = Pin::new(&mut this.wait).poll(context) {
            return Poll::Ready(output);
        }
        let Some(registry) = this.registry.upgrade() else { return Poll::Pending };
        let here = Handle::current();
        // Before the first check, so that no wake-up is missed.
        registry.register(&mut this.seat, context);
        registry.see(&here);
        while registry.several.load(Ordering::Acquire) {
            drop(registry.help(&here));
            let look =
                this.look.insert(Box::new(registry.timers.until(Some(registry.timers.now() + DRIVE_CHECK))));
            if Pin::new(&mut **look).poll(context).is_pending() {
                break;
            }
        }
        Poll::Pending
    }
}

impl<F> Drop for Helped<F> {
    fn drop(&mut self) {
        if let (Some(seat), Some(registry)) = (self.seat, self.registry.upgrade()) {
            let waker = registry.inside.lock().waiting.try_remove(seat.get() - 1);
            drop(waker);
        }
    }
}

impl Registry {
    /// Records a call from this runtime.
    pub(crate) fn see(&self, runtime: &Handle) {
        let is_first = *self.first.get_or_init(|| runtime.id()) == runtime.id();
        if !is_first && !self.several.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Whether there are tasks that no runtime drives.
    pub(crate) fn has_orphans(&self) -> bool {
        self.orphaned.load(Ordering::Acquire)
    }

    /// Registers the waker in `seat`.
    fn register(&self, seat: &mut Option<NonZeroUsize>, context: &Context<'_>) {
        let mut inside = self.inside.lock();
        match seat.and_then(|seat| inside.waiting.get_mut(seat.get() - 1)) {
            Some(waker) if waker.will_wake(context.waker()) => {}
            Some(waker) => {
                let before = mem::replace(waker, context.waker().clone());
                drop(inside);
                // It may be the last reference to a task, which may own another caller that waits.
                drop(before);
            }
            None => *seat = NonZeroUsize::new(inside.waiting.insert(context.waker().clone()) + 1),
        }
    }

    fn wake(&self) {
        let waiting: Vec<_> = self.inside.lock().waiting.iter().map(|(_, waker)| waker.clone()).collect();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Has this runtime drive all unfinished tasks and fire the overdue timers of the others.
    /// Returns the new drivers.
    pub(crate) fn help(&self, here: &Handle) -> Vec<JoinHandle<()>> {
        self.orphaned.store(false, Ordering::Release);
        let unfinished: Vec<_> = self.inside.lock().unfinished.values().cloned().collect();
        let drivers = unfinished.iter().filter_map(|task| task.driver(here));
        let driven = drivers.map(|driver| here.spawn(driver)).collect();
        self.timers.fire_overdue(here.id());
        driven
    }

    /// Removes a task that is done.
    fn forget(&self, task: &Task) {
        let done = self.inside.lock().unfinished.remove(&task.number);
        // Dropped after the lock is released: it may be the last reference to a driver.
        drop(done);
    }
}

/// A task's work and its drivers.
struct Task {
    /// `None` once it is done. Locked while it is polled.
    work: Mutex<Option<BoxFuture<'static, ()>>>,
    /// At most one on each runtime, with its waker.
    drivers: Mutex<SmallVec<[(Id, Waker); 1]>>,
    number: u64,
    registry: Weak<Registry>,
}

impl Task {
    /// Returns a driver for this runtime, unless it has one.
    fn driver(self: &Arc<Self>, runtime: &Handle) -> Option<Driver> {
        let (mut drivers, runtime) = (self.drivers.lock(), runtime.id());
        if drivers.iter().any(|(driven, _)| *driven == runtime) {
            return None;
        }
        drivers.push((runtime, Waker::noop().clone()));
        Some(Driver { task: self.clone(), runtime })
    }
}

/// Wakes all drivers.
impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let wakers: SmallVec<[Waker; 2]> =
            self.drivers.lock().iter().map(|(_, waker)| waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Drives a task on one runtime.
struct Driver {
    task: Arc<Task>,
    runtime: Id,
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = &self.task;
        if let Some((_, waker)) = task.drivers.lock().iter_mut().find(|(driven, _)| *driven == self.runtime) {
            waker.clone_from(context.waker());
        }
        let Some(mut work) = task.work.try_lock() else {
            // Another driver is polling it, and is woken by what happens meanwhile.
            return Poll::Pending;
        };
        // A future that panicked must not be polled again.
        let Some(mut doing) = work.take() else { return Poll::Ready(()) };
        let waker = Waker::from(task.clone());
        if doing.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            *work = Some(doing);
            return Poll::Pending;
        }
        drop(work);
        // Ends the other drivers.
        waker.wake();
        Poll::Ready(())
    }
}

/// A task that is left without a driver is kept for the next call, while the coordinator has a handle.
impl Drop for Driver {
    fn drop(&mut self) {
        let task = &self.task;
        let mut drivers = task.drivers.lock();
        drivers.retain(|(driven, _)| *driven != self.runtime);
        let is_alone = drivers.is_empty();
        drop(drivers);
        // Locked, another driver is polling it.
        let Some(mut work) = task.work.try_lock() else { return };
        match task.registry.upgrade() {
            Some(registry) if work.is_none() => {
                drop(work);
                registry.forget(task);
            }
            Some(registry) if is_alone => {
                drop(work);
                registry.orphaned.store(true, Ordering::Release);
                registry.wake();
            }
            None if is_alone => {
                let undone = work.take();
                drop(work);
                drop(undone);
            }
            Some(_) | None => {
                drop(work);
                // This one may have been woken for what the others have not seen, as they found the work locked.
                task.clone().wake();
            }
        }
    }
}

/// Work that continues when its caller stops waiting: it runs in the caller's future; if that is dropped half-way, in a
/// task.
pub(crate) struct FinishInBackground<T: 'static> {
    work: Option<BoxFuture<'static, T>>,
    runtime: Handle,
    tasks: Tasks,
    #[expect(dead_code, reason = "counts as a task until it is dropped")]
    token: TaskTrackerToken,
}

impl<T> FinishInBackground<T> {
    /// Counts as one of `tasks` from here on. If a task is needed, it is spawned on `runtime`.
    pub(crate) fn new(work: BoxFuture<'static, T>, tasks: &Tasks, runtime: Handle) -> FinishInBackground<T> {
        let token = tasks.tracker.token();
        FinishInBackground { work: Some(work), runtime, tasks: tasks.clone(), token }
    }
}

impl<T> Future for FinishInBackground<T> {
    type Output = T;

    /// Once it has panicked, it is pending for ever: a future that panicked must not be polled again.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let done = work.as_mut().poll(context);
        if done.is_pending() {
            self.work = Some(work);
        }
        done
    }
}

impl<T> Drop for FinishInBackground<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.tasks.spawn(work.map(drop), &self.runtime);
        }
    }
}

#[cfg(test)]
mod tests;
