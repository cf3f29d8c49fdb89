//! The tasks of a coordinator, which any of its runtimes may drive.
//!
//! Work that began on one runtime may concern another: a lock is passed on to a waiter there, or a
//! lease is released there. So a task's work is separate from the runtimes that drive it, and
//! nothing in it is bound to one: it waits for responses, for other tasks and for
//! [timers](crate::runtime::timer), not for timers of a runtime. A caller that waits for a task has
//! its own runtime drive it too. A task that no runtime drives any more is kept for the next call.
//! See docs/adr/0007-leases-and-timeouts.md.

use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::runtime::Mutex;

use futures::future::BoxFuture;
use slab::Slab;
use smallvec::SmallVec;
use tokio::runtime::{Handle, Id};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::timer::{Timers, Until};

/// How often a waiting caller checks that its task is driven, if there are several runtimes.
const DRIVE_CHECK: Duration = Duration::from_millis(50);

/// Spawns tasks and waits for them.
#[derive(Clone)]
pub(crate) struct Tasks {
    /// Everything that [`Coordinator::close`](crate::Coordinator::close) waits for.
    pub(crate) tracker: TaskTracker,
    known: Arc<Known>,
}

/// What every call reads and few change: apart from the registry, so that reading it touches no
/// reference count shared by all processors.
struct Known {
    /// The runtime of the first call.
    first: OnceLock<Id>,
    /// Whether calls have come from several runtimes.
    several: AtomicBool,
    orphaned: AtomicBool,
    registry: Weak<Registry>,
}

/// The unfinished tasks of a coordinator. Lives as long as the coordinator has a handle: a task
/// keeps what the coordinator needs, and would otherwise keep itself forever.
pub(crate) struct Registry {
    timers: Arc<Timers>,
    known: Arc<Known>,
    inside: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    unfinished: Slab<Weak<Task>>,
    orphans: Vec<Arc<Task>>,
    /// Waiting callers, woken when there is another runtime or an orphaned task.
    waiting: Slab<Waker>,
}

impl Tasks {
    pub(crate) fn new(timers: Arc<Timers>) -> (Tasks, Arc<Registry>) {
        let registry = Arc::new_cyclic(|registry| Registry {
            timers,
            known: Arc::new(Known {
                first: OnceLock::new(),
                several: AtomicBool::new(false),
                orphaned: AtomicBool::new(false),
                registry: registry.clone(),
            }),
            inside: Mutex::default(),
        });
        (Tasks { tracker: TaskTracker::new(), known: registry.known.clone() }, registry)
    }

