use std::future::{pending, poll_fn};
use std::sync::atomic::AtomicUsize;

use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::runtime::clock::SystemClock;

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

fn tasks() -> (Tasks, Arc<Registry>) {
    Tasks::new(Timers::new(Arc::new(SystemClock::default())))
}

/// The driver of a task that waits for an answer was woken by it while another one polled the task, did nothing, and was not
/// woken again by that one, whose runtime ended then: the task went on for no answer.
#[test]
fn what_happens_while_a_driver_polls_for_the_last_time_is_handled_by_another_one() {
    let ((_, registry), runtimes) = (tasks(), [runtime(), runtime()]);
    let (woken, other) = (Arc::<Woken>::default(), Arc::<Mutex<Option<Driver>>>::default());
    let (waker, lasting) = (Waker::from(woken.clone()), other.clone());
    let work = poll_fn(move |context| {
        // An answer comes.
        context.waker().wake_by_ref();
        let mut lasting = lasting.lock();
        let lasting = Pin::new(lasting.as_mut().unwrap());
        assert!(lasting.poll(&mut Context::from_waker(&waker)).is_pending(), "the work is locked");
        Poll::<()>::Pending
    });
    let work = Mutex::new(Some(work.boxed()));
    let (drivers, registry) = (Mutex::default(), Arc::downgrade(&registry));
    let task = Arc::new(Task { work, drivers, number: 1, registry });
    let [mut ends, lasts] = runtimes.each_ref().map(|runtime| task.driver(runtime.handle()).unwrap());
    *other.lock() = Some(lasts);
    assert!(Pin::new(&mut ends).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let before = woken.0.load(Ordering::Relaxed);
    drop(ends);
    assert_eq!(woken.0.load(Ordering::Relaxed), before + 1);
    // It owns the task, which owns it.
    drop(other.lock().take());
}

/// The last waker of a task that owns another caller.
struct Owner {
    registry: Arc<Registry>,
    was_free: Arc<AtomicBool>,
}

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.was_free.store(self.registry.inside.try_lock().is_some(), Ordering::Relaxed);
    }
}

#[test]
fn a_caller_that_waits_in_another_task_drops_the_one_before_without_a_lock() {
    let ((_, registry), runtime) = (tasks(), runtime());
    let _here = runtime.enter();
    let was_free = Arc::<AtomicBool>::default();
    let mut waits = Helped::new(Arc::downgrade(&registry), pending::<()>());
    let owner = Waker::from(Arc::new(Owner { registry, was_free: was_free.clone() }));
    assert!(Pin::new(&mut waits).poll(&mut Context::from_waker(&owner)).is_pending());
    drop(owner);
    assert!(Pin::new(&mut waits).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(was_free.load(Ordering::Relaxed));
}
