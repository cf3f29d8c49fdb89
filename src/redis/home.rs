//! Runs the work of a node on the runtime of a call that needed it, for as long as that runtime is driven.
//!
//! Sockets belong to the Tokio runtime that opened them. A program may use one coordinator from several
//! runtimes, shut one down, or leave one without a thread to drive it, as after `block_on` has returned. So
//! the work of a node is kept here, and a small task of some runtime, the `Driver`, polls it (I-30).
//!
//! ```text
//!                 begin                       the work ends, or its runtime
//!   not running ────────► running on A ──────────────────────────────────────► not running
//!                         │  ▲      │
//!                  panic  │  │      │ wake, from runtime B: no poll within 20 ms
//!                         └──┘      ▼
//!               begins anew       running on B; the driver on A ends when it is polled again
//! ```
//!
//! # Events
//!
//! | event | what it does |
//! |---|---|
//! | `begin` | if there is no work, starts it, and spawns its driver on the caller's runtime. Otherwise one atomic load |
//! | `wake` | also starts a probe, if the work runs on another runtime. A round calls it for nodes that are silent. Not on the thread that stands in for a runtime: the probe would wait there while that is blocked, and keep others out |
//! | `poll_here` | polls the work on the caller's thread, in place of its driver, for the thread that stands in for a runtime that may be blocked (O-12) |
//! | the probe | wakes the driver, and waits for a poll. If none comes, drops the work and starts it on its own runtime |
//! | the work panics | logs it, drops the work, and starts it in the same driver, which then waits as for a node that is down (I-31) |
//! | the driver is dropped | the work is over, or its runtime has shut down: drops the work and reports `ended`. The next call starts it again |
//!
//! # Invariants
//!
//! - There is at most one instance of the work. It is polled, taken away and replaced only under `run`; the
//!   work keeps its own parts for its successor and gives them back when it is dropped.
//! - `Run::number` changes whenever the work changes hands. A driver or probe with an old number does
//!   nothing, so a runtime that resumes after the work was taken away finds that it is no longer its own.
//! - The work is taken away only between two polls, and only from a runtime that has not polled it since it
//!   was woken.
//! - Nothing is sent twice (I-5, I-14). Dropping the work ends its connection: requests in flight are
//!   unknown, and unsent ones stay in the queue, in their order, for the next.
//! - Work that is taken away is dropped with no mutex locked: that answers its requests, whose callers may
//!   send others.
//!
//! # When a future is dropped
//!
//! Drivers are dropped as described above. A probe that is dropped allows another one. It does not await
//! between taking the work away and spawning the next driver, so it leaves no work without a driver.
//!
//! What was rejected: docs/adr/0007-leases-and-timeouts.md.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::{BoxFuture, Either, select};
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tracing::{debug, error};

use crate::node::NodeError;
use crate::node::catch_panic::words;
use crate::runtime::{Mutex, clock::Clock};
use crate::transport::is_past_the_runtime;

/// How long a task may ignore a wake-up before another runtime takes over its work. A driven task reacts
/// within microseconds. Together with the time that a round waits before it wakes a silent node, this leaves
/// the node time to reconnect and answer within its 50 ms.
const PATIENCE: Duration = Duration::from_millis(20);

/// The work of a node for as long as it is used.
pub(super) trait Work: Send + Sync {
    /// Starts the work; after a panic, with its message, if there is one. Called again only after the
    /// previous work was dropped. `None` while that is not over.
    fn begin(&self, panicked: Option<&str>) -> Option<BoxFuture<'static, ()>>;

    /// Called when the work was dropped or has ended. Another call may start it again.
    fn ended(&self);
}

pub(super) struct Home {
    name: Arc<str>,
    clock: Arc<dyn Clock>,
    work: Box<dyn Work>,
    /// Whether a task drives the work, as far as is known.
    running: AtomicBool,
    /// Locked while the work is polled.
    run: Mutex<Run>,
    place: Mutex<HomeRuntime>,
    /// The number of polls of the work.
    polls: AtomicU64,
    /// Whether to notify `polled` at the next poll.
    woken: AtomicBool,
    polled: Notify,
}

/// The running work.
#[derive(Default)]
struct Run {
    /// Counts its starts and ends. A task that drove an earlier one ends.
    number: u64,
    work: Option<BoxFuture<'static, ()>>,
    /// The waker of the task that drives it.
    driver: Option<Waker>,
    /// The runtime of that task, on which the work makes its timers. Only while it is driven.
    runtime: Option<Handle>,
}

#[derive(Default)]
struct HomeRuntime {
    runtime: Option<Id>,
    /// Whether a probe waits for it to react to a wake-up.
    probed: bool,
}

impl Home {
    pub(super) fn new(name: Arc<str>, clock: Arc<dyn Clock>, work: Box<dyn Work>) -> Arc<Home> {
        Arc::new(Home {
            name,
            clock,
            work,
            running: AtomicBool::new(false),
            run: Mutex::default(),
            place: Mutex::default(),
            polls: AtomicU64::new(0),
            woken: AtomicBool::new(false),
            polled: Notify::new(),
        })
    }

    /// Starts the work on the runtime of the caller, unless it is running.
    pub(super) fn begin(self: &Arc<Self>) -> Result<(), NodeError> {
        if self.running.load(Ordering::Acquire) {
            return Ok(());
        }
        let runtime = runtime()?;
        let mut place = self.place.lock();
        if !self.running.load(Ordering::Acquire)
            && let Some(driver) = self.start()
        {
            place.runtime = Some(runtime.id());
            self.running.store(true, Ordering::Release);
            drop(place);
            // Outside the lock: a runtime that is shutting down drops new tasks immediately.
            runtime.spawn(driver);
        }
        Ok(())
    }

