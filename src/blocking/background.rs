//! The background thread of the blocking API, and waiting for it.

use std::fmt;
use std::future::pending;
use std::mem;
use std::pin::pin;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};

use crate::error::ConfigError;
use crate::node::Reason;
use crate::runtime::{Mutex, clock::Clock};

/// A handle to the one background thread of this process, for callers on threads of their own.
///
/// [`Builder::build_blocking`](crate::Builder::build_blocking) has all that a Rust program needs. This is for
/// bindings to other languages, which wait in their own ways for what an async [`Coordinator`](crate::Coordinator)
/// does: they look for signals while they wait, or wait on an event loop.
#[derive(Clone)]
pub struct Background {
    thread: Handle,
    clock: Arc<dyn Clock>,
}

impl Background {
    /// Returns the background of what `coordinator` makes. The first call in a process starts the thread. So does the
    /// first in a child that `fork` made: its parent's thread does not run there.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NoBackground`] when the system grants no thread.
    pub fn beside(coordinator: &crate::Coordinator) -> Result<Background, ConfigError> {
        /// The thread, and the process that it runs in.
        static THREAD: Mutex<Option<(u32, Handle)>> = Mutex::new(None);
        let mut started = THREAD.lock();
        let here = process::id();
        let thread = match &*started {
            Some((process, thread)) if *process == here => thread.clone(),
            _ => {
                let thread =
                    start().map_err(|error| ConfigError::NoBackground { problem: Reason::from(error) })?;
                // What belongs to the parent is not dropped: its sockets are shared with this process.
                mem::forget(started.replace((here, thread.clone())));
                thread
            }
        };
        Ok(Background { thread, clock: coordinator.engine.nodes.clock.clone() })
    }

    /// Runs `work` on the calling thread. What it starts runs in the background: connections, timers, and tasks that
    /// outlive it.
    ///
    /// # Panics
    ///
    /// In an async context, as Tokio's `Handle::block_on`: waiting would stall the executor.
    #[track_caller]
    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.thread.block_on(work)
    }

    /// As [`run`](Background::run), for at most `longest`: `None` if `work` has not ended by then.
    #[track_caller]
    pub fn run_within<T>(&self, longest: Duration, work: impl Future<Output = T>) -> Option<T> {
        self.run(self.within(longest, work))
    }

    /// Runs `work` for at most `longest`: `None` if it has not ended by then.
    pub async fn within<T>(&self, longest: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            output = work => Some(output),
            () = self.clock.sleep_until(self.clock.now() + longest) => None,
        }
    }

    /// As [`run`](Background::run), and calls `check` about once in `every` while it waits. An error of `check` is
    /// returned immediately, and drops `work`, as when a signal ends a wait. A wait that goes on keeps its place in the
    /// queue. Work that is woken more often than that is checked no less.
    ///
    /// # Errors
    ///
    /// The first error of `check`.
    pub fn run_checking<T, E>(
        &self,
        every: Duration,
        mut check: impl FnMut() -> Result<(), E>,
        work: impl Future<Output = T>,
    ) -> Result<T, E> {
        let mut work = pin!(work);
        let parked = Arc::new(Parked { thread: thread::current(), woken: AtomicBool::new(true) });
        let waker = Waker::from(parked.clone());
        let _runtime = self.thread.enter();
        let mut checked = self.clock.now();
        loop {
            let mut is_due = false;
            if parked.woken.swap(false, Ordering::Acquire) {
                if let Poll::Ready(output) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return Ok(output);
                }
            } else {
                // Also after a time that it did not wait: the next check is soon enough.
                thread::park_timeout(every);
                is_due = !parked.woken.load(Ordering::Acquire);
            }
            let now = self.clock.now();
            if is_due || now.since(checked) >= every {
                check()?;
                checked = now;
            }
        }
    }

    /// Runs `work` on the background thread, which serves all locks: it must not block.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.thread.spawn(work);
    }

    /// Calls `listener` with the output of `work`, on a thread where it may block.
    pub(super) fn call_after<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        listener: impl FnOnce(T) + Send + 'static,
    ) {
        let thread = self.thread.clone();
        self.thread.spawn(async move {
            let output = work.await;
            thread.spawn_blocking(move || listener(output));
        });
    }
}

/// The thread that [`Background::run_checking`] waits on.
struct Parked {
    thread: thread::Thread,
    woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Parked>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Parked>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The runtime runs on its one thread until the process ends. No number of listeners that block keeps others waiting.
fn start() -> std::io::Result<Handle> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_name("quorlock listener")
        .max_blocking_threads(usize::MAX)
        .build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name("quorlock".to_owned()).spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Background")
    }
}
