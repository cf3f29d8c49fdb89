//! The timers of keepers, rounds and waiters: one timer of the runtime serves all of them.
//!
//! One runtime timer per lease would be a sixth of the memory of an idle lease, and nearly all
//! timers set in an acquire and release cycle are stopped before they fire.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::runtime::Mutex;

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::clock::{Clock, Sleep};
use quorlock_protocol::Moment;

/// The timers of a coordinator.
///
/// They fire at their moment or somewhat later, and sometimes spuriously: the woken task checks the
/// clock. After the machine was suspended they fire within a second: the clock advances during
/// suspend, the runtime's timers do not, so the clock is checked once a second while any timer is
/// set.
pub(crate) struct Timers {
    clock: Arc<dyn Clock>,
    inside: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// One per runtime: a task is woken on its own runtime, and a runtime that is not driven delays
    /// no other.
    runtimes: Vec<RuntimeTimers>,
    /// How many timers have been set.
    count: u64,
}

/// The timers that were set on one runtime, where a driver fires them.
struct RuntimeTimers {
    runtime: Id,
    set: SetTimers,
    /// When the driver checks next.
    next_check: Moment,
    /// Notifies the driver of a timer that is earlier than those it knows.
    earlier: Arc<Notify>,
}

/// The timers that are set, in the order in which they are due and were set: so a seed reproduces the order of firing.
type SetTimers = BTreeMap<(Moment, u64), Waker>;

/// A timer, which may be set: on this runtime, with this key.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    place: Option<(Id, (Moment, u64))>,
}

impl Timers {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Timers> {
        Arc::new(Timers { clock, inside: Mutex::default() })
    }

    /// Sets `timer` to wake the task of `context` at the given moment only, from the current
    /// runtime.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime, and in one without timers, like a Tokio timer.
    pub(crate) fn set(self: &Arc<Self>, timer: &mut Timer, at: Moment, context: &Context<'_>) {
        self.set_on(&Handle::current(), timer, at, context);
    }

    /// Sets the timer on the runtime `here`. If that has shut down, the timer fires immediately.
    pub(crate) fn set_on(
        self: &Arc<Self>,
        here: &Handle,
        timer: &mut Timer,
        at: Moment,
        context: &Context<'_>,
    ) {
        let runtime = here.id();
        let mut inside = self.inside.lock();
        if let Some((on, key)) = timer.place
            && on == runtime
            && key.0 == at
            && let Some(waker) = inside.runtime(runtime).and_then(|queue| queue.set.get_mut(&key))
        {
            if !waker.will_wake(context.waker()) {
                let before = mem::replace(waker, context.waker().clone());
                drop(inside);
                drop(before);
            }
            return;
        }
        let before = inside.take(timer);
        inside.count += 1;
        let key = (at, inside.count);
        let driver = if inside.runtime(runtime).is_some() {
            None
        } else {
            Some(inside.begin(runtime, check_at(at, self.clock.now())))
        };
        if let Some(queue) = inside.runtime(runtime) {
            queue.set.insert(key, context.waker().clone());
            if at < queue.next_check {
                queue.next_check = at;
                queue.earlier.notify_one();
            }
            timer.place = Some((runtime, key));
        }
        drop(inside);
        drop(before);
        // Not under the lock: a runtime that is shutting down drops new tasks immediately.
        if let Some(earlier) = driver {
            let driver = TimerDriver { timers: self.clone(), runtime, earlier, drives: true };
            let sleep = {
                // For a timer of that runtime.
                let _there = here.enter();
                self.clock.sleep_until(check_at(at, self.clock.now()))
            };
            drop(here.spawn(drive(driver, sleep)));
        }
    }

    /// Stops the timer.
    pub(crate) fn stop(&self, timer: &mut Timer) {
        let waker = if timer.place.is_some() { self.inside.lock().take(timer) } else { None };
        // Dropped after the lock is released: it may be the last reference to a task.
        drop(waker);
    }

    /// Completes at the given moment; never if there is none.
    pub(crate) fn until(self: &Arc<Self>, at: Option<Moment>) -> Until {
        Until { timers: self.clone(), at, timer: Timer::default() }
    }

    /// Fires all timers once, after a change that all tasks should notice.
    pub(crate) fn fire_all(&self) {
        let all: Vec<_> =
            self.inside.lock().runtimes.iter_mut().map(|queue| mem::take(&mut queue.set)).collect();
        all.into_iter().for_each(wake);
    }

    /// Fires overdue timers of other runtimes, which may not be driven.
    pub(crate) fn fire_overdue(&self, here: Id) {
        let now = self.clock.now();
        let mut inside = self.inside.lock();
        let others = inside.runtimes.iter_mut().filter(|queue| queue.runtime != here);
        let overdue: Vec<Waker> =
            others.flat_map(|queue| queue.take_due(now.back(OVERDUE), usize::MAX)).collect();
        drop(inside);
        overdue.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }
}

