//! Contexts: `with` on a lock and on a lease.
//!
//! They are here and not in Python so that acquiring and noting it are one step, and likewise the end: no handler of a
//! signal runs in between, whose exception would leave a lock held by no one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use quorlock::protocol::Moment;
use quorlock::runtime::{Clock as _, Mutex, SystemClock};

use crate::error::duration;
use crate::kept::{ERRORS, LEASE, frame_at};
use crate::lease::{Lease, keep};
use crate::lock::Lock;

/// What is entered and not left yet, each with its place: several may be in the context of one lock at the same time.
#[pyclass(frozen)]
#[derive(Default)]
pub(crate) struct Contexts {
    entered: Mutex<Vec<(Py<PyAny>, Py<PyAny>)>>,
}

/// Several are in, and none of them was entered where this one is left.
const CANNOT_KNOW: &str = "several are in the context of this one lock object, and it cannot know which of them ends \
                           here, so it releases none: make a lock for each use, as in `with q.lock(...)`, or use \
                           `lease = lock.acquire()` and `with lease:`";

#[pymethods]
impl Contexts {
    #[new]
    fn new() -> Contexts {
        Contexts::default()
    }

    fn enter(&self, place: Py<PyAny>, what: Py<PyAny>) {
        self.entered.lock().push((place, what));
    }

