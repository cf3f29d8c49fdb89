//! What belongs to one process, and forks.
//!
//! A child that was forked has none of its parent's threads, and shares its sockets. So it leaks what it inherited,
//! and makes its own at first use: a coordinator and a lock (`Connection::live`, `Lock::wanted`). A lease stays its parent's,
//! and using it raises (`Lease::lasting`).

use std::mem;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::ThreadId;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusRecorder;
use pyo3::prelude::*;
use quorlock::blocking::Background;
use quorlock::redis::scripts::make_all;
use quorlock::runtime::Mutex;

use crate::events::{Called, Events, LeftOut, LogRecord};

/// The state of this module in one process.
pub(crate) struct Process {
    /// How many forks are between the process that imported the module and this one.
    pub(crate) generation: u64,
    /// The number that the system gives it.
    id: OnceLock<u32>,
    /// Whether the package in Python has forgotten the parent, too.
    known_to_python: AtomicBool,
    pub(crate) records: Events<LogRecord>,
    pub(crate) left_out: LeftOut,
    pub(crate) called: Events<Called>,
    /// Set by the first coordinator.
    pub(crate) background: OnceLock<Background>,
    /// The thread on which the exit of the interpreter has begun.
    pub(crate) exits: OnceLock<ThreadId>,
    /// Where metrics go: nothing of the parent's, whose locks a thread may have held during the fork.
    pub(crate) recorder: OnceLock<PrometheusRecorder>,
    /// The leases of `acquire(keep=True)`, whatever happens to the objects that the program has.
    pub(crate) kept: Mutex<Vec<Py<PyAny>>>,
    /// Let the background thread go on after a fork.
    parked: Mutex<Vec<Sender<()>>>,
    /// The process that was forked from this one, if this code runs there.
    child: OnceLock<Box<Process>>,
}

impl Process {
    const fn new(generation: u64) -> Process {
        Process {
            generation,
            id: OnceLock::new(),
            known_to_python: AtomicBool::new(generation == 0),
            records: Events::new(),
            left_out: LeftOut::new(),
            called: Events::new(),
            background: OnceLock::new(),
            exits: OnceLock::new(),
            recorder: OnceLock::new(),
            kept: Mutex::new(Vec::new()),
            parked: Mutex::new(Vec::new()),
            child: OnceLock::new(),
        }
    }

    /// Returns the state of the process that calls. A child whose program does not call what Python calls after forks of its
    /// own, such as uWSGI, is noticed here, so that nothing of the parent's is ever used in it.
    pub(crate) fn here() -> &'static Process {
        let id = process::id();
        loop {
            let latest = Process::latest();
            if *latest.id.get_or_init(|| id) == id {
                return latest;
            }
            latest.fork(id);
        }
    }

    /// Returns the last that was noticed, which may be the parent of the process that calls.
    fn latest() -> &'static Process {
        static FIRST: Process = Process::new(0);
        let mut latest = &FIRST;
        while let Some(child) = latest.child.get() {
            latest = child;
        }
        latest
    }

    /// Makes the state of a child with this number, unless another thread of the child has.
    fn fork(&self, id: u32) -> &Process {
        self.child.get_or_init(|| {
            let child = Process::new(self.generation + 1);
            let _ = child.id.set(id);
            Box::new(child)
        })
    }
}

/// Notes at the import which process this is.
pub(crate) fn begin() {
    let _ = Process::here();
}

/// Lets the package in Python notice a fork as well, before it starts threads or uses its locks.
pub(crate) fn notice_fork(py: Python<'_>) -> PyResult<()> {
    if !Process::here().known_to_python.swap(true, Ordering::Relaxed) {
        py.import("quorlock._events")?.call_method0("forget_parent")?;
    }
    Ok(())
}

/// Stops the background thread where it holds no lock, so that the child finds none that is locked for ever. The thread that
/// stands in for it while it is late (rule O-12) is not stopped: of what the child shares with it, scripts are made before.
#[pyfunction]
pub(crate) fn before_fork() {
    let here = Process::here();
    let Some(background) = here.background.get() else { return };
    make_all();
    let (parked, wait_until_parked) = channel();
    let (go_on, wait_for_fork) = channel::<()>();
    background.spawn(async move {
        let _ = parked.send(());
        // Returns when the sender is dropped.
        let _ = wait_for_fork.recv();
    });
    // It is idle nearly always. A fork does not wait for a busy one.
    let _ = wait_until_parked.recv_timeout(Duration::from_millis(100));
    here.parked.lock().push(go_on);
}

#[pyfunction]
pub(crate) fn after_fork_in_parent() {
    Process::here().parked.lock().clear();
}

#[pyfunction]
pub(crate) fn after_fork_in_child() {
    // The caller forgets the parent in Python.
    Process::latest().fork(process::id()).known_to_python.store(true, Ordering::Relaxed);
}

/// Returns the number of the process that calls, to distinguish a parent from its children.
pub(crate) fn generation_here() -> u64 {
    Process::here().generation
}

/// The same for Python.
#[pyfunction]
pub(crate) fn generation(py: Python<'_>) -> PyResult<u64> {
    notice_fork(py)?;
    Ok(generation_here())
}

/// A value that only the process that made it may use or drop.
pub(crate) struct Own<T> {
    generation: u64,
    value: Option<T>,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Own<T> {
        Own { generation: generation_here(), value: Some(value) }
    }

    /// Returns nothing in a process that has inherited it.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.generation == generation_here())
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.generation != generation_here() {
            mem::forget(self.value.take());
        }
    }
}