/// Waits for a moment.
pub(crate) struct Until {
    timers: Arc<Timers>,
    at: Option<Moment>,
    timer: Timer,
}

impl Future for Until {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Until { timers, at, timer } = &mut *self;
        let Some(at) = *at else { return Poll::Pending };
        if timers.clock.now() >= at {
            return Poll::Ready(());
        }
        timers.set(timer, at, context);
        Poll::Pending
    }
}

impl Drop for Until {
    fn drop(&mut self) {
        self.timers.stop(&mut self.timer);
    }
}

fn wake(set: SetTimers) {
    set.into_values().for_each(Waker::wake);
}

impl RuntimeTimers {
    /// Takes the timers due by `then`, at most this many.
    fn take_due(&mut self, then: Moment, most: usize) -> Vec<Waker> {
        let mut due = Vec::new();
        while due.len() < most
            && let Some(first) = self.set.first_entry().filter(|first| first.key().0 <= then)
        {
            due.push(first.remove());
        }
        due
    }
}

/// Returns when the driver checks the clock for a timer that is due at `at`.
fn check_at(at: Moment, now: Moment) -> Moment {
    at.min(now + SUSPEND_CHECK)
}

/// How often a driver checks the clock at least.
const SUSPEND_CHECK: Duration = Duration::from_secs(1);
/// The most that fire in a batch. After a suspension of the process all may be due, and each may
/// start a task.
const FIRE_BATCH: usize = 64;
/// A driven runtime fires far sooner, unless the process was suspended.
const OVERDUE: Duration = Duration::from_millis(20);

impl Inner {
    fn runtime(&mut self, runtime: Id) -> Option<&mut RuntimeTimers> {
        self.runtimes.iter_mut().find(|queue| queue.runtime == runtime)
    }

    /// Takes the waker of a timer, if it is set.
    fn take(&mut self, timer: &mut Timer) -> Option<Waker> {
        let (runtime, key) = timer.place.take()?;
        self.runtime(runtime)?.set.remove(&key)
    }

    /// Adds a runtime. Returns what notifies its driver.
    fn begin(&mut self, runtime: Id, at: Moment) -> Arc<Notify> {
        let earlier = Arc::<Notify>::default();
        let set = SetTimers::new();
        self.runtimes.push(RuntimeTimers { runtime, set, next_check: at, earlier: earlier.clone() });
        earlier
    }

    /// Removes a runtime whose driver has ended, with the timers set there.
    fn end(&mut self, runtime: Id) -> Option<RuntimeTimers> {
        let place = self.runtimes.iter().position(|queue| queue.runtime == runtime)?;
        Some(self.runtimes.remove(place))
    }
}

/// Fires timers until none is set, so an idle coordinator has no such task.
async fn drive(mut driver: TimerDriver, mut sleep: Sleep) {
    loop {
        tokio::select! {
            biased;
            () = driver.earlier.notified() => {}
            () = &mut sleep => {}
        }
        match driver.fire_due() {
            Some(next_check) => sleep = driver.timers.clock.sleep_until(next_check),
            None => break,
        }
        // The woken tasks run before the next batch.
        yield_now().await;
    }
    // After the last check there may be another driver.
    driver.drives = false;
}

/// Fires the timers of its runtime. If it is dropped while some are set, because the runtime shuts
/// down, they fire immediately, and their tasks set new ones elsewhere.
struct TimerDriver {
    timers: Arc<Timers>,
    runtime: Id,
    earlier: Arc<Notify>,
    drives: bool,
}

impl TimerDriver {
    /// Fires due timers. Returns when to check again; `None` if none is set, which ends the driver.
    fn fire_due(&self) -> Option<Moment> {
        // Before the mutex is locked: it is the clock of the program.
        let now = self.timers.clock.now();
        let mut inside = self.timers.inside.lock();
        let queue = inside.runtime(self.runtime)?;
        let due = queue.take_due(now, FIRE_BATCH);
        let next_check = queue.set.first_key_value().map(|((at, _), _)| check_at(*at, now));
        let ended = match next_check {
            Some(next_check) => {
                queue.next_check = next_check;
                None
            }
            None => inside.end(self.runtime),
        };
        drop(inside);
        drop(ended);
        due.into_iter().for_each(Waker::wake);
        next_check
    }
}

impl Drop for TimerDriver {
    fn drop(&mut self) {
        if self.drives {
            let ended = self.timers.inside.lock().end(self.runtime);
            if let Some(queue) = ended {
                wake(queue.set);
            }
        }
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set: usize = self.inside.lock().runtimes.iter().map(|queue| queue.set.len()).sum();
        f.debug_struct("Timers").field("set", &set).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