    /// Like [`begin`](Home::begin); if the work runs on another runtime, also checks that it is driven.
    pub(super) fn wake(self: &Arc<Self>) -> Result<(), NodeError> {
        self.begin()?;
        if is_past_the_runtime() {
            return Ok(());
        }
        let here = runtime()?;
        let mut place = self.place.lock();
        if place.probed || place.runtime.is_none_or(|runtime| runtime == here.id()) {
            return Ok(());
        }
        place.probed = true;
        drop(place);
        let probe = Probe(Arc::clone(self));
        drop(here.clone().spawn(async move { probe.0.probe(&here).await }));
        Ok(())
    }

    /// Polls the work on this thread, as its driver would: the requests in the queue are sent, and what can be read is
    /// delivered. Does nothing before its first poll by the driver, or while it is polled: then its runtime is driven.
    pub(super) fn poll_here(&self) {
        let Some(mut run) = self.idle() else { return };
        let (Some(driver), Some(runtime)) = (run.driver.clone(), run.runtime.clone()) else { return };
        let _entered = runtime.enter();
        let context = &mut Context::from_waker(&driver);
        // Twice, because a session lets other tasks add their requests before it sends those in the queue.
        for _ in 0..2 {
            if self.poll_work(&mut run, context).is_ready() {
                // The driver finds it gone, and reports that.
                run.work = None;
                driver.wake_by_ref();
                return;
            }
        }
    }

    /// Polls the work, and starts it anew if it panics.
    fn poll_work(&self, run: &mut Run, context: &mut Context<'_>) -> Poll<()> {
        let Some(work) = &mut run.work else { return Poll::Ready(()) };
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(polled) => polled,
            Err(panic) => {
                let panic = words(&*panic);
                error!(node = %self.name, panic, "the task of the node panicked; reconnecting");
                drop(run.work.take());
                run.work = self.work.begin(Some(panic));
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Takes over the work if it does not react.
    async fn probe(self: &Arc<Self>, here: &Handle) {
        let mut polled = pin!(self.polled.notified());
        polled.as_mut().enable();
        let Some(number) = self.wake_task() else { return };
        let seen = self.polls.load(Ordering::Relaxed);
        let late = self.clock.sleep_until(self.clock.now() + PATIENCE);
        if let Either::Left(_) = select(polled, late).await {
            return;
        }
        if let Some(work) = self.take(number, seen) {
            debug!(node = %self.name, "its runtime is not driven; reconnecting from another one");
            // This answers its requests now, and the callers may send new ones, which wait in the queue.
            drop(work);
            self.work.ended();
            let mut place = self.place.lock();
            let driver = self.start();
            place.runtime = driver.as_ref().map(|_| here.id());
            if driver.is_none() {
                self.running.store(false, Ordering::Release);
            }
            drop(place);
            if let Some(driver) = driver {
                drop(here.spawn(driver));
            }
        }
    }

    /// Wakes the task, and returns the number of the run. `None` if it is being polled.
    fn wake_task(&self) -> Option<u64> {
        let run = self.idle()?;
        self.woken.store(true, Ordering::Release);
        if let Some(driver) = &run.driver {
            driver.wake_by_ref();
        }
        Some(run.number)
    }

    /// Takes the work away if it is the same as then and was not polled since.
    fn take(&self, number: u64, seen: u64) -> Option<BoxFuture<'static, ()>> {
        let mut run = self.idle()?;
        if run.number != number || self.polls.load(Ordering::Relaxed) != seen {
            return None;
        }
        run.number += 1;
        (run.driver, run.runtime) = (None, None);
        run.work.take()
    }

    /// Starts the work, and returns the future that drives it.
    fn start(self: &Arc<Self>) -> Option<Driver> {
        let mut run = self.run.lock();
        debug_assert!(run.work.is_none(), "two instances of the work would send in no order (rule I-30)");
        let work = self.work.begin(None)?;
        run.number += 1;
        (run.driver, run.runtime) = (None, None);
        run.work = Some(work);
        Some(Driver { home: Arc::clone(self), number: run.number })
    }

    /// Locks the work, unless it is being polled.
    fn idle(&self) -> Option<MutexGuard<'_, Run>> {
        self.run.try_lock()
    }
}

/// A probe. There is one at a time.
struct Probe(Arc<Home>);

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.place.lock().probed = false;
    }
}

/// Drives one run of the work.
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
            home.polled.notify_waiters();
        }
        let mut run = home.run.lock();
        if run.number != self.number {
            return Poll::Ready(());
        }
        if run.driver.as_ref().is_none_or(|driver| !driver.will_wake(context.waker())) {
            run.driver = Some(context.waker().clone());
            run.runtime = Handle::try_current().ok();
        }
        home.poll_work(&mut run, context)
    }
}

/// The work is over, or the runtime is shutting down.
impl Drop for Driver {
    fn drop(&mut self) {
        let mut run = self.home.run.lock();
        if run.number != self.number {
            return;
        }
        run.number += 1;
        (run.driver, run.runtime) = (None, None);
        let work = run.work.take();
        drop(run);
        // New requests wait in the queue meanwhile.
        drop(work);
        self.home.work.ended();
        self.home.running.store(false, Ordering::Release);
    }
}

/// Returns the runtime for a node's task.
fn runtime() -> Result<Handle, NodeError> {
    Handle::try_current().map_err(|_| {
        let reason = "there is no Tokio runtime here to connect from; call from within one";
        NodeError::Unreachable { reason: reason.into() }
    })
}
