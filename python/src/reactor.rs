//! Waits for the work of the library: on the calling thread, or on an event loop.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::mem;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use quorlock::blocking::Background;
use quorlock::runtime::Mutex;
use tokio::runtime::Handle;

use crate::kept::kept;
use crate::process::{Own, Process, generation_here, notice_fork};

/// How often a wait looks for signals such as Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// For how long a thread that waited when the exit began stays out of the interpreter.
const AWAY: Duration = Duration::from_secs(3);

/// Turns what the library returned into what Python gets.
pub(crate) type Outcome = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// Does `work`: on this thread, which waits for it, or in the background, for the event loop of `reactor`.
pub(crate) fn dispatch<Done>(
    py: Python<'_>,
    background: &Background,
    reactor: Option<&Reactor>,
    work: impl Future<Output = Done> + Send + 'static,
) -> PyResult<Py<PyAny>>
where
    Done: FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send + 'static,
{
    match reactor {
        None => {
            refuse_green_threads(py)?;
            warn_of_loop(py)?;
            wait(py, background, work)?(py)
        }
        Some(reactor) => {
            let outcome = async move { Some(Box::new(work.await) as Outcome) };
            reactor.add(outcome)?.into_py_any(py)
        }
    }
}

/// What is imported.
fn modules(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

    kept(py, &MODULES, || Ok(py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?.unbind()))
}

/// Whether this thread runs a loop of Trio.
fn in_trio(py: Python<'_>) -> PyResult<bool> {
    if !modules(py)?.contains(intern!(py, "trio"))? {
        return Ok(false);
    }
    py.import("quorlock._events")?.call_method0("in_trio")?.is_truthy()
}

/// Refuses a wait that would stop all threads of a process, which gevent or eventlet may have replaced since the last one.
fn refuse_green_threads(py: Python<'_>) -> PyResult<()> {
    let modules = modules(py)?;
    if modules.contains(intern!(py, "gevent.monkey"))? || modules.contains(intern!(py, "eventlet.patcher"))? {
        py.import("quorlock._events")?.call_method0("refuse_green_threads")?;
    }
    Ok(())
}

/// Warns before a wait that stops the event loop of this thread, if one runs.
pub(crate) fn warn_of_loop(py: Python<'_>) -> PyResult<()> {
    static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

    let running_loop = kept(py, &RUNNING_LOOP, || {
        // A program without asyncio does not import it for this.
        Ok(modules(py)?.as_any().get_item("asyncio")?.getattr("_get_running_loop")?.unbind())
    });
    let in_asyncio = match running_loop {
        Ok(running_loop) => !running_loop.call0()?.is_none(),
        Err(_) => false,
    };
    if in_asyncio || in_trio(py)? {
        py.import("quorlock._events")?.call_method0("warn_of_loop")?;
    }
    Ok(())
}

/// Waits on this thread without the interpreter. A signal whose Python handler raises ends the wait.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    background: &Background,
    work: impl Future<Output = T> + Send + 'static,
) -> PyResult<T> {
    if Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed()) {
        // A host such as uWSGI ends the interpreter at its exit, when this thread has nothing local any more.
        return py.detach(|| wait_on_another_thread(background, work));
    }
    if is_main_thread() {
        let work = Box::pin(work);
        py.detach(|| wait_with_handlers(background, work))
    } else {
        let exits = Process::here().exits.get().is_some();
        py.detach(|| {
            // Python runs the handlers of signals on its main thread only.
            let output = background.run_checking(Duration::MAX, || Ok(()), work);
            if !exits {
                stay_away_from_an_exit();
            }
            output
        })
    }
}

fn wait_on_another_thread<T: Send>(
    background: &Background,
    work: impl Future<Output = T> + Send,
) -> PyResult<T> {
    thread::scope(|threads| {
        let thread = thread::Builder::new().spawn_scoped(threads, || background.run(work))?;
        thread.join().map_err(|_| PyRuntimeError::new_err("the work of this call panicked"))
    })
}

/// Waits, and runs the handlers of signals meanwhile.
///
/// A handler may wait for the end of this very work, as `close()` does. So what takes longer goes on in the background,
/// whatever a handler does on this thread.
fn wait_with_handlers<T: Send + 'static>(
    background: &Background,
    mut work: BoxFuture<'static, T>,
) -> PyResult<T> {
    if let Ok(output) = background.run_checking(LOOK, || Err(()), &mut work) {
        return Ok(output);
    }
    let ((abort, registration), (done, mut outcome)) = (AbortHandle::new_pair(), oneshot::channel());
    background.spawn(async move {
        if let Ok(output) = Abortable::new(work, registration).await {
            drop(done.send(output));
        }
    });
    let here = generation_here();
    let ended = background.run_checking(LOOK, look_for_signals, &mut outcome);
    if ended.is_err() && generation_here() == here {
        abort.abort();
        // It has cleaned up before the caller goes on. In a child that the handler forked it does not run.
        drop(background.run(outcome));
    }
    ended?.map_err(|_| PyRuntimeError::new_err("the work of this call panicked"))
}

/// Waits for the end of the process if its exit has begun: a thread that comes back to an interpreter that ends is ended
/// wherever it is. Not for ever, since the code that runs at the exit may wait for this thread.
fn stay_away_from_an_exit() {
    let ends = Process::here().exits.get();
    if ends.is_some_and(|thread| *thread != thread::current().id()) {
        let (_open, never) = channel::<()>();
        let _ = never.recv_timeout(AWAY);
    }
}

/// Notes that the exit of the interpreter has begun, on this thread.
#[pyfunction]
pub(crate) fn begin_exit(py: Python<'_>) -> PyResult<()> {
    notice_fork(py)?;
    let _ = Process::here().exits.set(thread::current().id());
    Ok(())
}