    /// Spawns a task on `runtime` and on the caller's runtime, which is known to be driven.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static, runtime: &Handle) {
        let work: BoxFuture<'static, ()> = Box::pin(self.tracker.track_future(work));
        let registry = self.registry();
        let task = Arc::new(Task {
            work: Mutex::new(Some(work)),
            drivers: Mutex::default(),
            place: OnceLock::new(),
            registry,
        });
        let here = Handle::try_current().ok().filter(|here| here.id() != runtime.id());
        if let Some(registry) = self.known.registry.upgrade() {
            registry.see(runtime);
            if let Some(here) = &here {
                registry.see(here);
            }
            let place = registry.inside.lock().unfinished.insert(Arc::downgrade(&task));
            let _ = task.place.set(place);
        }
        // Both drivers are created before either of them can find that its runtime has shut down.
        let other = here.map(|here| (task.driver(&here), here));
        drop(runtime.spawn(task.driver(runtime)));
        if let Some((driver, here)) = other {
            drop(here.spawn(driver));
        }
    }

    /// Records a call from this runtime.
    pub(crate) fn see(&self, runtime: &Handle) {
        if self.known.is_new(runtime)
            && let Some(registry) = self.known.registry.upgrade()
        {
            registry.see(runtime);
        }
    }

    /// Whether there are tasks that no runtime drives.
    pub(crate) fn are_left(&self) -> bool {
        self.known.orphaned.load(Ordering::Acquire)
    }

    /// Has this runtime drive all unfinished tasks. Returns the new drivers.
    pub(crate) fn help(&self, here: &Handle) -> Vec<JoinHandle<()>> {
        self.known.registry.upgrade().map(|registry| registry.help(here)).unwrap_or_default()
    }

    pub(crate) fn registry(&self) -> Weak<Registry> {
        self.known.registry.clone()
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
        while registry.known.several.load(Ordering::Acquire) {
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

impl Known {
    /// Whether this is another runtime than that of the first call.
    fn is_new(&self, runtime: &Handle) -> bool {
        *self.first.get_or_init(|| runtime.id()) != runtime.id()
    }
}

impl Registry {
    fn see(&self, runtime: &Handle) {
        if self.known.is_new(runtime) && !self.known.several.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Registers the waker in `seat`.
    fn register(&self, seat: &mut Option<NonZeroUsize>, context: &Context<'_>) {
        let mut inside = self.inside.lock();
        match seat.and_then(|seat| inside.waiting.get_mut(seat.get() - 1)) {
            Some(waker) if waker.will_wake(context.waker()) => {}
            Some(waker) => waker.clone_from(context.waker()),
            None => *seat = NonZeroUsize::new(inside.waiting.insert(context.waker().clone()) + 1),
        }
    }

    fn wake(&self) {
        let waiting: Vec<_> = self.inside.lock().waiting.iter().map(|(_, waker)| waker.clone()).collect();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Has this runtime drive all unfinished tasks and fire the overdue timers of the others.
    /// Returns the new drivers.
    fn help(&self, here: &Handle) -> Vec<JoinHandle<()>> {
        self.known.orphaned.store(false, Ordering::Release);
        let mut inside = self.inside.lock();
        let orphans = std::mem::take(&mut inside.orphans);
        let unfinished: Vec<_> = inside.unfinished.iter().filter_map(|(_, task)| task.upgrade()).collect();
        // A task that has finished meanwhile is dropped after the lock is released.
        drop(inside);
        let others = unfinished.iter().filter(|task| !task.is_driven_by(here));
        let driven = others.map(|task| here.spawn(task.driver(here))).collect();
        drop(orphans);
        self.timers.fire_overdue(here.id());
        driven
    }

    /// Keeps a task that no runtime drives for the next call.
    fn keep(&self, task: Arc<Task>) {
        self.inside.lock().orphans.push(task);
        self.known.orphaned.store(true, Ordering::Release);
        self.wake();
    }
}

/// A task's work and its drivers.
struct Task {
    /// `None` once it is done. Locked while it is polled.
    work: Mutex<Option<BoxFuture<'static, ()>>>,
    drivers: Mutex<Drivers>,
    /// The index among the unfinished tasks.
    place: OnceLock<usize>,
    registry: Weak<Registry>,
}

#[derive(Default)]
struct Drivers {
    count: u64,
    all: SmallVec<[DriverEntry; 1]>,
}

struct DriverEntry {
    number: u64,
    runtime: Id,
    waker: Option<Waker>,
}

impl Task {
    fn driver(self: &Arc<Self>, runtime: &Handle) -> Driver {
        let mut drivers = self.drivers.lock();
        drivers.count += 1;
        let number = drivers.count;
        drivers.all.push(DriverEntry { number, runtime: runtime.id(), waker: None });
        Driver { task: self.clone(), number }
    }

    fn is_driven_by(&self, runtime: &Handle) -> bool {
        self.drivers.lock().all.iter().any(|seat| seat.runtime == runtime.id())
    }
}

/// Wakes all drivers.
impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let wakers: SmallVec<[Waker; 2]> =
            self.drivers.lock().all.iter().filter_map(|seat| seat.waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let (Some(registry), Some(place)) = (self.registry.upgrade(), self.place.get()) {
            drop(registry.inside.lock().unfinished.try_remove(*place));
        }
    }
}

/// Drives a task on one runtime.
struct Driver {
    task: Arc<Task>,
    number: u64,
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = &self.task;
        if let Some(seat) = task.drivers.lock().all.iter_mut().find(|seat| seat.number == self.number)
            && seat.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker()))
        {
            seat.waker = Some(context.waker().clone());
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

impl Drop for Driver {
    fn drop(&mut self) {
        let mut drivers = self.task.drivers.lock();
        drivers.all.retain(|seat| seat.number != self.number);
        let alone = drivers.all.is_empty();
        drop(drivers);
        if !alone {
            return;
        }
        let unfinished = self.task.work.lock().take();
        let Some(work) = unfinished else { return };
        match self.task.registry.upgrade() {
            Some(registry) => {
                *self.task.work.lock() = Some(work);
                registry.keep(self.task.clone());
            }
            None => drop(work),
        }
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("unfinished", &self.tracker.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("unfinished", &self.inside.lock().unfinished.len())
            .finish_non_exhaustive()
    }
}