    /// Returns what was entered at this place, the last first. A context may be left elsewhere if no other is entered.
    fn leave(&self, place: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let mut entered = self.entered.lock();
        let of_this_place = entered.iter().rposition(|(at, _)| at.is(place));
        let only = if entered.len() == 1 { Some(0) } else { None };
        let Some(index) = of_this_place.or(only) else {
            let none = entered.is_empty();
            drop(entered);
            return Err(PyRuntimeError::new_err(if none {
                "this context was not entered"
            } else {
                CANNOT_KNOW
            }));
        };
        let (at, what) = entered.remove(index);
        // What it drops may run code.
        drop(entered);
        drop(at);
        Ok(what)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(entered) = self.entered.try_lock() {
            for (place, what) in &*entered {
                visit.call(place)?;
                visit.call(what)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let entered = std::mem::take(&mut *self.entered.lock());
        drop(entered);
    }
}

/// Where a context is entered and left: the frame of the `with`, whatever thread or task it runs on. `depth` is how many
/// frames are between it and the caller. What a stack of `contextlib` enters belongs to the stack, whose frame ends.
#[pyfunction]
pub(crate) fn place(py: Python<'_>, depth: usize) -> PyResult<Bound<'_, PyAny>> {
    let frame = frame_at(py)?.call1((depth,))?;
    let file = frame.getattr("f_code")?.getattr("co_filename")?;
    if file.extract::<&str>().is_ok_and(|file| file.ends_with("contextlib.py"))
        && let Ok(stack) = frame.getattr("f_locals")?.get_item("self")
    {
        return Ok(stack);
    }
    Ok(frame)
}

/// What users have of a lease of a lock, which says whether a loss is raised.
fn public(raw: &Bound<'_, PyAny>, raises: bool) -> PyResult<Py<PyAny>> {
    Ok(LEASE.get(raw.py(), "Lease")?.call1((raw, raw.py().None(), raises))?.unbind())
}

/// Makes what users have of a lease. Then it runs the handlers of signals that arrived while it was acquired: if one
/// raises, no one gets the lease, which is given back. Python runs none between a `with` and its body, but a stack of
/// `contextlib` does, which then knows of no lock to leave.
fn hand_out(py: Python<'_>, raw: &Py<PyAny>, raises: bool) -> PyResult<Py<PyAny>> {
    let handed_out = public(raw.bind(py), raises).and_then(|lease| py.check_signals().map(|()| lease));
    handed_out.inspect_err(|_| {
        if let Ok(lease) = raw.bind(py).cast::<Lease>() {
            lease.get().give_back();
        }
    })
}

/// The same of a lease that is kept if the program drops it.
fn hand_out_kept(py: Python<'_>, raw: &Py<PyAny>, raises: bool, keeps: bool) -> PyResult<Py<PyAny>> {
    let lease = hand_out(py, raw, raises)?;
    if keeps {
        keep(py, raw.bind(py).cast::<Lease>()?.clone().unbind());
    }
    Ok(lease)
}

/// Whether no exception leaves the context: `raised` is its type, value and traceback, or `None` three times.
fn is_empty(raised: &Bound<'_, PyTuple>) -> bool {
    raised.iter().all(|part| part.is_none())
}

/// The base of the locks and semaphores of threads.
#[pyclass(frozen, subclass)]
pub(crate) struct LockContext {
    #[pyo3(get, name = "_lock")]
    lock: Py<Lock>,
    /// Whether a loss is raised at the end, or only logged.
    raises: bool,
    contexts: Contexts,
}

#[pymethods]
impl LockContext {
    #[new]
    fn new(lock: Py<Lock>, raises: bool) -> LockContext {
        LockContext { lock, raises, contexts: Contexts::default() }
    }

    /// Waits until it is acquired. No frame of Python has the lease before the caller has it.
    #[pyo3(name = "_acquire")]
    fn acquire(&self, py: Python<'_>, keeps: bool) -> PyResult<Py<PyAny>> {
        hand_out_kept(py, &self.lock.get().acquire(py, None)?, self.raises, keeps)
    }

    /// Returns `None` if another client holds it.
    #[pyo3(name = "_try_acquire")]
    fn try_acquire(&self, py: Python<'_>, keeps: bool) -> PyResult<Py<PyAny>> {
        let raw = self.lock.get().try_acquire(py, None)?;
        if raw.is_none(py) { Ok(raw) } else { hand_out_kept(py, &raw, self.raises, keeps) }
    }

    /// Acquires it.
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let place = place(py, 0)?.unbind();
        let raw = self.lock.get().acquire(py, None)?;
        let lease = hand_out(py, &raw, self.raises)?;
        lease.bind(py).cast::<LeaseContext>()?.get().entered.store(true, Ordering::Relaxed);
        self.contexts.enter(place, raw);
        Ok(lease)
    }

    /// Releases what was acquired.
    #[pyo3(signature = (*raised))]
    fn __exit__(&self, py: Python<'_>, raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        let entered = self.contexts.leave(&place(py, 0)?)?;
        let lease = entered.bind(py).cast::<Lease>()?;
        lease.get().end(py, self.raises && is_empty(raised))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.contexts.__traverse__(visit)
    }

    fn __clear__(&self) {
        self.contexts.__clear__();
    }
}

/// The context of a call of a function of `once`: it takes the lock unless another client has it, and keeps it taken
/// for `every` from its beginning on. No exception of the handler of a signal comes between the function and that.
#[pyclass(frozen)]
pub(crate) struct OnceContext {
    lock: Py<Lock>,
    every: Duration,
    entered: Mutex<Option<(Py<Lease>, Moment)>>,
}

#[pymethods]
impl OnceContext {
    #[new]
    fn new(lock: Py<Lock>, every: f64) -> PyResult<OnceContext> {
        let every = duration("every", Some(every))?.unwrap_or_default();
        Ok(OnceContext { lock, every, entered: Mutex::default() })
    }

    /// Returns whether the lock was acquired.
    fn __enter__(&self, py: Python<'_>) -> PyResult<bool> {
        let raw = self.lock.get().try_acquire(py, None)?;
        if raw.is_none(py) {
            return Ok(false);
        }
        let lease = raw.bind(py).cast::<Lease>()?.clone().unbind();
        *self.entered.lock() = Some((lease, SystemClock::default().now()));
        Ok(true)
    }

    /// Retains the lock. That it may not stay taken is logged: the function has run.
    #[pyo3(signature = (*raised))]
    fn __exit__(&self, py: Python<'_>, raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        let Some((lease, since)) = self.entered.lock().take() else { return Ok(()) };
        let lease = lease.get();
        let left = self.every.saturating_sub(SystemClock::default().now().since(since));
        if !left.is_zero()
            && let Err(failed) = lease.retain(py, left.as_secs_f64(), String::new(), None)
        {
            if failed.is_instance(py, &ERRORS.get(py, "Unconfirmed")?) {
                LEASE.get(py, "report_unconfirmed")?.call1((failed.into_value(py),))?;
            } else if !failed.is_instance(py, &ERRORS.get(py, "Lost")?) {
                return Err(failed);
            }
        }
        // Raises the loss, or logs it.
        lease.end(py, is_empty(raised))
    }
}

/// The base of the leases of threads.
#[pyclass(frozen, subclass)]
pub(crate) struct LeaseContext {
    #[pyo3(get, name = "_lease")]
    lease: Py<Lease>,
    /// What a leader announced.
    #[pyo3(get, name = "_value")]
    value: Option<String>,
    /// Whether a loss is raised at the end, or only logged.
    raises: bool,
    /// Whether it is in a context, whose end releases it.
    entered: AtomicBool,
}

#[pymethods]
impl LeaseContext {
    #[new]
    #[pyo3(signature = (lease, value=None, raises=true))]
    fn new(lease: Py<Lease>, value: Option<String>, raises: bool) -> LeaseContext {
        LeaseContext { lease, value, raises, entered: AtomicBool::new(false) }
    }

    /// Raises `Lost` if the lease is over: nothing runs without the lock.
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().lease.get().check(slf.py())?;
        if slf.get().entered.swap(true, Ordering::Relaxed) {
            return Err(PyRuntimeError::new_err("this lease is in a `with` already, whose end releases it"));
        }
        Ok(slf)
    }

    /// Releases the lock.
    #[pyo3(signature = (*raised))]
    fn __exit__(&self, py: Python<'_>, raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.lease.get().end(py, self.raises && is_empty(raised))
    }
}

/// The base of the lock with the calls of redis-py, whose steps are in Python: what an exception interrupts there is
/// given back.
#[pyclass(frozen, subclass)]
pub(crate) struct Steps;

impl Steps {
    /// What the object holds now.
    fn lease<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.getattr("local")?.getattr("lease")
    }

    /// Gives `held` back, if that is a lease.
    fn give_back(held: &Bound<'_, PyAny>) {
        if let Ok(raw) = held.getattr("_lease").and_then(|raw| Ok(raw.cast_into::<Lease>()?)) {
            raw.get().give_back();
        }
    }
}

#[pymethods]
impl Steps {
    #[new]
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn new(_arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> Steps {
        Steps
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let before = Steps::lease(slf)?;
        slf.call_method0("_enter").inspect_err(|_| {
            // What was held before is not of this context.
            if let Ok(held) = Steps::lease(slf)
                && !held.is(&before)
            {
                Steps::give_back(&held);
            }
        })
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(slf: &Bound<'_, Self>, _raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        // The object may have forgotten it before the release was interrupted.
        let held = Steps::lease(slf)?;
        slf.call_method0("_leave").map(drop).inspect_err(|_| Steps::give_back(&held))
    }
}