/// Runs the Python handlers of signals that have arrived.
#[expect(clippy::redundant_closure_for_method_calls, reason = "the method is not general enough")]
fn look_for_signals() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}

/// Whether this is the first thread of its process. Where that cannot be known, every thread looks for signals.
fn is_main_thread() -> bool {
    #[cfg(target_os = "linux")]
    return rustix::thread::gettid() == rustix::process::getpid();
    #[cfg(not(target_os = "linux"))]
    true
}

/// The number of a task, its value, and its exception.
type Taken = (u64, Option<Py<PyAny>>, Option<PyErr>);

/// Where the results for one event loop wait. The loop watches the descriptor, and takes them when it can be read.
#[pyclass(frozen)]
pub(crate) struct Reactor {
    queue: Own<Arc<Queue>>,
    readable: UnixStream,
}

struct Queue {
    state: Mutex<State>,
    wake: UnixStream,
}

#[derive(Default)]
struct State {
    /// What starts together: many small requests cost the nodes more than one large one.
    waiting: Vec<Abortable<BoxFuture<'static, ()>>>,
    running: HashMap<u64, AbortHandle>,
    done: Vec<(u64, Outcome)>,
    /// The number of the last task, and of the last that was started.
    last: u64,
    started: u64,
    closed: bool,
}

impl Queue {
    fn end(&self, number: u64, outcome: Option<Outcome>) {
        let mut state = self.state.lock();
        state.running.remove(&number);
        let Some(outcome) = outcome else { return };
        if state.closed {
            // Dropped without the lock: an unclaimed lease is released.
            drop(state);
            return;
        }
        state.done.push((number, outcome));
        let first = state.done.len() == 1;
        drop(state);
        if first {
            // Full means that it can be read already.
            drop((&self.wake).write(&[1]));
        }
    }
}

impl Reactor {
    /// Adds work to what [`Reactor::start`] starts, and returns its number. Python gets the outcome, if there is one.
    pub(crate) fn add(&self, work: impl Future<Output = Option<Outcome>> + Send + 'static) -> PyResult<u64> {
        let queue = self.queue.get().ok_or_else(forked)?;
        let (abort, registration) = AbortHandle::new_pair();
        let mut state = queue.state.lock();
        state.last += 1;
        let number = state.last;
        let ends = queue.clone();
        let work: BoxFuture<'static, ()> = Box::pin(async move { ends.end(number, work.await) });
        state.running.insert(number, abort);
        state.waiting.push(Abortable::new(work, registration));
        Ok(number)
    }

    /// Adds work that is done, and returns its number. A process without a background thread may do so, too.
    pub(crate) fn add_done(
        &self,
        py: Python<'_>,
        outcome: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Py<PyAny>> {
        let queue = self.queue.get().ok_or_else(forked)?;
        let mut state = queue.state.lock();
        state.last += 1;
        let number = state.last;
        drop(state);
        queue.end(number, Some(Box::new(outcome)));
        number.into_py_any(py)
    }
}

fn forked() -> PyErr {
    PyRuntimeError::new_err("this event loop belongs to the parent process: start another one after a fork")
}

#[pymethods]
impl Reactor {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Reactor> {
        notice_fork(py)?;
        let (readable, wake) = UnixStream::pair()?;
        readable.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        let queue = Queue { state: Mutex::default(), wake };
        Ok(Reactor { queue: Own::new(Arc::new(queue)), readable })
    }

    /// The descriptor to watch for reading.
    fn fileno(&self) -> i32 {
        self.readable.as_raw_fd()
    }

    /// Starts all that was added.
    fn start(&self) -> PyResult<()> {
        let queue = self.queue.get().ok_or_else(forked)?;
        let mut state = queue.state.lock();
        state.started = state.last;
        let mut waiting = mem::take(&mut state.waiting);
        drop(state);
        waiting.retain(|work| !work.is_aborted());
        if let Some(background) = Process::here().background.get()
            && !waiting.is_empty()
        {
            // One wake-up of the background thread for all.
            background.spawn(async move {
                for work in waiting {
                    tokio::spawn(work);
                }
            });
        }
        Ok(())
    }

    /// Drops work, which cleans up after itself.
    fn cancel(&self, number: u64) {
        let Some(queue) = self.queue.get() else { return };
        let abort = queue.state.lock().running.remove(&number);
        if let Some(abort) = abort {
            abort.abort();
        }
    }

    /// Drops work that was not started. Otherwise it must end by itself.
    fn forget(&self, number: u64) {
        if self.queue.get().is_some_and(|queue| number > queue.state.lock().started) {
            self.cancel(number);
        }
    }

    /// Returns what is done.
    fn take(&self, py: Python<'_>) -> PyResult<Vec<Taken>> {
        let queue = self.queue.get().ok_or_else(forked)?;
        // Before the queue is emptied, so that what comes later wakes again.
        drop((&self.readable).read(&mut [0; 64]));
        let done = mem::take(&mut queue.state.lock().done);
        let results = done.into_iter().map(|(number, outcome)| match outcome(py) {
            Ok(value) => (number, Some(value), None),
            Err(error) => (number, None, Some(error)),
        });
        Ok(results.collect())
    }

    /// Drops what runs and what was not taken, when the event loop is closed.
    fn close(&self) {
        let Some(queue) = self.queue.get() else { return };
        let mut state = queue.state.lock();
        state.closed = true;
        let (running, done) = (mem::take(&mut state.running), mem::take(&mut state.done));
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
        for abort in running.into_values() {
            abort.abort();
        }
        drop(done);
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.close();
    }
}
